// SPDX-License-Identifier: GPL-2.0-only

//! A setting of the kernel that is changed for a while, and put back.
//!
//! It is put back only while it still has the value of that while: another value is that of an
//! administrator, or of another program, which wins.

use super::mutex::lock;
use std::sync::Mutex;
use std::{fs, io};

/// The file of a setting, and its value for that while.
#[derive(Clone, Copy)]
pub struct Meanwhile {
    pub path: &'static str,
    pub value: &'static str,
}

impl Meanwhile {
    /// Gives the setting this value.
    pub fn apply(&self) -> io::Result<()> {
        fs::write(self.path, self.value)
    }
}

/// A setting with its value before the change, where that could be read.
pub struct KernelSetting {
    meanwhile: Meanwhile,
    before: Option<String>,
}

impl KernelSetting {
    /// The setting as it is now, before it becomes `meanwhile`.
    pub fn read(meanwhile: Meanwhile) -> KernelSetting {
        KernelSetting::known(meanwhile, fs::read_to_string(meanwhile.path).ok())
    }

    /// The setting with its value from before an earlier program changed it.
    pub fn known(meanwhile: Meanwhile, before: Option<String>) -> KernelSetting {
        KernelSetting { meanwhile, before }
    }

    /// Changes it, if it has the value `from`. `None` if it has another one, or without the
    /// privilege: then there is nothing to put back.
    pub fn change(self, from: &str) -> Option<KernelSetting> {
        let is_from = self.before.as_deref().is_some_and(|before| before.trim() == from);
        (is_from && self.meanwhile.apply().is_ok()).then_some(self)
    }

    /// Its value before the change, where that could be read.
    pub fn before(&self) -> Option<&str> {
        self.before.as_deref()
    }

    /// Puts it back, if it has changed and nothing else has changed it since.
    pub fn restore(&self) {
        let Some(before) = &self.before else { return };
        let Meanwhile { path, value } = self.meanwhile;
        let now = fs::read_to_string(path).unwrap_or_default();
        if now.trim() == value && before.trim() != value {
            // A failure is harmless: these settings only cost some latency.
            let _ = fs::write(path, before);
        }
    }
}

/// A setting that several threads change: it is changed again only while it is needed.
pub struct SharedSetting {
    setting: KernelSetting,
    is_needed: Mutex<bool>,
}

impl SharedSetting {
    /// Not needed yet.
    pub fn new(setting: KernelSetting) -> SharedSetting {
        SharedSetting { setting, is_needed: Mutex::new(false) }
    }

    /// Its value before the change, where that could be read.
    pub fn before(&self) -> Option<&str> {
        self.setting.before()
    }

    /// From now on it is needed. A worker changes it itself.
    pub fn need(&self) {
        *lock(&self.is_needed) = true;
    }

    /// Changes it again, if it is needed.
    pub fn apply_again(&self) {
        if *lock(&self.is_needed) {
            // A failure costs some latency.
            let _ = self.setting.meanwhile.apply();
        }
    }

    /// It is not needed any more: puts it back.
    pub fn restore(&self) {
        let mut is_needed = lock(&self.is_needed);
        *is_needed = false;
        self.setting.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procdb_file::tests::Scratch;

    /// A file in place of the kernel's, with this value, which is to be 1 meanwhile.
    fn file(scratch: &Scratch, value: &str) -> Meanwhile {
        let path = scratch.path().with_file_name("setting");
        fs::write(&path, value).unwrap();
        Meanwhile { path: path.to_str().unwrap().to_owned().leak(), value: "1" }
    }

    fn value(of: Meanwhile) -> String {
        fs::read_to_string(of.path).unwrap().trim().to_owned()
    }

    #[test]
    fn a_setting_is_changed_once_and_put_back() {
        let scratch = Scratch::new();
        let one = file(&scratch, "0\n");
        let outer = KernelSetting::read(one).change("0").unwrap();
        assert_eq!(value(one), "1");
        assert!(KernelSetting::read(one).change("0").is_none(), "it is changed already");
        outer.restore();
        assert_eq!(value(one), "0");
    }

    #[test]
    fn what_another_program_has_set_stays() {
        let scratch = Scratch::new();
        let one = file(&scratch, "2\n");
        assert!(KernelSetting::read(one).change("0").is_none());
        assert_eq!(value(one), "2", "a count of another program");
        let changed = KernelSetting::known(one, Some("0\n".into()));
        changed.restore();
        assert_eq!(value(one), "2", "set after the change");
        let set_before = KernelSetting::known(file(&scratch, "1\n"), Some("1\n".into()));
        set_before.restore();
        assert_eq!(value(one), "1");
    }

    #[test]
    fn a_setting_that_is_not_needed_any_more_stays_put_back() {
        let scratch = Scratch::new();
        let one = file(&scratch, "0\n");
        let shared = SharedSetting::new(KernelSetting::read(one));
        shared.apply_again();
        assert_eq!(value(one), "0", "not needed yet");
        shared.need();
        shared.apply_again();
        assert_eq!(value(one), "1");
        shared.restore();
        shared.apply_again();
        assert_eq!(value(one), "0");
    }

    #[test]
    fn a_setting_that_the_kernel_does_not_have_is_left_out() {
        let missing = KernelSetting::read(Meanwhile { path: "/nowhere/setting", value: "1" });
        assert_eq!(missing.before(), None);
        missing.restore();
        assert!(missing.change("0").is_none());
    }
}
