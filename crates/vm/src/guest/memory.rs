// SPDX-License-Identifier: GPL-2.0-only

//! How much memory the scheduler's two processes hold.

use super::report;
use super::scheduler::Scheduler;
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::os::fd::AsRawFd;

/// The kernel's type information.
const TYPES: &str = "/sys/kernel/btf/vmlinux";
/// Most memory of the worker while there are less than 4,000 tasks, in KiB.
pub const RESIDENT_MAX: u64 = 48 << 10;
/// Most memory of the supervisor, in KiB. Its program, its stacks and what it shares with the
/// worker take some 10 MiB. Its allocator touches six places of its arena at once: where the kernel
/// gives huge pages to every process, each of these takes 2 MiB.
const SUPERVISOR_MAX: u64 = 24 << 10;

/// What may come and go, in KiB.
const SLACK: u64 = 64;

/// The memory of one process, in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Resident: VmRSS of /proc/PID/status.
    pub resident: u64,
    /// Locked: VmLck of the same.
    pub locked: u64,
    /// The most that was resident: VmHWM of the same.
    pub most: u64,
}

impl Memory {
    /// That of a process now.
    pub fn of(pid: libc::pid_t) -> Result<Memory> {
        let path = format!("/proc/{pid}/status");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().strip_suffix(" kB")?.trim().parse().ok()
        };
        let number = |name| number(name).with_context(|| format!("{path} has no {name}"));
        let (resident, locked) = (number("VmRSS:")?, number("VmLck:")?);
        Ok(Memory { resident, locked, most: number("VmHWM:")? })
    }

    /// That of the worker, which is noted with the supervisor's.
    pub fn of_scheduler(scheduler: &Scheduler) -> Result<Memory> {
        let (worker, supervisor) = (Memory::of(scheduler.worker()?)?, Memory::of(scheduler.pid())?);
        report::note(format!(
            "memory: the worker has {} KiB, {} of them locked, and had {} at most; the supervisor \
             has {}",
            worker.resident, worker.locked, worker.most, supervisor.resident
        ));
        Ok(worker)
    }

    /// Nothing has been added since. What is locked for further tasks is added as these appear.
    pub fn expect_flat_since(&self, before: &Memory) -> Result<()> {
        let grown = |now: u64, before: u64| now > before + SLACK;
        ensure!(
            !grown(self.resident, before.resident) && !grown(self.locked, before.locked),
            "more than {SLACK} KiB were added: {before:?}, then {self:?}"
        );
        Ok(())
    }

    /// At most so many KiB are resident, and locked, besides the copy of the kernel's types that
    /// libbpf may need.
    pub fn expect_at_most(&self, limit: u64) -> Result<()> {
        let limit = limit + copied_types()?;
        ensure!(
            self.resident <= limit && self.locked <= limit,
            "more than {limit} KiB are resident or locked: {self:?}"
        );
        Ok(())
    }
}

/// Expects that the supervisor holds no more than it needs, besides what is swapped out. That is
/// without a recording, and while no reader asks for the list of tasks.
pub fn expect_small_supervisor(scheduler: &Scheduler) -> Result<()> {
    let (now, most) = (Memory::of(scheduler.pid())?, SUPERVISOR_MAX + copied_types()?);
    ensure!(now.resident <= most, "the supervisor holds more than {most} KiB: {now:?}");
    Ok(())
}

/// Locks this process's memory as it is, and each further page when it is first used. Its forks
/// inherit no locks.
pub fn lock_own() -> Result<()> {
    // With all pages at once it could hold more than any other process, and the kernel would end it
    // first when memory runs out.
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: a plain system call.
    let done = unsafe { libc::mlockall(flags) } == 0;
    ensure!(done, "locking memory: {}", std::io::Error::last_os_error());
    Ok(())
}

/// How much a copy of the kernel's types takes, in KiB. Since Linux 6.16 they can be mapped, and
/// libbpf copies nothing.
fn copied_types() -> Result<u64> {
    let file = File::open(TYPES).with_context(|| format!("opening {TYPES}"))?;
    let size = file.metadata().with_context(|| format!("asking for the size of {TYPES}"))?.len();
    // SAFETY: a mapping of its own, which is not read.
    let is_mapped = unsafe {
        let (length, any) = (size as usize, std::ptr::null_mut());
        let (read, own) = (libc::PROT_READ, libc::MAP_PRIVATE);
        let at = libc::mmap(any, length, read, own, file.as_raw_fd(), 0);
        at != libc::MAP_FAILED && libc::munmap(at, length) == 0
    };
    Ok(if is_mapped { 0 } else { size.div_ceil(1 << 10) })
}
