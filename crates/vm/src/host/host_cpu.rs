// SPDX-License-Identifier: GPL-2.0-only

//! Reserves a CPU of the host for a machine in exact mode.
//!
//! Such a machine has two threads that run in turn: one for the virtual CPUs, one for QEMU's
//! timers. On one CPU a turn is a context switch; on two CPUs each thread waits for the other CPU
//! to wake up. On a host that is a virtual machine itself, a second of an idle guest took 21 s on
//! two CPUs, and takes 2 s on one.

use super::cache::{Cache, Lock};
use crate::guest::work;
use anyhow::Result;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A CPU of the host, reserved as long as the value.
pub struct HostCpu {
    number: usize,
    _lock: Lock,
}

impl HostCpu {
    /// Reserves the first allowed CPU that no other run of this user has reserved. Returns `None`
    /// if there are more machines than CPUs: the host's scheduler places those.
    pub fn reserve(cache: &Cache) -> Result<Option<HostCpu>> {
        for number in work::allowed_cpus() {
            if let Some(lock) = cache.try_lock(&format!("cpu-{number}"))? {
                return Ok(Some(HostCpu { number, _lock: lock }));
            }
        }
        Ok(None)
    }

    /// Binds all threads of the command to this CPU.
    pub fn bind(&self, command: &mut Command) {
        let cpu = self.number;
        // SAFETY: between fork and exec, one system call on a value of its own. If the CPU has gone
        // offline, the machine runs anywhere, only slower.
        unsafe {
            command.pre_exec(move || {
                work::stay_on(cpu);
                Ok(())
            });
        }
    }
}
