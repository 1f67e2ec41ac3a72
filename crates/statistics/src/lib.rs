// SPDX-License-Identifier: GPL-2.0-only

//! What benchmarks and simulations say about their numbers: figures, samples, verdicts, pictures.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod figure;
#[cfg(feature = "draw")]
pub mod grid;
pub mod noise;
#[cfg(feature = "draw")]
pub mod page;
#[cfg(feature = "draw")]
pub mod picture;
pub mod sample;
pub mod verdict;
