// SPDX-License-Identifier: GPL-2.0-only

//! A setting of the kernel that is changed for a while, and put back.

use std::fs;

/// The file of a setting, and the value before the change, where that could be read.
pub struct KernelSetting {
    path: &'static str,
    before: Option<String>,
}

impl KernelSetting {
    /// The setting as it is now.
    pub fn read(path: &'static str) -> KernelSetting {
        KernelSetting::known(path, fs::read_to_string(path).ok())
    }

    /// The setting with its value from before an earlier program changed it.
    pub fn known(path: &'static str, before: Option<String>) -> KernelSetting {
        KernelSetting { path, before }
    }

    /// Changes it. Without the privilege it stays as it is, and is not put back either.
    pub fn change(mut self, value: &str) -> KernelSetting {
        self.before = self.before.filter(|_| fs::write(self.path, value).is_ok());
        self
    }

    /// Its value before the change, where that could be read.
    pub fn before(&self) -> Option<&str> {
        self.before.as_deref()
    }

    /// Puts it back, if it differs.
    pub fn restore(&self) {
        let Some(before) = &self.before else { return };
        if fs::read_to_string(self.path).is_ok_and(|now| now != *before) {
            // A failure is harmless: these settings only cost some latency.
            let _ = fs::write(self.path, before);
        }
    }
}
