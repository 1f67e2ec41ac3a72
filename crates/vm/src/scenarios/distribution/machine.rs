// SPDX-License-Identifier: GPL-2.0-only

//! The machine as its user sees it: a shell, units, files.

pub use crate::guest::wait::wait_for;
use crate::guest::{Guest, report};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

pub const UNIT: &str = "scx_pandemonium_user.service";
/// The list of files before the installation, in memory.
const FILES_BEFORE: &str = "/run/vm/files-before";
const REBOOT_LIMIT: Duration = Duration::from_secs(120);
/// What the distribution itself writes meanwhile: logs, caches, states of its own services, and
/// what dpkg, man-db and the programs for users keep.
const OF_THE_SYSTEM: [&str; 12] = [
    "/etc/.pwd.lock",
    "/etc/subgid-",
    "/etc/subuid-",
    "/root",
    "/var/backups/",
    "/var/cache/",
    "/var/lib/apt/",
    "/var/lib/dpkg/",
    "/var/lib/sudo/",
    "/var/lib/systemd/",
    "/var/log/",
    "/var/tmp/",
];

/// What a command printed, and how it ended.
pub struct Ran {
    pub code: Option<i32>,
    pub output: String,
}

/// Runs a line of shell to its end; both of its streams are read as one.
pub fn run(line: &str) -> Result<Ran> {
    let mut shell = Command::new("/bin/bash");
    shell.args(["-o", "pipefail", "-c", &format!("exec 2>&1; {line}")]).stdin(Stdio::null());
    let output = shell.output().with_context(|| format!("starting `{line}`"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(Ran { code: output.status.code(), output: text })
}

/// The same, and it must succeed. Returns what it printed.
pub fn shell(line: &str) -> Result<String> {
    let Ran { code, output } = run(line)?;
    ensure!(code == Some(0), "`{line}` ended with {code:?}: {}", tail(&output));
    Ok(output)
}

/// The last lines of a long text.
pub fn tail(text: &str) -> String {
    const LINES: usize = 12;
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join(" | ")
}

/// A property of a unit as systemd shows it.
pub fn property(unit: &str, name: &str) -> Result<String> {
    Ok(shell(&format!("systemctl show --property={name} --value {unit}"))?.trim().to_owned())
}

/// The main process of our unit.
pub fn main_pid() -> Result<u32> {
    let pid = property(UNIT, "MainPID")?;
    pid.parse().with_context(|| format!("the main process is {pid:?}"))
}

/// The process that schedules: the child of the main process.
pub fn worker_pid() -> Result<u32> {
    let main = main_pid()?;
    let children = shell(&format!("pgrep --parent {main}"))?;
    let first = children.lines().next().with_context(|| format!("{main} has no child"))?;
    first.trim().parse().with_context(|| format!("reading {children:?}"))
}

/// The boot is over. Notes the files that there are before anything is installed.
pub fn is_up(_: &Guest) -> Result<()> {
    // A unit of Debian's own that lacks a module of the kernel makes the machine "degraded".
    let state = run("systemctl is-system-running --wait")?.output;
    let failed = shell("systemctl list-units --failed --plain --no-legend")?;
    let about = shell("cat /etc/debian_version; systemctl --version | head -1; uname -r")?;
    report::note(format!("Debian {}: {}", about.trim().replace('\n', ", "), state.trim()));
    for line in failed.lines() {
        report::note(format!("failed by itself: {}", line.trim()));
    }
    let comm = fs::read_to_string("/proc/1/comm").context("looking at process 1")?;
    ensure!(comm.trim() == "systemd", "process 1 is {comm:?}");
    let files: Vec<String> = files()?.into_iter().collect();
    fs::write(FILES_BEFORE, files.join("\n")).context("noting the files")
}

/// Starts the machine anew. systemd ends this process meanwhile.
pub fn reboot() -> Result<()> {
    fs::copy(FILES_BEFORE, "/var/tmp/vm-files-before").context("keeping the list of files")?;
    shell("systemctl --no-block reboot")?;
    sleep(REBOOT_LIMIT);
    bail!("the machine did not reboot in {} s", REBOOT_LIMIT.as_secs())
}

/// The files that were not there before the installation, and those that are not there any more,
/// without those of the system itself.
pub fn changed_files() -> Result<(Vec<String>, Vec<String>)> {
    let before = fs::read_to_string("/var/tmp/vm-files-before").context("the list of files")?;
    let before: BTreeSet<String> = before.lines().map(str::to_owned).collect();
    let now = files()?;
    let without = |all: &BTreeSet<String>, others| all.difference(others).cloned().collect();
    Ok((without(&now, &before), without(&before, &now)))
}

/// Every file and folder of the disk that is not the system's own, and those in `/run` and `/tmp`
/// that bear our name.
fn files() -> Result<BTreeSet<String>> {
    let mut files = BTreeSet::new();
    let disk = fs::metadata("/").context("looking at the disk")?.dev();
    collect(Path::new("/"), disk, &mut files)?;
    let ours =
        shell("find /run /tmp /dev/shm /sys/fs/bpf -name '*pandemonium*' -o -path '/run/scx*'")?;
    files.extend(ours.lines().filter(|line| !line.starts_with("/run/vm")).map(str::to_owned));
    Ok(files)
}

fn collect(folder: &Path, disk: u64, files: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry.context("listing a folder")?.path();
        let name = path.to_string_lossy().into_owned();
        if OF_THE_SYSTEM.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        // A file may vanish meanwhile.
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        if about.dev() == disk {
            files.insert(name);
            if about.is_dir() {
                collect(&path, disk, files)?;
            }
        }
    }
    Ok(())
}
