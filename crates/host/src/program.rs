// SPDX-License-Identifier: GPL-2.0-only

//! Finds and executes the other programs of this workspace.

use crate::failure::Failure;
use crate::trust::Trusted;
use anyhow::{Context, Result};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Finds a program in the folder `first`, else in the folders of PATH.
pub fn find(name: &str, first: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(first.to_path_buf()).chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

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

/// A command that executes this program: a path, or a name that is searched in PATH. Root executes
/// nothing that another user could have written.
pub fn command(program: &Path) -> Result<Command> {
    let is_name = program.components().count() == 1;
    let found = match program.to_str().filter(|_| is_name && !program.is_file()) {
        Some(name) => find(name, Path::new("/nowhere")).with_context(|| format!("no {name}"))?,
        None => program.to_path_buf(),
    };
    let Some(trusted) = Trusted::of_root() else { return Ok(Command::new(found)) };
    let mut command = Command::new(trusted.check(&found)?);
    // Some programs are several, by the name of a link.
    command.arg0(found);
    Ok(command)
}

/// Replaces this process by a program of this workspace (exec). Returns only if that fails.
pub fn become_program(name: &str, arguments: &[String]) -> Failure {
    match beside(name).and_then(|path| command(&path)) {
        Ok(mut command) => Failure::internal(command.args(arguments).exec()),
        Err(error) => Failure::Internal(error),
    }
}
