// SPDX-License-Identifier: GPL-2.0-only

//! Finds and executes the other programs of this workspace.

pub use pandemonium_trust::program::{Program, command, find};

use crate::failure::Failure;
use anyhow::{Context, Result};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

/// Finds a program of this workspace: in the folder of the running program, else in PATH.
pub fn beside(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("looking for this program")?;
    let folder = own.parent().context("the path of this program has no folder")?;
    find(name, folder).with_context(|| {
        format!(
            "{name} is neither beside this program nor in PATH: `make` builds it, and the package \
             scx-pandemonium-user-tools has it"
        )
    })
}

/// Replaces this process by a program of this workspace (exec). Returns only if that fails.
pub fn become_program(name: &str, arguments: &[String]) -> Failure {
    match beside(name).and_then(|path| command(&path)) {
        Ok(mut command) => Failure::internal(command.args(arguments).exec()),
        Err(error) => Failure::Internal(error),
    }
}
