// SPDX-License-Identifier: GPL-2.0-only

//! A CPU of the host for a machine in exact mode.
//!
//! Such a machine is two threads that take turns: the virtual CPUs, and QEMU's timers. On one CPU a
//! turn is a context switch; on two, each waits for the other's CPU to wake up. Where the host is a
//! virtual machine itself, a second of an idle guest took 21 s that way, and takes 2 s on one CPU.

use super::cache::{Cache, Lock};
use anyhow::Result;
use std::mem::{MaybeUninit, size_of};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Taken until the value is dropped.
pub struct Seat {
    cpu: usize,
    _lock: Lock,
}

impl Seat {
    /// The first allowed CPU that no other run of this user has taken. There is none if more
    /// machines run than there are CPUs: the host's scheduler decides for those.
    pub fn take(cache: &Cache) -> Result<Option<Seat>> {
        for cpu in allowed() {
            if let Some(lock) = cache.try_lock(&format!("cpu-{cpu}"))? {
                return Ok(Some(Seat { cpu, _lock: lock }));
            }
        }
        Ok(None)
    }

    /// The command's threads will run there alone.
    pub fn give(&self, command: &mut Command) {
        let only = set_of(self.cpu);
        // SAFETY: between fork and exec, one system call on a value of its own. Should the CPU have
        // gone offline, the machine runs anywhere, only slower.
        unsafe {
            command.pre_exec(move || {
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &only);
                Ok(())
            });
        }
    }
}

fn allowed() -> Vec<usize> {
    let mut set = no_cpus();
    // SAFETY: the size is that of the set.
    let answer = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    // It fails on machines with more CPUs than the set holds: nobody needs a seat there.
    let cpus = if answer == 0 { 0..libc::CPU_SETSIZE as usize } else { 0..0 };
    // SAFETY: the numbers are within the set.
    cpus.filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

fn set_of(cpu: usize) -> libc::cpu_set_t {
    let mut set = no_cpus();
    // SAFETY: only numbers within a set come here.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    set
}

fn no_cpus() -> libc::cpu_set_t {
    // SAFETY: a set is bits, and none of them set is a value of it.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
