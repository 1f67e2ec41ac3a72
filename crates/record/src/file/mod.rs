// SPDX-License-Identifier: GPL-2.0-only

//! Recordings as files: a magic number, a version, and compressed by zstd a header in JSON and the
//! entries in words. Whatever bytes a file holds, reading it ends in a result or an error.

pub mod read;
pub mod repeat;
pub mod write;
