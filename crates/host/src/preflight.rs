// SPDX-License-Identifier: GPL-2.0-only

//! Checks, before loading, whether this machine can run a sched_ext scheduler. Collecting facts and
//! judging them are separate functions, so that tests can judge invented machines.

use super::failure::Failure;
use std::fs;
use std::path::Path;

/// The kernel's directory of sched_ext.
const SCHED_EXT: &str = "sys/kernel/sched_ext";
/// The kernel's type information. The verifier checks every sched_ext program against it.
const KERNEL_BTF: &str = "sys/kernel/btf/vmlinux";
/// The PID namespace of this process.
const PID_NAMESPACE: &str = "proc/self/ns/pid";
/// That of the first one, in which the kernel numbers tasks. Kernel ABI: `PID_NS_INIT_INO` of
/// `linux/nsfs.h` (`PROC_PID_INIT_INO` before 6.18), the same on every kernel since 3.8.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
/// The content of `state` while no scheduler is loaded.
const UNLOADED: &str = "disabled";

/// A capability: its number (kernel ABI, `linux/capability.h`) and its name.
type Capability = (u32, &'static str);

/// To raise the limit of locked memory, and to lock more than that limit.
const SYS_RESOURCE: Capability = (24, "CAP_SYS_RESOURCE");
const IPC_LOCK: Capability = (14, "CAP_IPC_LOCK");
/// What loading a scheduler needs: SYS_ADMIN for struct_ops, BPF and PERFMON for programs,
/// SYS_RESOURCE and IPC_LOCK for locked memory.
const REQUIRED: [Capability; 5] =
    [(21, "CAP_SYS_ADMIN"), (39, "CAP_BPF"), (38, "CAP_PERFMON"), SYS_RESOURCE, IPC_LOCK];
/// Without it a start succeeds, but there are no real-time threads and nice values.
const WISHED: [Capability; 1] = [(23, "CAP_SYS_NICE")];

/// The capabilities that this process lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Those without which a start fails.
    pub required: Vec<&'static str>,
    /// Those without which it succeeds, with a loss.
    pub wished: Vec<&'static str>,
}

impl Lacks {
    /// Reads them below `root`; `/` is this machine. A process that drops capabilities reads them
    /// before.
    pub fn observe(root: &Path) -> Lacks {
        let mut required = missing_capabilities(root, &REQUIRED);
        // The scheduler raises the limit if it may. Below its limit a process needs no IPC_LOCK.
        let may_raise = !required.contains(&SYS_RESOURCE.1);
        let is_unlimited = || locked_memory(root).is_some_and(|[_, hard]| hard == "unlimited");
        if may_raise || is_unlimited() {
            required.retain(|name| *name != IPC_LOCK.1);
        }
        Lacks { required, wished: missing_capabilities(root, &WISHED) }
    }

    /// All of them.
    pub fn names(&self) -> Vec<&'static str> {
        [&self.required[..], &self.wished[..]].concat()
    }
}

/// The soft and the hard limit of locked memory, as `/proc` prints them: bytes, or `unlimited`.
pub fn locked_memory(root: &Path) -> Option<[String; 2]> {
    let limits = fs::read_to_string(root.join("proc/self/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    let mut words = line.split_whitespace().map(str::to_owned);
    Some([words.next()?, words.next()?])
}

/// What matters of a machine.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What this process lacks.
    pub lacks: Lacks,
    /// Content of `state`; `None` if the kernel has no sched_ext.
    pub state: Option<String>,
    /// Name of the loaded scheduler, if one is loaded.
    pub ops: Option<String>,
    /// Whether the kernel describes its types.
    pub has_btf: bool,
    /// Whether this process has a PID namespace of its own, as in most containers. The kernel's
    /// messages name tasks by numbers that are those of other tasks there.
    pub has_own_pids: bool,
    /// Kernel functions with a BTF prototype that no BPF program can match.
    pub malformed: Vec<String>,
}

/// Fails, with the reason, on a machine on which loading a scheduler would fail.
pub fn check() -> Result<(), Failure> {
    let root = Path::new("/");
    let facts = Facts::observe(root, Lacks::observe(root));
    facts.failures().into_iter().next().map_or(Ok(()), Err)
}

/// Fails if a scheduler is loaded.
pub fn expect_none_loaded() -> Result<(), Failure> {
    here("state").map_or(Ok(()), |state| no_other(&state, here("root/ops").as_deref()))
}

/// Whether the scheduler of this name is loaded, in whatever version.
pub fn is_running(name: &str) -> bool {
    loaded().is_some_and(|loaded| is_version_of(&loaded, name))
}

/// Whether a scheduler that is loaded is the one of this name, in whatever version.
pub fn is_version_of(loaded: &str, name: &str) -> bool {
    loaded.starts_with(name)
}

/// The name of the scheduler that is loaded, with its version.
pub fn loaded() -> Option<String> {
    here("root/ops")
}

/// Whether a scheduler is loaded. While its process only exits, it is not.
pub fn is_loaded() -> bool {
    here("state").is_some_and(|state| state != UNLOADED)
}

/// Whether a scheduler is in charge. It is not while it only loads or unloads. `None` if the kernel
/// does not say.
pub fn is_enabled() -> Option<bool> {
    here("state").map(|state| state == "enabled")
}

fn here(file: &str) -> Option<String> {
    read(Path::new("/"), file)
}

/// A file of sched_ext below `root`, without the end of the line.
fn read(root: &Path, file: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(SCHED_EXT).join(file)).ok()?;
    Some(text.trim().to_owned())
}

fn no_other(state: &str, ops: Option<&str>) -> Result<(), Failure> {
    match ops {
        _ if state == UNLOADED => Ok(()),
        Some(name) => Err(Failure::Occupied(name.into())),
        None => Err(Failure::Occupied(format!("(state: {state})"))),
    }
}

/// Those of `wanted` that are not in effect in this process.
fn missing_capabilities(root: &Path, wanted: &[Capability]) -> Vec<&'static str> {
    let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    let missing = wanted.iter().filter(|(bit, _)| effective >> bit & 1 == 0);
    missing.map(|(_, name)| *name).collect()
}

/// Whether this process is not in the first PID namespace. What cannot be read is taken for it.
fn has_own_pids(root: &Path) -> bool {
    let namespace = fs::read_link(root.join(PID_NAMESPACE));
    namespace.is_ok_and(|namespace| namespace != Path::new(FIRST_PID_NAMESPACE))
}

impl Facts {
    /// Reads the facts below `root`; `/` is this machine.
    pub fn observe(root: &Path, lacks: Lacks) -> Facts {
        let has_btf = root.join(KERNEL_BTF).exists();
        let state = read(root, "state");
        // The BTF reader panics if the file is missing, and a kernel without sched_ext has no
        // kfuncs. It knows no other root.
        let malformed = if has_btf && state.is_some() && root == Path::new("/") {
            scx_utils::compat::malformed_scx_kfuncs()
        } else {
            Vec::new()
        };
        Facts {
            lacks,
            state,
            ops: read(root, "root/ops"),
            has_btf,
            has_own_pids: has_own_pids(root),
            malformed,
        }
    }

    /// Whether the scheduler of this name is loaded, in whatever version.
    pub fn is_loaded(&self, name: &str) -> bool {
        self.ops.as_ref().is_some_and(|ops| is_version_of(ops, name))
    }

    /// Every reason for which loading a scheduler would fail. The first is that of a start.
    pub fn failures(&self) -> Vec<Failure> {
        let Some(state) = &self.state else { return vec![Failure::NoSchedExt] };
        let mut failures = Vec::new();
        if !self.lacks.required.is_empty() {
            failures.push(Failure::Unprivileged(self.lacks.names()));
        }
        failures.extend(no_other(state, self.ops.as_deref()).err());
        if !self.has_btf {
            failures.push(Failure::Refused(format!(
                "/{KERNEL_BTF} is missing; boot a kernel that was built with \
                 CONFIG_DEBUG_INFO_BTF=y"
            )));
        }
        if self.has_own_pids {
            failures.push(Failure::OwnPids);
        }
        if let Some(first) = self.malformed.first() {
            failures.push(Failure::Refused(format!(
                "its BTF describes {first} and {} other sched_ext functions wrongly, because it \
                 was built with a pahole older than 1.26; boot another kernel build",
                self.malformed.len() - 1
            )));
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        Facts {
            lacks: Lacks::default(),
            state: Some("disabled".into()),
            ops: None,
            has_btf: true,
            has_own_pids: false,
            malformed: Vec::new(),
        }
    }

    #[test]
    fn a_pid_namespace_is_told_by_its_number() {
        let root = std::env::temp_dir().join(format!("preflight-pids-{}", std::process::id()));
        let link = root.join(PID_NAMESPACE);
        assert!(!has_own_pids(&root), "what cannot be read");
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        for (target, is_own) in [(FIRST_PID_NAMESPACE, false), ("pid:[4026532177]", true)] {
            std::os::unix::fs::symlink(target, &link).unwrap();
            assert_eq!(has_own_pids(&root), is_own, "{target}");
            fs::remove_file(&link).unwrap();
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_good_machine_passes() {
        assert!(good().failures().is_empty());
    }

    #[test]
    fn each_missing_requirement_has_its_own_failure() {
        let refused = |change: fn(&mut Facts)| {
            let mut facts = good();
            change(&mut facts);
            facts.failures().remove(0)
        };
        assert!(matches!(refused(|f| f.state = None), Failure::NoSchedExt));
        let unprivileged = refused(|f| f.lacks.required = vec!["CAP_BPF", "CAP_IPC_LOCK"]);
        assert!(unprivileged.to_string().contains("it lacks CAP_BPF, CAP_IPC_LOCK:"));
        assert!(matches!(refused(|f| f.has_btf = false), Failure::Refused(_)));
        assert!(matches!(refused(|f| f.has_own_pids = true), Failure::OwnPids));
        let occupied = refused(|f| {
            f.state = Some("enabled".into());
            f.ops = Some("lavd_1.1".into());
        });
        assert!(occupied.to_string().contains("lavd_1.1"), "{occupied}");
        let malformed = refused(|f| f.malformed = vec!["scx_bpf_x".into(), "y".into()]);
        assert!(malformed.to_string().contains("scx_bpf_x and 1 other"), "{malformed}");
    }

    #[test]
    fn a_failure_names_what_this_process_lacks_and_nothing_else() {
        let wished_too = Facts {
            lacks: Lacks { required: vec!["CAP_PERFMON"], wished: vec!["CAP_SYS_NICE"] },
            ..good()
        };
        let told = wished_too.failures().remove(0).to_string();
        assert!(told.contains("it lacks CAP_PERFMON, CAP_SYS_NICE:"), "{told}");
        assert!(!told.contains("CAP_BPF"), "{told}");
        let wished_only =
            Facts { lacks: Lacks { required: Vec::new(), wished: vec!["CAP_SYS_NICE"] }, ..good() };
        assert!(wished_only.failures().is_empty());
    }

    #[test]
    fn ipc_lock_is_missed_only_where_the_limit_of_locked_memory_stays() {
        let root = std::env::temp_dir().join(format!("preflight-lock-{}", std::process::id()));
        let folder = root.join("proc/self");
        fs::create_dir_all(&folder).unwrap();
        let lacks = |without: &[Capability], hard: &str| {
            let gone = without.iter().fold(0_u64, |gone, (bit, _)| gone | 1 << bit);
            fs::write(folder.join("status"), format!("CapEff:\t{:016x}\n", !gone)).unwrap();
            let limits = format!("Max locked memory         8388608   {hard}   bytes\n");
            fs::write(folder.join("limits"), limits).unwrap();
            Lacks::observe(&root).names()
        };
        assert!(lacks(&[], "8388608").is_empty());
        assert!(lacks(&[IPC_LOCK], "8388608").is_empty(), "the scheduler raises the limit");
        let both = [IPC_LOCK, SYS_RESOURCE];
        assert_eq!(lacks(&both, "8388608"), ["CAP_SYS_RESOURCE", "CAP_IPC_LOCK"]);
        assert_eq!(lacks(&both, "unlimited"), ["CAP_SYS_RESOURCE"]);
        assert_eq!(lacks(&WISHED, "8388608"), ["CAP_SYS_NICE"]);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn every_failure_is_reported_in_the_order_of_a_start() {
        let facts = Facts {
            lacks: Lacks { required: vec!["CAP_BPF"], wished: Vec::new() },
            ops: Some("lavd".into()),
            state: Some("enabled".into()),
            has_btf: false,
            ..good()
        };
        let codes: Vec<u8> = facts.failures().iter().map(Failure::code).collect();
        assert_eq!(codes, [3, 5, 6]);
        assert!(!facts.is_loaded("pandemonium_user"));
        let ours = Facts { ops: Some("pandemonium_user_0.2".into()), ..facts };
        assert!(ours.is_loaded("pandemonium_user"));
    }
}
