// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use std::os::unix::fs::{PermissionsExt, chown};

pub struct Scratch(pub PathBuf);

impl Scratch {
    /// A folder in the sticky folder of temporary files.
    pub fn new(name: &str) -> Scratch {
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("pandemonium-trust-{name}-{id}"));
        fs::create_dir(&folder).unwrap();
        let scratch = Scratch(folder);
        scratch.mode("", 0o755);
        scratch
    }

    /// A folder with the file `program`.
    fn with_program(name: &str) -> Scratch {
        let scratch = Scratch::new(name);
        scratch.script("program");
        scratch
    }

    pub fn script(&self, name: &str) -> PathBuf {
        fs::write(self.0.join(name), "#!/bin/sh\n").unwrap();
        self.mode(name, 0o755);
        self.0.join(name)
    }

    pub fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.0.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }

    /// The user of these files.
    pub fn owner(&self) -> u32 {
        fs::metadata(&self.0).unwrap().uid()
    }

    /// Only root can give a file to another user.
    pub fn give_away(&self, name: &str) {
        chown(self.0.join(name), Some(4_711), None).unwrap();
    }

    /// What a root says that became root from the owner of these files.
    fn refusal(&self) -> Option<String> {
        let trusted = Trusted { user: Some(self.owner()), group: None };
        trusted.check("execute", &self.0.join("program")).err().map(|error| error.to_string())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn is_root() -> bool {
    effective_user() == 0
}

#[test]
fn only_files_of_root_and_this_user_are_trusted() {
    let user = Trusted { user: Some(1000), group: Some(100) };
    let trusted = |user_id, group, mode, ancestor| {
        user.distrusts_facts(Facts { user: user_id, group, mode }, ancestor).is_none()
    };
    assert!(trusted(0, 0, 0o755, false));
    assert!(trusted(1000, 100, 0o700, false));
    assert!(!trusted(1001, 100, 0o755, false), "another user's");
    assert!(!trusted(1001, 100, 0o1755, true), "another user's, sticky or not");
    assert!(!trusted(0, 0, 0o777, false));
    assert!(!trusted(0, 0, 0o1777, false), "other users could add a file");
    assert!(trusted(0, 0, 0o1777, true), "/tmp above a trusted directory");
    assert!(!trusted(0, 0, 0o777, true));
    assert!(trusted(0, 0, 0o775, false), "root's group");
    assert!(trusted(1000, 100, 0o775, false), "this user's group");
    assert!(!trusted(0, 50, 0o775, false));
    assert!(!trusted(0, 1000, 0o775, false), "a group with the number of the user");
}

#[test]
fn a_private_group_has_the_name_of_its_only_user() {
    let passwd = "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nbob:x:1001:100::/:/x\n";
    let of = |user, groups: &str| private_group(user, passwd, groups);
    assert_eq!(of(1000, "root:x:0:\nalice:x:1000:\n"), Some(1000));
    assert_eq!(of(1000, "alice:x:1000:alice\n"), Some(1000));
    assert_eq!(of(1000, "alice:x:1000:bob\n"), None, "bob is a member");
    assert_eq!(of(1000, "alice:x:1000:alice,bob\n"), None);
    assert_eq!(of(1000, "games:x:1000:\n"), None, "another group with the number of the user");
    assert_eq!(of(1000, "alice:x:1000:\ngames:x:1000:bob\n"), None, "two groups of one number");
    assert_eq!(of(1000, "alice:x:100:\n"), None);
    assert_eq!(of(1001, "bob:x:1001:\nusers:x:100:\n"), None, "the first group of many");
    assert_eq!(of(77, "alice:x:1000:\n"), None);
    let two = format!("{passwd}carol:x:1002:1000::/:/bin/sh\n");
    assert_eq!(private_group(1000, &two, "alice:x:1000:\n"), None, "also carol's");
}

#[test]
fn a_program_that_only_trusted_users_can_change_is_executed() {
    assert_eq!(Scratch::with_program("good").refusal(), None);
}

#[test]
fn a_link_is_followed_once() {
    let scratch = Scratch::with_program("followed");
    let (link, program) = (scratch.0.join("link"), scratch.0.join("program"));
    std::os::unix::fs::symlink(&program, &link).unwrap();
    let trusted = Trusted { user: Some(scratch.owner()), group: None };
    assert_eq!(trusted.check("execute", &link).unwrap(), program.canonicalize().unwrap());
}

#[test]
fn a_program_or_a_folder_that_others_can_write_to_is_refused() {
    let scratch = Scratch::with_program("bad");
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
    let scratch = Scratch::with_program("foreign");
    let other = Trusted { user: None, group: None };
    let meta = fs::metadata(scratch.0.join("program")).unwrap();
    assert_eq!(other.distrusts(&meta, false).is_none(), meta.uid() == 0);
    if is_root() {
        scratch.give_away("program");
        let refusal = other.check("execute", &scratch.0.join("program")).unwrap_err().to_string();
        assert!(refusal.contains("belongs to user 4711"), "{refusal}");
    }
}

#[test]
fn a_fifo_is_refused_without_waiting_for_its_writer() {
    let scratch = Scratch::with_program("fifo");
    let fifo = scratch.0.join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    for path in [fifo.as_path(), Path::new("/dev/null"), scratch.0.as_path()] {
        let refusal = open_regular(path).unwrap_err().to_string();
        assert_eq!(refusal, "it is not a regular file");
    }
    assert!(open_regular(&scratch.0.join("program")).is_ok());
}
