// SPDX-License-Identifier: GPL-2.0-only

//! Programs that the machine may lack, unpacked from Debian packages with their own libraries.
//!
//! Each comes with its own C library and loader, so it runs on any machine, without root, and
//! beside programs linked against another C library.

use super::apt::{Apt, PROGRAMS};
use super::cache::Cache;
use super::{command, progress};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which packages to unpack, and where the program is inside.
pub struct Recipe {
    /// Name of the cache item. It changes when the layout changes.
    pub item: &'static str,
    pub package: &'static str,
    pub program: &'static str,
    /// Packages of the closure that the program does not load in our use: scripts, drivers opened
    /// on demand.
    pub without: &'static [&'static str],
}

pub const QEMU: Recipe = Recipe {
    item: "qemu-1",
    package: "qemu-system-x86",
    program: "usr/bin/qemu-system-x86_64",
    without: &[
        "adduser",
        "base-passwd",
        "debconf",
        "ipxe-qemu",
        "libpam-modules",
        "libpam-modules-bin",
        "passwd",
    ],
};

pub const STRESS_NG: Recipe = Recipe {
    item: "stress-ng-1",
    package: "stress-ng",
    program: "usr/bin/stress-ng",
    without: &["libegl-mesa0", "libllvm19", "libx11-data", "libz3-4", "mesa-libgallium"],
};

pub const BUSYBOX: Recipe = Recipe {
    item: "busybox-1",
    package: "busybox-static",
    program: "usr/bin/busybox",
    without: &["libc6"],
};

/// A C compiler of 300 kB for the phase `compile`. Its input includes no header and is not linked,
/// so it needs no other package.
pub const TCC: Recipe =
    Recipe { item: "tcc-1", package: "tcc", program: "usr/bin/tcc", without: &[] };

/// An unpacked program.
#[derive(Clone, Debug)]
pub struct Program {
    pub root: PathBuf,
    pub path: PathBuf,
}

/// Where Debian installs libraries for x86_64.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";

impl Recipe {
    /// From the cache, or fetched.
    pub fn get(&self, cache: &Cache) -> Result<Program> {
        let root = cache.item(self.item, |folder| {
            let apt = Apt::open(cache)?;
            progress::step(&format!("fetching {} and its libraries", self.package));
            let mut packages = apt.closure(self.package)?;
            packages.retain(|package| !self.without.contains(&package.as_str()));
            let versioned: Vec<String> =
                packages.iter().map(|package| format!("{package}/{PROGRAMS}")).collect();
            apt.unpack(&versioned, folder)?;
            // Documentation and translations are half of the files.
            for part in ["usr/share/doc", "usr/share/locale", "usr/share/man"] {
                let _ = fs::remove_dir_all(folder.join(part));
            }
            let program = Program { root: folder.into(), path: folder.join(self.program) };
            program.check().with_context(|| format!("checking the unpacked {}", self.package))
        })?;
        Ok(Program { path: root.join(self.program), root })
    }
}

impl Program {
    pub fn loader(&self) -> PathBuf {
        self.root.join(LOADER)
    }

    pub fn library_folder(&self) -> PathBuf {
        self.root.join(LIBRARIES)
    }

    /// A command that runs it with its own loader and libraries.
    pub fn command(&self) -> Command {
        if !self.loader().exists() {
            return Command::new(&self.path);
        }
        let mut command = Command::new(self.loader());
        command.arg("--library-path").arg(self.library_folder()).arg(&self.path);
        command
    }

    /// The libraries that the loader uses, all of them from the unpacked packages.
    pub fn libraries(&self) -> Result<Vec<PathBuf>> {
        if !self.loader().exists() {
            return Ok(Vec::new());
        }
        let mut list = Command::new(self.loader());
        list.arg("--library-path").arg(self.library_folder()).arg("--list").arg(&self.path);
        let listing = command::output(&mut list)?;
        let missing = listing.lines().find(|line| line.contains("not found"));
        ensure!(
            missing.is_none(),
            "{} lacks a library: {}",
            self.path.display(),
            missing.unwrap_or_default().trim()
        );
        let inside =
            |word: &str| Path::new(word).starts_with(&self.root).then(|| PathBuf::from(word));
        Ok(listing.lines().filter_map(|line| line.split_whitespace().find_map(inside)).collect())
    }

    fn check(&self) -> Result<()> {
        ensure!(self.path.is_file(), "{} does not exist", self.path.display());
        self.libraries().map(drop)
    }
}
