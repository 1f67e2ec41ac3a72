// SPDX-License-Identifier: GPL-2.0-only

//! Files that are there as a whole or not at all, whenever the machine stops.

use anyhow::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What happens to a file that has the name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    Replaced,
    /// It is left alone, and nothing is written.
    Kept,
}

/// The directory of a path; a bare name is in the current one.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

/// Opens a directory so that what is done in it stays in it, whatever becomes of its path.
pub fn directory(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)
}

/// Inside a directory that was opened.
pub fn inside(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// Writes the file `name` into `directory` so that after a crash there is the old file or the new
/// one. Readable for all; a link of this name is replaced, not followed.
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
        .and_then(|()| file.sync_all())
        .and_then(|()| match existing {
            Existing::Replaced => fs::rename(&temporary, &target),
            // Unlike a rename, a link never takes the place of another file.
            Existing::Kept => fs::hard_link(&temporary, &target),
        });
    if written.is_err() || existing == Existing::Kept {
        let _ = fs::remove_file(&temporary);
    }
    written.context("it cannot be written")?;
    directory.sync_all().context("its directory cannot be written")
}
