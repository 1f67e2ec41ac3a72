// SPDX-License-Identifier: GPL-2.0-only

//! Whether files and directories are this user's alone to change. The scheduler runs as root, and a
//! path may come from the command line.

pub use pandemonium_host::trust::Refused;

use pandemonium_host::durable;
use pandemonium_host::trust::Trusted;
use std::fs::{File, Metadata};
use std::path::Path;

/// Opens a directory if only root and this user can change what is in it. Operations through the
/// returned file stay in that directory.
pub fn directory(path: &Path) -> Result<File, Refused> {
    let real = Trusted::of_this_user().real_path(path).map_err(|refused| match refused {
        Refused::Distrusted(why) => Refused::Distrusted(format!("the directory {why}")),
        unopened => unopened,
    })?;
    Ok(durable::directory(&real)?)
}

/// Why another user than root and this one could change a file; `None` if none could.
pub fn distrust_file(meta: &Metadata) -> Option<String> {
    Trusted::of_this_user().distrusts(meta, false)
}
