// SPDX-License-Identifier: GPL-2.0-only

//! Finds a QEMU that shares virtual time fairly, and builds its command line.

use super::cache::Cache;
use super::programs::{self, Program};
use super::{command, progress};
use crate::protocol::Mode;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// From this version on the virtual CPUs share one budget of instructions. Before it, one CPU could
/// starve another for tens of milliseconds.
const VERSION_MIN: (u32, u32) = (8, 1);
const NAME: &str = "qemu-system-x86_64";
/// All that the emulator can do except ERMS and FSRM. With these Linux clears and copies memory by
/// one instruction, which the emulator counts once for each byte.
const CPU: &str = "max,-erms,-fsrm";

/// The emulator's usual vendor has no CPUs with several threads: they would share no cache.
const WITH_THREADS: &str = ",vendor=GenuineIntel";

pub enum Qemu {
    /// Installed on this machine.
    Own(PathBuf),
    /// Unpacked from Debian packages.
    Private(Program),
}

/// A virtual machine to start.
pub struct Machine<'a> {
    pub kernel: &'a Path,
    pub initramfs: &'a Path,
    pub cpus: u32,
    /// CPUs that share a core.
    pub threads: u32,
    pub memory_mib: u32,
    pub mode: Mode,
    /// That an instruction takes in exact mode: a power of two.
    pub instruction_ns: u32,
    /// Kernel arguments beyond those every boot needs.
    pub arguments: &'a str,
    /// Receives what the kernel prints.
    pub console: &'a Path,
    /// A disk of a kind for which the kernels have a built-in driver. What the guest writes to it
    /// stays over a reboot, which only a machine with a disk survives, and is gone afterwards.
    pub disk: Option<&'a Path>,
    /// Another disk of that kind, to swap to.
    pub swap: Option<&'a Path>,
}

impl Qemu {
    pub fn find(cache: &Cache) -> Result<Qemu> {
        if let Some(path) = command::find(NAME) {
            let answer = command::output(Command::new(&path).arg("--version")).unwrap_or_default();
            match parse_version(&answer) {
                Some(version) if version >= VERSION_MIN => return Ok(Qemu::Own(path)),
                _ if cache.existing(programs::QEMU.item).is_none() => progress::line(&format!(
                    "{} is older than {}.{}: a newer one is kept in the cache",
                    path.display(),
                    VERSION_MIN.0,
                    VERSION_MIN.1
                )),
                _ => {}
            }
        }
        Ok(Qemu::Private(programs::QEMU.get(cache)?))
    }

    /// The command that boots a machine: messages appear on its standard output, the console in a
    /// file.
    pub fn boot(&self, machine: &Machine) -> Command {
        let mut command = self.command();
        match machine.mode {
            Mode::Fast => command.args(["-accel", "tcg,thread=multi"]),
            Mode::Exact => {
                let shift = machine.instruction_ns.ilog2();
                let count = format!("shift={shift},sleep=off");
                let clock = ["-icount", &count, "-rtc", "base=utc,clock=vm"];
                // guest/metronome.rs uses up to three timers beside the two that Linux may use.
                let timers = ["-global", "hpet.timers=5"];
                command.args(["-accel", "tcg,thread=single"]).args(clock).args(timers)
            }
        };
        let smp = format!("{},sockets=1,threads={}", machine.cpus, machine.threads);
        let vendor = if machine.threads > 1 { WITH_THREADS } else { "" };
        command.args(["-cpu", &format!("{CPU}{vendor}"), "-smp", &smp]);
        command.args(["-m", &format!("{}M", machine.memory_mib)]);
        command.args(["-no-user-config", "-nodefaults", "-display", "none"]);
        match machine.disk {
            Some(disk) => {
                let drive = prefixed("if=none,id=disk,format=raw,snapshot=on,file=", disk);
                command.arg("-drive").arg(drive).args(["-device", "nvme,serial=disk,drive=disk"]);
            }
            // A kernel that panics reboots. With a disk the scenario notices it.
            None => drop(command.arg("-no-reboot")),
        }
        if let Some(swap) = machine.swap {
            let drive = prefixed("if=none,id=swap,format=raw,file=", swap);
            command.arg("-drive").arg(drive).args(["-device", "nvme,serial=swap,drive=swap"]);
        }
        command.arg("-serial").arg(prefixed("file:", machine.console)).args(["-serial", "stdio"]);
        command.arg("-kernel").arg(machine.kernel).arg("-initrd").arg(machine.initramfs);
        command.arg("-append").arg(kernel_arguments(machine));
        command
    }

    fn command(&self) -> Command {
        match self {
            Qemu::Own(path) => Command::new(path),
            Qemu::Private(program) => {
                let mut command = program.command();
                for folder in ["usr/share/qemu", "usr/share/seabios"] {
                    command.arg("-L").arg(program.root.join(folder));
                }
                command
            }
        }
    }
}

fn kernel_arguments(machine: &Machine) -> String {
    // Warnings must reach the console, where they fail a scenario. Boot messages must not: they
    // take a second. Without `notests` the kernel verifies its cryptography for some seconds after
    // the boot, beside what is measured.
    let always = "console=ttyS0 panic=-1 loglevel=5 cryptomgr.notests=1 rdinit=/init";
    let metronome = match machine.mode {
        Mode::Fast => "",
        // Lets guest/metronome.rs map the HPET, which the kernel has claimed.
        Mode::Exact => " iomem=relaxed",
    };
    format!("{always}{metronome} {}", machine.arguments)
}

fn prefixed(prefix: &str, path: &Path) -> std::ffi::OsString {
    let mut text = std::ffi::OsString::from(prefix);
    text.push(path);
    text
}

/// "QEMU emulator version 10.0.13 (…)"
fn parse_version(answer: &str) -> Option<(u32, u32)> {
    let number = answer.split("version ").nth(1)?.split([' ', '\n', '(']).next()?;
    let mut parts = number.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
