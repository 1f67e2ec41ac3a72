// SPDX-License-Identifier: GPL-2.0-only

//! The function of a fuzz target: takes any bytes as a results file. The outcome is an error or a
//! report in every format, never a panic.

use crate::contents::Contents;
use crate::digest::Digest;
use crate::{export, html, results, terminal};

/// A results file.
pub fn results(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let results = match results::parse(text) {
        Ok(results) => results,
        Err(error) => return drop(format!("{error:#}")),
    };
    let digest = Digest::new(&results);
    let contents = Contents { results, digest, bars: None };
    let _ = terminal::text(&contents, Some(80));
    let _ = (export::csv(&contents.results), export::prometheus(&contents));
    let _ = (export::json(&contents), html::page(&contents));
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_results_are_reported_or_refused() {
        pandemonium_seeds::survives("results", 200, super::results);
    }
}
