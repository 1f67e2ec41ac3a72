// SPDX-License-Identifier: GPL-2.0-only

//! The other programs of this workspace: found, and become.

use crate::failure::Failure;
use anyhow::{Context, Result};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program in this folder, else in the first folder of PATH that has it.
pub fn find(name: &str, first: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(first.to_path_buf()).chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// A program of this workspace: beside the running one, else in PATH.
pub fn beside(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("looking for this program")?;
    let folder = own.parent().context("this program stands in no folder")?;
    find(name, folder).with_context(|| {
        format!("{name} is neither beside this program nor in PATH: `make` builds both")
    })
}

/// Becomes such a program, with these arguments. Returns only if it cannot be started.
pub fn become_program(name: &str, arguments: &[String]) -> Failure {
    match beside(name) {
        Ok(path) => Failure::internal(Command::new(path).args(arguments).exec()),
        Err(error) => Failure::Internal(error),
    }
}
