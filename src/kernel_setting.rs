// SPDX-License-Identifier: GPL-2.0-only

//! A setting of the kernel that is changed for a while, and put back.
//!
//! It is put back only while it still has the value of that while: another value is that of an
//! administrator, or of another program, which wins.

use std::fs;

/// The file of a setting, its value meanwhile, and the one before, where that could be read.
pub struct KernelSetting {
    path: &'static str,
    meanwhile: &'static str,
    before: Option<String>,
}

impl KernelSetting {
    /// The setting as it is now, before it becomes `meanwhile`.
    pub fn read(path: &'static str, meanwhile: &'static str) -> KernelSetting {
        KernelSetting::known(path, meanwhile, fs::read_to_string(path).ok())
    }

    /// The setting with its value from before an earlier program changed it.
    pub fn known(
        path: &'static str,
        meanwhile: &'static str,
        before: Option<String>,
    ) -> KernelSetting {
        KernelSetting { path, meanwhile, before }
    }

    /// Changes it, if it has the value `from`. `None` if it has another one, or without the
    /// privilege: then there is nothing to put back.
    pub fn change(self, from: &str) -> Option<KernelSetting> {
        let is_from = self.before.as_deref().is_some_and(|before| before.trim() == from);
        (is_from && fs::write(self.path, self.meanwhile).is_ok()).then_some(self)
    }

    /// Its value before the change, where that could be read.
    pub fn before(&self) -> Option<&str> {
        self.before.as_deref()
    }

    /// Puts it back, if it has changed and nothing else has changed it since.
    pub fn restore(&self) {
        let Some(before) = &self.before else { return };
        let now = fs::read_to_string(self.path).unwrap_or_default();
        if now.trim() == self.meanwhile && before.trim() != self.meanwhile {
            // A failure is harmless: these settings only cost some latency.
            let _ = fs::write(self.path, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procdb_file::tests::Scratch;

    /// A file in place of the kernel's, with this value.
    fn file(scratch: &Scratch, value: &str) -> &'static str {
        let path = scratch.path().with_file_name("setting");
        fs::write(&path, value).unwrap();
        path.to_str().unwrap().to_owned().leak()
    }

    fn value(path: &str) -> String {
        fs::read_to_string(path).unwrap().trim().to_owned()
    }

    #[test]
    fn a_setting_is_changed_once_and_put_back() {
        let scratch = Scratch::new();
        let path = file(&scratch, "0\n");
        let outer = KernelSetting::read(path, "1").change("0").unwrap();
        assert_eq!(value(path), "1");
        assert!(KernelSetting::read(path, "1").change("0").is_none(), "it is changed already");
        outer.restore();
        assert_eq!(value(path), "0");
    }

    #[test]
    fn what_another_program_has_set_stays() {
        let scratch = Scratch::new();
        let path = file(&scratch, "2\n");
        assert!(KernelSetting::read(path, "1").change("0").is_none());
        assert_eq!(value(path), "2", "a count of another program");
        let changed = KernelSetting::known(path, "1", Some("0\n".into()));
        changed.restore();
        assert_eq!(value(path), "2", "set after the change");
        let set_before = KernelSetting::known(file(&scratch, "1\n"), "1", Some("1\n".into()));
        set_before.restore();
        assert_eq!(value(path), "1");
    }

    #[test]
    fn a_setting_that_the_kernel_does_not_have_is_left_out() {
        let missing = KernelSetting::read("/nowhere/setting", "1");
        assert_eq!(missing.before(), None);
        missing.restore();
        assert!(missing.change("0").is_none());
    }
}
