// SPDX-License-Identifier: GPL-2.0-only

//! Recordings as files: a magic number, a version, and compressed by zstd a header in JSON and the
//! entries in words. Whatever a file holds, reading and replaying it end in a result or an error.
//!
//! These files know the library and nothing of the program around them: the scheduler writes by
//! [`write`], and `fuzz/` reads and replays.

#[cfg(test)]
#[path = "../../../../fuzz/fuzz_targets/any_bytes.rs"]
mod any_bytes;
pub mod read;
pub mod repeat;
pub mod write;
