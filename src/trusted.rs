// SPDX-License-Identifier: GPL-2.0-only

//! Whether files and directories are this user's alone to change. The scheduler runs as root, and a
//! path may come from the command line.

use pandemonium_host::durable;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Why a directory is not used.
#[derive(Debug)]
pub enum Refused {
    /// It cannot be opened.
    Unopened(io::Error),
    /// Another user could change it, or a directory above it.
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

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        Refused::Unopened(error)
    }
}

/// Opens a directory if only root and this user can change what is in it. Operations through the
/// returned file stay in that directory.
pub fn directory(path: &Path) -> Result<File, Refused> {
    let real = path.canonicalize()?;
    let user = User::current();
    for (depth, ancestor) in real.ancestors().enumerate() {
        let facts = Facts::of(&fs::metadata(ancestor)?);
        if let Some(why) = distrust(&facts, &user, depth > 0) {
            let ancestor = ancestor.display();
            return Err(Refused::Distrusted(format!("the directory {ancestor} {why}")));
        }
    }
    Ok(durable::directory(&real)?)
}

/// Why another user than root and this one could change a file; `None` if none could.
pub fn distrust_file(meta: &Metadata) -> Option<String> {
    distrust(&Facts::of(meta), &User::current(), false)
}

/// The owner and the permissions of a file.
#[derive(Clone, Copy, Debug)]
struct Facts {
    uid: u32,
    gid: u32,
    mode: u32,
}

/// The user of this process.
struct User {
    uid: u32,
    gid: u32,
}

impl Facts {
    fn of(meta: &Metadata) -> Facts {
        Facts { uid: meta.uid(), gid: meta.gid(), mode: meta.mode() }
    }
}

impl User {
    fn current() -> User {
        // SAFETY: both calls read a number of this process and cannot fail.
        unsafe { User { uid: libc::geteuid(), gid: libc::getegid() } }
    }
}

/// Why another user than root and this one could change a file or directory; `None` if none
/// could. In a sticky directory such as `/tmp` other users can add names, but cannot remove or
/// replace this user's. That suffices for an ancestor.
fn distrust(facts: &Facts, user: &User, sticky_suffices: bool) -> Option<String> {
    if facts.uid != 0 && facts.uid != user.uid {
        return Some(format!("belongs to user {}", facts.uid));
    }
    let sticky = facts.mode & libc::S_ISVTX != 0;
    if sticky_suffices && sticky {
        return None;
    }
    if facts.mode & 0o002 != 0 {
        return Some("can be written by every user".into());
    }
    if facts.mode & 0o020 != 0 && facts.gid != 0 && facts.gid != user.gid {
        return Some(format!("can be written by group {}", facts.gid));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_root_and_this_user_are_trusted() {
        let user = User { uid: 1000, gid: 100 };
        let trusted = |uid, gid, mode, ancestor| {
            distrust(&Facts { uid, gid, mode }, &user, ancestor).is_none()
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
    }
}
