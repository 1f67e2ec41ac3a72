// SPDX-License-Identifier: GPL-2.0-only

//! Files and programs that another user could have written. Root does not use them.
//!
//! ```
//! use pandemonium_trust::Trusted;
//!
//! // `None`: this process is not root.
//! if let Some(root) = Trusted::of_root() {
//!     assert!(root.check("read", "/etc/passwd".as_ref()).is_ok());
//! }
//! ```

#![warn(missing_docs)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod program;

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Mode bits: the group may write, everyone may write, only an owner may remove names.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// The users and groups that may write: root and its group, and at most one more of each.
#[derive(Clone, Copy, Debug)]
pub struct Trusted {
    user: Option<u32>,
    group: Option<u32>,
}

/// Why a file or a directory is not used.
#[derive(Debug)]
pub enum Refused {
    /// It cannot be opened.
    Unopened(io::Error),
    /// Another user could have changed it, or a directory above it.
    Distrusted(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Unopened(error) => error.fmt(f),
            Refused::Distrusted(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refused {}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        Refused::Unopened(error)
    }
}

impl Trusted {
    /// Those of root: the user that called `sudo`, because root is that user, and its private
    /// group. `None` if this process is not root.
    pub fn of_root() -> Option<Trusted> {
        if effective_user() != 0 {
            return None;
        }
        let user = sudo_user();
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let group =
            user.and_then(|user| private_group(user, &read("/etc/passwd"), &read("/etc/group")));
        Some(Trusted { user, group })
    }

    /// Those of the user of this process: the user, and its group.
    pub fn of_this_user() -> Trusted {
        // SAFETY: the call reads a number of this process and cannot fail.
        let group = unsafe { libc::getegid() };
        Trusted { user: Some(effective_user()), group: Some(group) }
    }

    /// The path without links. Fails if another user could change the file or directory, or replace
    /// it by changing a directory above it: then the text has the place and the reason. A link that
    /// led there may lead elsewhere by now.
    pub fn real_path(&self, path: &Path) -> Result<PathBuf, Refused> {
        let real = path.canonicalize()?;
        for (depth, place) in real.ancestors().enumerate() {
            if let Some(why) = self.distrusts(&fs::metadata(place)?, depth > 0) {
                return Err(Refused::Distrusted(format!("{} {why}", place.display())));
            }
        }
        Ok(real)
    }

    /// The same for root. The text has what root would do with the file, and what to do about it.
    pub fn check(&self, verb: &str, path: &Path) -> Result<PathBuf, Refused> {
        self.real_path(path).map_err(|refused| match refused {
            Refused::Distrusted(why) => Refused::Distrusted(format!(
                "root does not {verb} {}: {why}; let root own both, with `chown root` and \
                 `chmod go-w`",
                path.display()
            )),
            unopened => unopened,
        })
    }

    /// Why another user could change a file or directory; `None` if none could. In a sticky
    /// directory such as `/tmp` other users can add names, but cannot remove or replace those of
    /// trusted users. That suffices for a directory above the file that counts.
    pub fn distrusts(&self, meta: &Metadata, sticky_suffices: bool) -> Option<String> {
        let facts = Facts { user: meta.uid(), group: meta.gid(), mode: meta.mode() };
        self.distrusts_facts(facts, sticky_suffices)
    }

    fn distrusts_facts(&self, facts: Facts, sticky_suffices: bool) -> Option<String> {
        let Facts { user, group, mode } = facts;
        if user != 0 && Some(user) != self.user {
            return Some(format!("belongs to user {user}"));
        }
        if sticky_suffices && mode & STICKY != 0 {
            return None;
        }
        if mode & OTHERS_WRITE != 0 {
            return Some("can be written by every user".into());
        }
        let is_trusted = group == 0 || Some(group) == self.group;
        (mode & GROUP_WRITES != 0 && !is_trusted)
            .then(|| format!("can be written by group {group}"))
    }
}

/// The owner and the permissions of a file.
#[derive(Clone, Copy, Debug)]
struct Facts {
    user: u32,
    group: u32,
    mode: u32,
}

/// Opens a file to read it. Fails if it is no regular file: the open of a FIFO would wait for a
/// writer, and that of a device can have effects.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let check = |meta: Metadata| match meta.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is not a regular file")),
    };
    // Once more when it is open, in case the file was replaced between the two.
    check(fs::metadata(path)?)?;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    check(file.metadata()?)?;
    Ok(file)
}

/// The user that called `sudo`, if one did.
pub fn sudo_user() -> Option<u32> {
    std::env::var("SUDO_UID").ok()?.parse().ok()
}

/// The effective user of this process.
pub fn effective_user() -> u32 {
    // SAFETY: the call reads a number of this process and cannot fail.
    unsafe { libc::geteuid() }
}

/// The group that is the user's alone, by the texts of `/etc/passwd` and `/etc/group`: it has the
/// user's name, no other member, and no other user has it as the first group.
fn private_group(user: u32, passwd: &str, groups: &str) -> Option<u32> {
    // Name, number and first group of each user.
    let users = || {
        passwd.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let number = |at: usize| fields.get(at)?.parse::<u32>().ok();
            Some((*fields.first()?, number(2)?, number(3)?))
        })
    };
    let (name, _, group) = users().find(|(_, number, _)| *number == user)?;
    let is_shared = users().any(|(_, number, first)| first == group && number != user);
    let mut of_number = groups.lines().filter(|line| {
        line.split(':').nth(2).and_then(|number| number.parse().ok()) == Some(group)
    });
    let is_own = |line: &str| {
        let members = line.split(':').nth(3).unwrap_or_default().trim();
        line.split(':').next() == Some(name) && (members.is_empty() || members == name)
    };
    let has_one = of_number.next().is_some_and(is_own) && of_number.next().is_none();
    (has_one && !is_shared).then_some(group)
}

#[cfg(test)]
mod tests;
