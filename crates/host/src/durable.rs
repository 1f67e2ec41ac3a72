// SPDX-License-Identifier: GPL-2.0-only

//! Writes files atomically and durably: after a crash at any time, a reader finds either the whole
//! old file or the whole new one.

use anyhow::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

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
pub fn put(
    directory: &File,
    name: &OsStr,
    existing: Existing,
    write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> Result<()> {
    let place = inside(directory);
    let mut unique: OsString = name.into();
    unique.push(format!(".tmp-{}", std::process::id()));
    let (temporary, target) = (place.join(unique), place.join(name));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o644).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(&temporary).context("a temporary file cannot be made")?;
    let mut buffer = BufWriter::new(&file);
    let written = write(&mut buffer)
        .and_then(|()| buffer.flush())
        .and_then(|()| flush(&file))
        .and_then(|()| match existing {
            Existing::Replaced => fs::rename(&temporary, &target),
            // Unlike rename(2), link(2) never replaces an existing file.
            Existing::Kept => fs::hard_link(&temporary, &target),
        });
    if written.is_err() || existing == Existing::Kept {
        let _ = fs::remove_file(&temporary);
    }
    written.context("it cannot be written")?;
    flush(directory).context("its directory cannot be written")
}
