// SPDX-License-Identifier: GPL-2.0-only

//! Finds the libraries that a program of this machine needs to run in the guest.

use super::command;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The loader and the libraries of a program, as absolute paths; none for a static program.
pub fn of(program: &Path) -> Result<Vec<PathBuf>> {
    let listing = match command::output(Command::new("ldd").arg(program)) {
        Ok(listing) => listing,
        Err(error) if format!("{error:#}").contains("not a dynamic executable") => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mut libraries = Vec::new();
    for line in listing.lines() {
        if line.contains("not found") {
            bail!("{} lacks a library: {}", program.display(), line.trim());
        }
        // "name => /path (address)" or "/path (address)"; the vdso has no path.
        let path = line.split_whitespace().find(|word| word.starts_with('/'));
        libraries.extend(path.map(PathBuf::from));
    }
    Ok(libraries)
}
