// SPDX-License-Identifier: GPL-2.0-only

//! What `check` reads, from files below a root folder, so that tests can invent machines.

use super::kernel_names;
use crate::machine::{Machine, Summary};
use crate::process;
use flate2::read::GzDecoder;
use pandemonium_host::preflight::{self, Lacks};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;

/// A kernel configuration has some 300 KiB; a longer one is not read to its end.
const CONFIG_MAX: u64 = 16 << 20;
/// How deep groups are searched for limits, and how many groups at most.
const GROUP_DEPTH: usize = 3;
const GROUPS_MAX: usize = 2_000;

/// What was read.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What decides whether a start succeeds.
    pub preflight: preflight::Facts,
    /// The name by which the kernel knows this program.
    pub own_name: String,
    /// As `uname -r` prints it; empty if unknown.
    pub release: String,
    /// The kernel's configuration, if it can be read.
    pub config: Option<String>,
    /// The names in the kernel's BTF that programs need; `None` if it cannot be read.
    pub names: Option<BTreeSet<&'static str>>,
    /// The limit of locked memory, as `/proc` prints it: bytes, or `unlimited`.
    pub locked_memory: Option<String>,
    /// Whether debugfs can be read, and if so, whether it shows the deadline server of sched_ext.
    pub ext_server: Option<bool>,
    pub preempt_rt: bool,
    /// CPUs without ticks, as a list; empty if there are none.
    pub nohz_full: String,
    /// Whether groups may have weights and limits of CPU time.
    pub cpu_controller: bool,
    /// The groups that have a limit.
    pub limited_groups: Vec<String>,
    /// The CPUs; `None` if they cannot be counted.
    pub cpus: Option<Summary>,
}

impl Facts {
    /// Reads the facts below `root`; `/` is this machine. Needs none of the capabilities.
    pub fn read(root: &Path, lacks: Lacks) -> Facts {
        let file = |path: &str| fs::read_to_string(root.join(path)).ok();
        let line = |path: &str| file(path).unwrap_or_default().trim().to_owned();
        let release = line("proc/sys/kernel/osrelease");
        let btf = fs::read(root.join("sys/kernel/btf/vmlinux")).ok();
        let groups = root.join("sys/fs/cgroup");
        let mut limited_groups = Vec::new();
        search_limits(&groups, &groups, 0, &mut 0, &mut limited_groups);
        limited_groups.sort();
        Facts {
            preflight: preflight::Facts::observe(root, lacks),
            own_name: process::scheduler_name(),
            config: config(root, &release),
            names: btf.and_then(|btf| kernel_names::present(&btf, &kernel_names::all())),
            locked_memory: preflight::locked_memory(root).map(|[soft, _]| soft),
            ext_server: ext_server(&root.join("sys/kernel/debug/sched")),
            preempt_rt: line("sys/kernel/realtime") == "1",
            nohz_full: cpu_list(&line("sys/devices/system/cpu/nohz_full")),
            cpu_controller: line("sys/fs/cgroup/cgroup.subtree_control")
                .split_whitespace()
                .any(|controller| controller == "cpu"),
            limited_groups,
            // It reads this machine, whatever the root.
            cpus: Machine::observe().ok().map(|machine| machine.summary()),
            release,
        }
    }

    /// Major and minor version of the kernel.
    pub fn version(&self) -> Option<(u32, u32)> {
        let mut numbers = self.release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }

    /// The value of an option of the kernel: `y`, or `n` if it is not set. `None` if unknown.
    pub fn option(&self, name: &str) -> Option<&str> {
        let lines = self.config.as_ref()?.lines();
        let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        Some(values.next().unwrap_or("n"))
    }
}

fn config(root: &Path, release: &str) -> Option<String> {
    let mut text = String::new();
    let packed = fs::File::open(root.join("proc/config.gz"));
    let unpacked =
        packed.map(|file| GzDecoder::new(file).take(CONFIG_MAX).read_to_string(&mut text));
    if matches!(unpacked, Ok(Ok(_))) {
        return Some(text);
    }
    // The release is one word of the kernel; as a path it must stay in the folder.
    let is_plain = !release.is_empty() && !release.contains('/');
    let plain = root.join("boot").join(format!("config-{release}"));
    is_plain.then(|| fs::read_to_string(plain).ok())?
}

fn ext_server(folder: &Path) -> Option<bool> {
    fs::read_dir(folder).ok().map(|_| folder.join("ext_server").exists())
}

/// The kernel prints `(null)` where no CPU is meant.
fn cpu_list(text: &str) -> String {
    let is_list = text.starts_with(|c: char| c.is_ascii_digit());
    if is_list { text.to_owned() } else { String::new() }
}

/// Collects the groups below `folder` whose `cpu.max` is a limit. Follows no links.
fn search_limits(
    root: &Path,
    folder: &Path,
    depth: usize,
    seen: &mut usize,
    found: &mut Vec<String>,
) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_group = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_group || *seen >= GROUPS_MAX {
            continue;
        }
        *seen += 1;
        let group = entry.path();
        let limit = fs::read_to_string(group.join("cpu.max")).unwrap_or_default();
        if limit.starts_with(|c: char| c.is_ascii_digit()) {
            let name = group.strip_prefix(root).unwrap_or(&group);
            found.push(name.to_string_lossy().into_owned());
        }
        if depth + 1 < GROUP_DEPTH {
            search_limits(root, &group, depth + 1, seen, found);
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::check::kernel_names::tests::btf;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// An invented machine, removed in the end.
    struct Root(PathBuf);

    impl Root {
        fn new(files: &[(&str, &[u8])]) -> Root {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let root = std::env::temp_dir().join(format!("check-{}-{number}", std::process::id()));
            for (path, content) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
            Root(root)
        }

        fn facts(&self) -> Facts {
            Facts::read(&self.0, Lacks::observe(&self.0))
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn packed(text: &str) -> Vec<u8> {
        let mut writer = GzEncoder::new(Vec::new(), Compression::fast());
        writer.write_all(text.as_bytes()).unwrap();
        writer.finish().unwrap()
    }

    /// A machine on which nothing is wrong.
    pub fn good() -> Facts {
        Facts {
            preflight: preflight::Facts {
                lacks: Lacks::default(),
                state: Some("disabled".into()),
                ops: None,
                has_btf: true,
                has_own_pids: false,
                malformed: Vec::new(),
            },
            own_name: "pandemonium_user".into(),
            release: "7.3.4".into(),
            config: Some("CONFIG_SCHED_CLASS_EXT=y\n".into()),
            names: Some(kernel_names::all()),
            locked_memory: Some("8388608".into()),
            ext_server: Some(true),
            preempt_rt: false,
            nohz_full: String::new(),
            cpu_controller: false,
            limited_groups: Vec::new(),
            cpus: Some(Summary { cpus: 4, cores: 2, slow: 0, l2s: 2, llcs: 1, nodes: 1 }),
        }
    }

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = Root::new(&[
            ("proc/sys/kernel/osrelease", b"6.18.44-arch1\n"),
            (
                "proc/config.gz",
                &packed("CONFIG_A=y\nCONFIG_SCHED_CLASS_EXT=y\n# CONFIG_B is not set"),
            ),
            ("proc/self/status", b"Name:\tx\nCapEff:\t000001ffffffffff\n"),
            ("proc/self/limits", b"Max locked memory         8388608     8388608     bytes\n"),
            ("sys/kernel/sched_ext/state", b"enabled\n"),
            ("sys/kernel/sched_ext/root/ops", b"lavd_1.1\n"),
            ("sys/kernel/btf/vmlinux", &btf(["sched_ext_ops", "other"])),
            ("sys/kernel/debug/sched/features", b""),
            ("sys/kernel/realtime", b"1\n"),
            ("sys/devices/system/cpu/nohz_full", b"2-3\n"),
            ("sys/fs/cgroup/cgroup.subtree_control", b"cpuset cpu io\n"),
            ("sys/fs/cgroup/system.slice/a.service/cpu.max", b"50000 100000\n"),
            ("sys/fs/cgroup/system.slice/b.service/cpu.max", b"max 100000\n"),
        ]);
        let facts = root.facts();
        assert_eq!((facts.release.as_str(), facts.version()), ("6.18.44-arch1", Some((6, 18))));
        assert_eq!(facts.option("CONFIG_SCHED_CLASS_EXT"), Some("y"));
        assert_eq!(
            (facts.option("CONFIG_B"), facts.option("CONFIG_SCHED")),
            (Some("n"), Some("n"))
        );
        assert_eq!(facts.preflight.lacks, Lacks::default());
        assert_eq!(facts.preflight.ops.as_deref(), Some("lavd_1.1"));
        assert_eq!(facts.names, Some(BTreeSet::from(["sched_ext_ops"])));
        assert_eq!(
            (facts.locked_memory.as_deref(), facts.ext_server),
            (Some("8388608"), Some(false))
        );
        assert!(facts.preempt_rt && facts.cpu_controller);
        assert_eq!(facts.nohz_full, "2-3");
        assert_eq!(facts.limited_groups, ["system.slice/a.service"]);
    }

    #[test]
    fn a_machine_without_files_is_read_as_one_where_nothing_is_known() {
        let facts = Root::new(&[]).facts();
        assert_eq!((facts.version(), facts.option("CONFIG_A")), (None, None));
        assert!(facts.names.is_none() && facts.ext_server.is_none());
        assert_eq!(facts.preflight.lacks.wished, ["CAP_SYS_NICE"]);
        assert!(facts.preflight.state.is_none() && !facts.preempt_rt && facts.nohz_full.is_empty());
    }

    #[test]
    fn a_configuration_in_boot_counts_and_a_damaged_one_does_not() {
        let files: [(&str, &[u8]); 3] = [
            ("proc/sys/kernel/osrelease", b"7.0.1"),
            ("proc/config.gz", b"no gzip"),
            ("boot/config-7.0.1", b"CONFIG_A=m\n"),
        ];
        assert_eq!(Root::new(&files).facts().option("CONFIG_A"), Some("m"));
        assert_eq!(Root::new(&files[..2]).facts().option("CONFIG_A"), None);
        let escape: [(&str, &[u8]); 3] = [
            ("proc/sys/kernel/osrelease", b"x/../../b"),
            ("boot/config-x/y", b""),
            ("b", b"CONFIG_A=y"),
        ];
        assert_eq!(Root::new(&escape).facts().config, None);
    }
}
