// SPDX-License-Identifier: GPL-2.0-only

//! Recording files: a magic number and a version, a JSON header with its length, and the entries by
//! their differences. Reading any file ends in a result or an error, whatever bytes it holds.

mod differences;
pub mod read;
pub mod repeat;
pub mod write;
