// SPDX-License-Identifier: GPL-2.0-only

//! What the programs around a sched_ext scheduler share.
//!
//! | module | content |
//! |---|---|
//! | [`failure`] | why a program fails, with an exit code for each reason |
//! | [`preflight`] | whether this machine can load a scheduler, checked before loading one |
//! | [`durable`] | files that a crash leaves either old or new, never half written |
//! | [`ejection`] | why the kernel ejected a scheduler, in words |
//! | [`program`] | finding and starting the other programs of this workspace |
//! | [`trust`] | what root uses only if no other user could have written it |
//! | [`mod@print`], [`usage`] | output to a terminal or a pipe |
//!
//! ```
//! use pandemonium_host::durable::{self, Existing};
//! use std::io::Write;
//!
//! # fn main() -> anyhow::Result<()> {
//! let directory = durable::directory(&std::env::temp_dir())?;
//! let name = format!("results-{}.json", std::process::id());
//! durable::put(&directory, name.as_ref(), Existing::Replaced, |file| file.write_all(b"{}"))?;
//! assert_eq!(std::fs::read(std::env::temp_dir().join(&name))?, b"{}");
//! # std::fs::remove_file(std::env::temp_dir().join(&name))?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod durable;
pub mod ejection;
pub mod failure;
pub mod preflight;
pub mod program;
pub mod usage;

pub use pandemonium_print as print;
pub use pandemonium_trust as trust;

/// The version of the programs of this workspace, with the git commit and the target.
pub fn version() -> String {
    scx_utils::build_id::full_version(env!("CARGO_PKG_VERSION"))
}
