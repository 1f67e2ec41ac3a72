// SPDX-License-Identifier: GPL-2.0-only

//! Hands the machine over from the initramfs to the distribution on the disk, whose process 1 is
//! systemd, and has systemd start the agent.
//!
//! What the scenario needs lies in `/run`, which is memory: on the disk there is nothing that
//! Debian has not put there.

use super::boot;
use anyhow::{Context, Result, bail, ensure};
use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Folder of what the scenario brings along, in the initramfs.
pub const BROUGHT_IN_INITRAMFS: &str = "/brought";
/// Where it is when the distribution runs.
pub const BROUGHT: &str = "/run/vm";
/// The first argument with which systemd starts the agent.
pub const AGENT: &str = "agent";
const DISK: &str = "/dev/nvme0n1";
const NEW_ROOT: &str = "/new";
/// What moves to the new root. systemd finds them mounted.
const MOVED: [&str; 4] = ["/dev", "/proc", "/sys", "/run"];
/// The driver of the disk probes in the background.
const DISK_LIMIT: Duration = Duration::from_secs(20);
const GLANCE: Duration = Duration::from_millis(20);
/// The unit of the agent. Everything of the boot is up, or has failed, before it begins.
const UNIT: &str = "[Unit]\nDescription=Agent of the virtual machine\n\
    [Service]\nType=exec\nExecStart=/run/vm/agent agent\nStandardOutput=journal\n\
    Environment=HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PAGER=cat\n";

/// Changes to the root on the disk and becomes its process 1.
pub fn enter() -> Result<Infallible> {
    let start = Instant::now();
    while !Path::new(DISK).exists() {
        let waits = start.elapsed() < DISK_LIMIT;
        ensure!(waits, "no disk {DISK}: `pandemonium_vm distribution` adds one");
        std::thread::sleep(GLANCE);
    }
    fs::create_dir_all(NEW_ROOT).context("creating the new root")?;
    boot::mount(DISK, NEW_ROOT, "ext4", 0)?;
    prepare_run()?;
    for folder in MOVED {
        boot::mount(folder, &format!("{NEW_ROOT}{folder}"), "", libc::MS_MOVE)?;
    }
    std::env::set_current_dir(NEW_ROOT).context("entering the new root")?;
    boot::mount(".", "/", "", libc::MS_MOVE)?;
    std::os::unix::fs::chroot(".").context("making the disk the root")?;
    std::env::set_current_dir("/").context("entering the root")?;
    let error = Command::new("/sbin/init").env_clear().exec();
    bail!("starting the distribution's process 1: {error}")
}

/// Copies what was brought along, and writes the agent's unit where systemd looks for units that
/// end with the boot.
fn prepare_run() -> Result<()> {
    let units = "/run/systemd/system/multi-user.target.wants";
    for folder in [BROUGHT, units] {
        fs::create_dir_all(folder).with_context(|| format!("creating {folder}"))?;
    }
    for entry in fs::read_dir(BROUGHT_IN_INITRAMFS).context("reading what was brought")?.flatten() {
        let copy = Path::new(BROUGHT).join(entry.file_name());
        fs::copy(entry.path(), &copy).with_context(|| format!("writing {}", copy.display()))?;
    }
    fs::copy("/init", format!("{BROUGHT}/agent")).context("copying the agent")?;
    fs::write("/run/systemd/system/vm-agent.service", UNIT).context("writing the agent's unit")?;
    symlink("../vm-agent.service", format!("{units}/vm-agent.service"))
        .context("enabling the agent's unit")
}
