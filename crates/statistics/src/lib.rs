// SPDX-License-Identifier: GPL-2.0-only

//! Statistics for benchmarks of CPU schedulers: which differences between two sets of measurements
//! are real, and how to show them.
//!
//! | module | content |
//! |---|---|
//! | [`figure`] | a measured number with its unit, and a distribution |
//! | [`sample`] | repeated values of one figure, and the Mann-Whitney rank test |
//! | [`verdict`] | better, worse, or why neither: rank test, Benjamini-Hochberg, minimum size |
//! | `table` | text tables and CSV (feature `draw`) |
//! | `page` | HTML fragments (feature `draw`) |
//! | `picture` | latency curves as SVG (feature `draw`) |
//! | [`mix`] | the parts of a workload drawn by lot, and a judge for sets of them |
//! | [`noise`] | reproducible noise for tests |
//!
//! ```
//! use pandemonium_statistics::figure::Better;
//! use pandemonium_statistics::sample::Sample;
//! use pandemonium_statistics::verdict::{Pair, Verdict, judge};
//!
//! // p99 wakeup latency in us, five iterations under each scheduler.
//! let base = Sample::new(vec![1419.0, 1380.0, 1455.0, 1402.0, 1431.0]);
//! let sample = Sample::new(vec![121.0, 118.0, 130.0, 125.0, 119.0]);
//! let verdicts = judge(&[Pair { base: &base, sample: &sample, better: Better::Lower }]);
//! assert_eq!(verdicts, [Verdict::Better]);
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod figure;
pub mod mix;
pub mod noise;
#[cfg(feature = "draw")]
pub mod page;
#[cfg(feature = "draw")]
pub mod picture;
pub mod sample;
#[cfg(feature = "draw")]
pub mod table;
pub mod verdict;
