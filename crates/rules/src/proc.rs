// SPDX-License-Identifier: GPL-2.0-only

//! Files below `/proc`, read into one buffer: what has not changed is read again without an
//! allocation.
//!
//! The programs that use this crate may have one lock for all their allocations. A thread that
//! loses its CPU inside holds up all others, so the look at all processes, once a second, takes no
//! such lock.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, RawDir, openat, readlinkat_raw};
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::path::Path;

/// Longest text that is kept of one fact: a command line can have megabytes.
const TEXT_MAX: usize = 4096;
/// Room for the names of some hundred processes, which the kernel tells at once.
const NAMES: usize = 4096;

/// A folder like `/proc`, open.
pub struct ProcFolder(OwnedFd);

impl ProcFolder {
    /// Opens the folder.
    pub fn open(path: &Path) -> Option<ProcFolder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(rustix::fs::CWD, path, flags, Mode::empty()).ok().map(ProcFolder)
    }

    /// Calls `look` with the number of each process.
    pub fn for_each(&self, mut look: impl FnMut(i32)) {
        // A stream of its own: files are opened below the folder meanwhile.
        let mut names = [MaybeUninit::uninit(); NAMES];
        let mut entries = RawDir::new(self.0.as_fd(), &mut names);
        while let Some(Ok(entry)) = entries.next() {
            let name = entry.file_name().to_str();
            if let Some(pid) = name.ok().and_then(|name| name.parse().ok()) {
                look(pid);
            }
        }
    }
}

/// Files of one process at a time.
#[derive(Default)]
pub struct Reader {
    path: String,
    bytes: Vec<u8>,
}

impl Reader {
    /// The beginning of a file of the process, with spaces in place of zeros, which end the text
    /// too. What is not UTF-8 is replaced.
    pub fn text(&mut self, folder: &ProcFolder, pid: i32, name: &str) -> Option<&str> {
        self.set_path(pid, name);
        let file = openat(&folder.0, &self.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let file = file.ok()?;
        self.bytes.resize(TEXT_MAX, 0);
        let mut length = 0;
        while length < TEXT_MAX {
            match rustix::io::read(&file, &mut self.bytes[length..]) {
                Ok(0) => break,
                Ok(more) => length += more,
                // The process has ended.
                Err(_) => return None,
            }
        }
        self.bytes.truncate(length);
        let end = self.bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        self.bytes.truncate(end);
        self.bytes.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
        Some(self.valid())
    }

    /// What the link of the process points to; nothing if it may not be read.
    pub fn link(&mut self, folder: &ProcFolder, pid: i32, name: &str) -> &str {
        self.set_path(pid, name);
        self.bytes.resize(TEXT_MAX, 0);
        let read = readlinkat_raw(&folder.0, &self.path, self.bytes.as_mut_slice());
        let length = read.unwrap_or_default();
        self.bytes.truncate(length);
        self.valid()
    }

    fn set_path(&mut self, pid: i32, name: &str) {
        self.path.clear();
        // Writing to a text does not fail.
        let _ = write!(self.path, "{pid}/{name}");
    }

    fn valid(&mut self) -> &str {
        if std::str::from_utf8(&self.bytes).is_err() {
            self.bytes = String::from_utf8_lossy(&self.bytes).into_owned().into_bytes();
        }
        // It is valid now.
        std::str::from_utf8(&self.bytes).unwrap_or_default()
    }
}
