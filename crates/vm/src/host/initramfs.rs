// SPDX-License-Identifier: GPL-2.0-only

//! The guest's root file system: a cpio archive in the "newc" form that the kernel unpacks.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const DIRECTORY: u32 = 0o040_755;
const REGULAR: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive under construction. Every file in it belongs to root.
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    names: BTreeSet<String>,
}

impl Archive {
    /// An archive with the folders that every boot needs and the console, which the kernel opens
    /// before anything is mounted.
    pub fn new() -> Archive {
        let mut archive = Archive { bytes: Vec::new(), entries: 0, names: BTreeSet::new() };
        for folder in ["/bin", "/dev", "/proc", "/root", "/run", "/sys", "/tmp"] {
            archive.folder(folder);
        }
        archive.entry("/dev/console", CHARACTER_DEVICE, (5, 1), &[]);
        archive
    }

    /// Copies a file of the machine. A name that the archive already has stays as it is.
    pub fn file(&mut self, name: &str, source: &Path) -> Result<()> {
        let content = fs::read(source).with_context(|| format!("reading {}", source.display()))?;
        let mode = fs::metadata(source)
            .with_context(|| format!("looking at {}", source.display()))?
            .permissions()
            .mode();
        let permissions = if mode & 0o111 == 0 { 0o644 } else { 0o755 };
        self.parents(name);
        self.entry(name, REGULAR | permissions, (0, 0), &content);
        Ok(())
    }

    /// Ends the archive and writes it.
    pub fn write(mut self, path: &Path) -> Result<()> {
        self.entry("/TRAILER!!!", 0, (0, 0), &[]);
        fs::write(path, &self.bytes).with_context(|| format!("writing {}", path.display()))
    }

    fn parents(&mut self, name: &str) {
        for (index, _) in name.match_indices('/').skip(1) {
            self.folder(&name[..index]);
        }
    }

    fn folder(&mut self, name: &str) {
        self.entry(name, DIRECTORY, (0, 0), &[]);
    }

    /// One header of thirteen eight-digit numbers, the name and the content, each padded to four
    /// bytes.
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        if !self.names.insert(name.into()) {
            return;
        }
        self.entries += 1;
        let name = name.trim_start_matches('/');
        let links = 1;
        let size = u32::try_from(content.len()).expect("no program is larger than 4 GiB");
        let name_size = name.len() as u32 + 1;
        let numbers =
            [self.entries, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size, 0];
        self.bytes.extend(b"070701");
        for number in numbers {
            self.bytes.extend(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
