// SPDX-License-Identifier: GPL-2.0-only

//! A CPU of the host for a machine in exact mode.
//!
//! Such a machine is two threads that take turns: the virtual CPUs, and QEMU's timers. On one CPU a
//! turn is a context switch; on two, each waits for the other's CPU to wake up. Where the host is a
//! virtual machine itself, a second of an idle guest took 21 s that way, and takes 2 s on one CPU.

use super::cache::{Cache, Lock};
use crate::guest::work;
use anyhow::Result;
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
        for cpu in work::allowed_cpus() {
            if let Some(lock) = cache.try_lock(&format!("cpu-{cpu}"))? {
                return Ok(Some(Seat { cpu, _lock: lock }));
            }
        }
        Ok(None)
    }

    /// The command's threads will run there alone.
    pub fn give(&self, command: &mut Command) {
        let cpu = self.cpu;
        // SAFETY: between fork and exec, one system call on a value of its own. Should the CPU have
        // gone offline, the machine runs anywhere, only slower.
        unsafe {
            command.pre_exec(move || {
                work::stay_on(cpu);
                Ok(())
            });
        }
    }
}
