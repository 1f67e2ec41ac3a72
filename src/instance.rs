// SPDX-License-Identifier: GPL-2.0-only

//! One instance at a time. Between the checks before the start and the load of the backend,
//! sched_ext does not show that an instance starts; a second one would replace the first one's
//! statistics socket. So each holds a lock from its start to its end.

use anyhow::{Context, Result, ensure};
use pandemonium_host::failure::Failure;
use pandemonium_host::trust::effective_user;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The locked file, beside the statistics socket. It stays when the lock is released: while a
/// removed file is still locked, a new one of its name could be locked too.
const PATH: &str = "/var/run/scx/root/scx_pandemonium_user.lock";

/// The lock. The kernel releases it when the process ends, however it ends. The worker does not
/// inherit it.
#[derive(Debug)]
pub struct Instance(File);

impl Instance {
    /// Keeps the lock for the program that this process is about to execute, which
    /// [`adopt`](Self::adopt)s this descriptor.
    pub fn hand_on(&self) -> RawFd {
        set_descriptor_flags(self.0.as_raw_fd(), 0);
        self.0.as_raw_fd()
    }

    /// The lock that an earlier program has handed on.
    pub fn adopt(fd: RawFd) -> Instance {
        set_descriptor_flags(fd, libc::FD_CLOEXEC);
        // SAFETY: the earlier program passed this descriptor to this one alone.
        Instance(unsafe { File::from_raw_fd(fd) })
    }
}

fn set_descriptor_flags(fd: RawFd, flags: libc::c_int) {
    // SAFETY: a plain system call. If it fails, the lock is taken again or refused.
    unsafe { libc::fcntl(fd, libc::F_SETFD, flags) };
}

/// Takes the lock. Fails if another instance has it. Without a place for it, there is no lock, and
/// a warning: then the kernel refuses the second one that loads.
pub fn take() -> Result<Option<Instance>, Failure> {
    take_at(Path::new(PATH)).or_else(|error| match error {
        Failure::AlreadyRuns => Err(error),
        other => {
            super::output::warn(&format!("a second instance would not be noticed: {other}"));
            Ok(None)
        }
    })
}

fn take_at(path: &Path) -> Result<Option<Instance>, Failure> {
    let file = open(path)
        .with_context(|| format!("{} cannot be opened", path.display()))
        .map_err(Failure::Internal)?;
    // SAFETY: a plain system call, on an open file.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(Some(Instance(file))),
        _ => match std::io::Error::last_os_error() {
            error if error.kind() == ErrorKind::WouldBlock => Err(Failure::AlreadyRuns),
            error => Err(Failure::internal(error)),
        },
    }
}

/// Opens or makes the file. Only this user may open it: any descriptor can hold a lock, also one
/// that was opened for reading.
fn open(path: &Path) -> Result<File> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    // Without O_NONBLOCK, to open a FIFO of that name would wait.
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let file = options.custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    let user = effective_user();
    let is_ours = found.is_file() && found.uid() == user && found.mode() & 0o077 == 0;
    ensure!(is_ours, "it is not a file that only user {user} may open");
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procdb_file::tests::Scratch;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Another test may fork meanwhile, and its child has the lock until it executes a program.
    fn is_free_soon(path: &Path) -> bool {
        (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            matches!(take_at(path), Ok(Some(_)))
        })
    }

    fn reason(result: Result<Option<Instance>, Failure>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn only_one_instance_has_the_lock_until_it_ends() {
        let scratch = Scratch::new();
        let path = scratch.path().with_file_name("lock");
        let first = take_at(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(take_at(&path), Err(Failure::AlreadyRuns)));
        drop(first);
        assert!(is_free_soon(&path));
    }

    #[test]
    fn a_child_process_does_not_inherit_the_lock() {
        let scratch = Scratch::new();
        let path = scratch.path().with_file_name("lock");
        let first = take_at(&path).unwrap();
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        drop(first);
        let is_free = is_free_soon(&path);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_free);
    }

    #[test]
    fn a_link_a_directory_and_a_file_for_others_are_refused() {
        let scratch = Scratch::new();
        let path = |name: &str| scratch.path().with_file_name(name);
        std::fs::write(path("target"), "untouched").unwrap();
        symlink(path("target"), path("link")).unwrap();
        assert!(reason(take_at(&path("link"))).contains("cannot be opened"));
        assert_eq!(std::fs::read(path("target")).unwrap(), b"untouched");
        std::fs::create_dir(path("directory")).unwrap();
        assert!(reason(take_at(&path("directory"))).contains("cannot be opened"));
        std::fs::set_permissions(path("target"), PermissionsExt::from_mode(0o644)).unwrap();
        assert!(reason(take_at(&path("target"))).contains("only user"));
    }
}
