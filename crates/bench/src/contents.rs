// SPDX-License-Identifier: GPL-2.0-only

//! The contents of a report, which every output format shows.

use super::bars::BarResults;
use super::digest::Digest;
use super::results::Results;

/// A results file with everything derived from it.
pub struct Contents {
    pub results: Results,
    pub digest: Digest,
    /// Which bars are met, if a bars file was given.
    pub bars: Option<BarResults>,
}
