// SPDX-License-Identifier: GPL-2.0-only

//! A kernel image that can be booted.

use std::path::PathBuf;

/// A kernel to boot.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// A short name for console logs and table rows.
    pub name: String,
    pub image: PathBuf,
}
