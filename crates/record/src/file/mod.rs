// SPDX-License-Identifier: GPL-2.0-only

//! Recording files: a magic number and a version, then, compressed by zstd, a JSON header and the
//! entries as words. Reading any file ends in a result or an error, whatever bytes it holds.

pub mod read;
pub mod repeat;
pub mod write;
