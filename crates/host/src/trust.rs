// SPDX-License-Identifier: GPL-2.0-only

//! Programs that root executes, and that another user could have written.

use anyhow::{Context, Result, bail};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Mode bits: the group may write, everyone may write, only an owner may remove names.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// The users whose files root executes: root, and the user that became root by `sudo`, who can do
/// anything already.
#[derive(Clone, Copy, Debug)]
pub struct Trusted {
    sudo: Option<u32>,
}

impl Trusted {
    /// Those of this process; `None` if it is not root and so may execute anything.
    pub fn of_root() -> Option<Trusted> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let sudo = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
        (effective_user(&status) == Some(0)).then_some(Trusted { sudo })
    }

    /// The path of the file without links. Fails if another user could change it, or replace it by
    /// changing a folder above it. A link that led there may lead elsewhere by now.
    pub fn check(&self, program: &Path) -> Result<PathBuf> {
        let place = || format!("{} cannot be executed", program.display());
        let program = program.canonicalize().with_context(place)?;
        for path in program.ancestors() {
            let meta = fs::metadata(path).with_context(place)?;
            if let Some(why) = self.distrusts(&meta) {
                bail!(
                    "root does not execute {}: {} {why}; let root own both, with `chown root` and \
                     `chmod go-w`, or run it as that user",
                    program.display(),
                    path.display()
                );
            }
        }
        Ok(program)
    }

    fn distrusts(&self, meta: &Metadata) -> Option<String> {
        let (owner, group) = (meta.uid(), meta.gid());
        if owner != 0 && Some(owner) != self.sudo {
            return Some(format!("belongs to user {owner}"));
        }
        let is_sticky = meta.is_dir() && meta.mode() & STICKY != 0;
        if meta.mode() & OTHERS_WRITE != 0 && !is_sticky {
            return Some("can be written by every user".into());
        }
        // The group of the user that called sudo is nearly always this user's own.
        let is_trusted = group == 0 || Some(group) == self.sudo;
        (meta.mode() & GROUP_WRITES != 0 && !is_trusted && !is_sticky)
            .then(|| format!("can be written by group {group}"))
    }
}

/// The effective user, from the text of `/proc/self/status`.
fn effective_user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Scratch(PathBuf);

    impl Scratch {
        /// A folder with the file `program`, in the sticky folder of temporary files.
        fn new(name: &str) -> Scratch {
            let id = std::process::id();
            let folder = std::env::temp_dir().join(format!("pandemonium-trust-{name}-{id}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("program"), "").unwrap();
            let scratch = Scratch(folder);
            scratch.mode("", 0o755);
            scratch.mode("program", 0o755);
            scratch
        }

        fn mode(&self, name: &str, mode: u32) {
            fs::set_permissions(self.0.join(name), PermissionsExt::from_mode(mode)).unwrap();
        }

        /// What a root says that became root from the owner of these files.
        fn refusal(&self) -> Option<String> {
            let trusted = Trusted { sudo: Some(fs::metadata(&self.0).unwrap().uid()) };
            trusted.check(&self.0.join("program")).err().map(|error| error.to_string())
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_program_that_only_trusted_users_can_change_is_executed() {
        assert_eq!(Scratch::new("good").refusal(), None);
    }

    #[test]
    fn a_link_is_followed_once() {
        let scratch = Scratch::new("link");
        let (link, program) = (scratch.0.join("link"), scratch.0.join("program"));
        std::os::unix::fs::symlink(&program, &link).unwrap();
        let trusted = Trusted { sudo: Some(fs::metadata(&link).unwrap().uid()) };
        assert_eq!(trusted.check(&link).unwrap(), program.canonicalize().unwrap());
    }

    #[test]
    fn a_program_or_a_folder_that_others_can_write_to_is_refused() {
        let scratch = Scratch::new("bad");
        for (name, mode) in [("program", 0o757), ("", 0o757)] {
            scratch.mode(name, mode);
            let refusal = scratch.refusal().unwrap();
            assert!(refusal.contains("can be written by every user"), "{refusal}");
            scratch.mode(name, 0o755);
        }
        scratch.mode("", 0o1757);
        assert_eq!(scratch.refusal(), None, "in a sticky folder only its owner replaces a file");
    }

    #[test]
    fn a_program_of_another_user_is_refused() {
        let scratch = Scratch::new("foreign");
        let other = Trusted { sudo: None };
        let meta = fs::metadata(scratch.0.join("program")).unwrap();
        assert_eq!(other.distrusts(&meta).is_none(), meta.uid() == 0);
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            std::os::unix::fs::chown(scratch.0.join("program"), Some(4_711), None).unwrap();
            let refusal = other.check(&scratch.0.join("program")).unwrap_err().to_string();
            assert!(refusal.contains("belongs to user 4711"), "{refusal}");
        }
    }

    #[test]
    fn the_effective_user_is_the_second_number() {
        assert_eq!(effective_user("Name:\tx\nUid:\t1000\t0\t0\t0\n"), Some(0));
        assert_eq!(effective_user(""), None);
    }
}
