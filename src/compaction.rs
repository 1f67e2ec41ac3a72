// SPDX-License-Identifier: GPL-2.0-only

//! `vm.compact_unevictable_allowed`: whether the kernel may move locked memory, which delays the
//! worker. `scx_rustland_core` sets it to 0, and puts it back at its end by opening the file, which
//! a worker that schedules may not do any more. So the worker opens the file before.
//!
//! The supervisor puts the setting back too, if the worker was killed; the worker does it in case
//! that the supervisor was.

use super::kernel_setting::Meanwhile;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;

/// The kernel's setting, and its value while a worker schedules.
pub const OFF: Meanwhile =
    Meanwhile { path: "/proc/sys/vm/compact_unevictable_allowed", value: "0" };
/// It is a small number.
const LENGTH_MAX: u64 = 16;

/// The setting as it was, and its opened file.
pub struct Compaction {
    file: File,
    before: String,
}

impl Compaction {
    /// Reads the setting, before it is changed. `None` without the permission to change it.
    pub fn open() -> Option<Compaction> {
        let mut file = OpenOptions::new().read(true).write(true).open(OFF.path).ok()?;
        let mut before = String::new();
        Read::take(&mut file, LENGTH_MAX).read_to_string(&mut before).ok()?;
        Some(Compaction { file, before })
    }

    /// Puts it back.
    pub fn restore(&self) {
        // A failure costs some latency of other programs: the kernel moves no locked memory.
        let _ = self.file.write_at(self.before.as_bytes(), 0);
    }
}
