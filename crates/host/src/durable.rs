// SPDX-License-Identifier: GPL-2.0-only

//! Writes files atomically and durably: after a crash at any time, a reader finds either the whole
//! old file or the whole new one.

use anyhow::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Between a file's name and the numbers that tell its temporary files apart.
const TEMPORARY: &str = ".tmp-";
/// Names that are tried. Of an earlier process with the same number a few may be left.
const NAMES_MAX: u32 = 1_000;

/// What to do if a file of this name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Replace it.
    Replaced,
    /// Keep it, write nothing, and fail.
    Kept,
}

/// The directory of a path. A bare name is in the current directory.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

/// Opens a directory. Operations through the returned file stay in that directory, even if its path
/// is renamed or replaced meanwhile.
pub fn directory(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)
}

/// A path to an opened directory that does not depend on the directory's name.
pub fn inside(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// Waits until the file is on the disk. A sandbox may forbid that (systemd's set of system calls
/// `@sync`): then a reader still finds a whole file, but not after a crash of the machine.
///
/// # Errors
///
/// If the disk fails.
pub fn flush(file: &File) -> io::Result<()> {
    match file.sync_all() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

/// Writes the file `name` into `directory`, so that after a crash there is either the old file or
/// the new one. The file is readable for all users. A link of this name is replaced, not followed.
/// What writers that have died left beside it is removed.
pub fn put(
    directory: &File,
    name: &OsStr,
    existing: Existing,
    write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> Result<()> {
    let place = inside(directory);
    let mut temporary = Temporary::new(&place, name).context("a temporary file cannot be made")?;
    temporary.remove_abandoned(&place, name);
    fill(&temporary.file, write)
        .and_then(|()| temporary.take_name(&place.join(name), existing))
        .context("it cannot be written")?;
    drop(temporary);
    flush(directory).context("its directory cannot be written")
}

fn fill(
    file: &File,
    write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = BufWriter::new(file);
    write(&mut buffer)?;
    buffer.flush()?;
    flush(file)
}

/// A new file beside the one that it is to become. It is removed when this is dropped, also by a
/// panic, and locked as long as its writer lives: one without a lock is abandoned.
struct Temporary {
    file: File,
    path: PathBuf,
    /// Whether the file still has this path.
    is_there: bool,
}

impl Temporary {
    fn new(place: &Path, name: &OsStr) -> io::Result<Temporary> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o644).custom_flags(libc::O_NOFOLLOW);
        for _ in 0..NAMES_MAX {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let mut unique = beginning(name);
            unique.push(format!("{}-{number}", std::process::id()));
            let path = place.join(unique);
            match options.open(&path) {
                Ok(file) => {
                    let temporary = Temporary { file, path, is_there: true };
                    if temporary.is_locked()? {
                        return Ok(temporary);
                    }
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Locks it. `false` if another writer took it for an abandoned one, before it was locked.
    fn is_locked(&self) -> io::Result<bool> {
        match self.file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(false),
            // Where the file system has no locks, no file is taken for an abandoned one.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(self.file.metadata()?.nlink() > 0),
        }
    }

    /// Removes the temporary files for this name that belong to the same user, and that no writer
    /// has locked.
    fn remove_abandoned(&self, place: &Path, name: &OsStr) {
        let Ok(user) = self.file.metadata().map(|own| own.uid()) else { return };
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| is_temporary(&entry.file_name(), name)) {
            let path = entry.path();
            // Locked until it is removed: a writer that has just made it makes another one then.
            if let Ok(Some(_locked)) = abandoned(&path, user) {
                // One that cannot be removed takes some room.
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Gives the file its name.
    fn take_name(&mut self, target: &Path, existing: Existing) -> io::Result<()> {
        match existing {
            Existing::Replaced => fs::rename(&self.path, target).map(|()| self.is_there = false),
            // Unlike rename(2), link(2) never replaces an existing file.
            Existing::Kept => fs::hard_link(&self.path, target),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.is_there {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// How the names of temporary files for `name` begin.
fn beginning(name: &OsStr) -> OsString {
    let mut beginning = name.to_owned();
    beginning.push(TEMPORARY);
    beginning
}

/// Whether a file of this name is a temporary one for `name`: numbers follow.
fn is_temporary(file: &OsStr, name: &OsStr) -> bool {
    let numbers = file.as_encoded_bytes().strip_prefix(beginning(name).as_encoded_bytes());
    let is_number = |bytes: &[u8]| !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    numbers.is_some_and(|numbers| numbers.split(|byte| *byte == b'-').all(is_number))
}

/// The file, locked, if it is a plain one of this user that no writer has locked.
fn abandoned(path: &Path, user: u32) -> io::Result<Option<File>> {
    // Checked before it is opened too, because opening a device can have effects.
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let found = file.metadata()?;
    let is_ours = found.is_file() && found.uid() == user && file.try_lock().is_ok();
    Ok(is_ours.then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "results.json";

    /// An empty folder, removed at the end of the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Folder {
            let name = format!("pandemonium-durable-{test}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            Folder(path)
        }

        fn put(&self, text: &str, existing: Existing) -> Result<()> {
            let directory = directory(&self.0).unwrap();
            put(&directory, NAME.as_ref(), existing, |file| file.write_all(text.as_bytes()))
        }

        fn text(&self) -> String {
            fs::read_to_string(self.0.join(NAME)).unwrap()
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_a_dead_writer_left_neither_hinders_the_next_one_nor_stays() {
        let folder = Folder::new("dead");
        let own = std::process::id();
        // As this process would name its own, and as earlier versions did.
        let numbers = (0..200).map(|number| format!("{own}-{number}"));
        for number in numbers.chain([own.to_string(), "4711-3".into()]) {
            fs::write(folder.0.join(format!("{NAME}{TEMPORARY}{number}")), "half").unwrap();
        }
        folder.put("whole", Existing::Replaced).unwrap();
        assert_eq!((folder.text().as_str(), folder.names()), ("whole", vec![NAME.to_owned()]));
    }

    #[test]
    fn another_writer_s_file_and_what_only_looks_like_one_stay() {
        let folder = Folder::new("others");
        let temporary = |end: &str| folder.0.join(format!("{NAME}{TEMPORARY}{end}"));
        let writer = File::create(temporary("1-1")).unwrap();
        writer.try_lock().unwrap();
        fs::write(temporary("backup"), "mine").unwrap();
        fs::write(folder.0.join("target"), "untouched").unwrap();
        std::os::unix::fs::symlink(folder.0.join("target"), temporary("1-2")).unwrap();
        folder.put("whole", Existing::Replaced).unwrap();
        let ends = ["", ".tmp-1-1", ".tmp-1-2", ".tmp-backup"];
        let expected = ends.map(|end| format!("{NAME}{end}")).into_iter();
        assert_eq!(folder.names(), expected.chain(["target".into()]).collect::<Vec<_>>());
        assert_eq!(fs::read_to_string(folder.0.join("target")).unwrap(), "untouched");
    }

    #[test]
    fn a_failure_or_a_panic_leaves_the_old_file_and_nothing_else() {
        let folder = Folder::new("failure");
        folder.put("old", Existing::Replaced).unwrap();
        let directory = directory(&folder.0).unwrap();
        let write = |fails: fn() -> io::Result<()>| {
            put(&directory, NAME.as_ref(), Existing::Replaced, |file| {
                file.write_all(b"new")?;
                fails()
            })
        };
        assert!(write(|| Err(ErrorKind::StorageFull.into())).is_err());
        let panics = std::panic::AssertUnwindSafe(|| write(|| panic!("the writer has a bug")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(folder.put("new", Existing::Kept).is_err());
        assert_eq!((folder.text().as_str(), folder.names()), ("old", vec![NAME.to_owned()]));
    }

    #[test]
    fn writers_at_the_same_time_all_succeed() {
        let folder = Folder::new("many");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..20).for_each(|_| folder.put("x", Existing::Replaced).unwrap()));
            }
        });
        assert_eq!(folder.names(), [NAME]);
    }
}
