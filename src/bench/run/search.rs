// SPDX-License-Identifier: GPL-2.0-only

//! Where programs are looked for.

use std::path::{Path, PathBuf};

/// A program in this folder, else in the first folder of PATH that has it.
pub fn program(name: &str, first: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(first.to_path_buf()).chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}
