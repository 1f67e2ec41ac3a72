// SPDX-License-Identifier: GPL-2.0-only

//! Shared by host and guest for the lab: how the arguments of `bench run` reach the guest, and how
//! its results come back piece by piece.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// The lists of a results file that grow while it is measured.
const LISTS: [&str; 2] = ["runs", "failures"];
/// Separates words; no argument contains it.
const WORD: char = ';';
/// A blank inside a word, encoded as in URLs.
const BLANK: &str = "%20";

/// All words as one word of the kernel command line. Refuses a word that it cannot carry.
pub fn to_word(words: &[String]) -> Result<String> {
    for word in words {
        let odd =
            |c: char| c == WORD || c == '"' || c == '%' || !(c == ' ' || c.is_ascii_graphic());
        ensure!(
            !word.is_empty() && !word.contains(odd),
            "{word:?} has a character that the kernel command line cannot carry"
        );
    }
    Ok(words.join(&WORD.to_string()).replace(' ', BLANK))
}

/// The words again.
pub fn from_word(word: &str) -> Vec<String> {
    word.replace(BLANK, " ").split(WORD).map(str::to_string).collect()
}

/// Splits a growing results file into pieces.
#[derive(Default)]
pub struct Sender {
    /// Lengths of the lists when the last piece was sent.
    sent: Option<[usize; 2]>,
}

impl Sender {
    /// What is new in `results`, if anything: at first all of it.
    pub fn news(&mut self, results: &Value) -> Option<Value> {
        let lengths = LISTS.map(|list| results[list].as_array().map_or(0, Vec::len));
        let before = self.sent.replace(lengths);
        let Some(before) = before else { return Some(results.clone()) };
        if before == lengths && results["complete"] != true {
            return None;
        }
        let mut news = json!({ "complete": results["complete"] });
        for (list, before) in LISTS.iter().zip(before) {
            let new = results[*list].as_array().map(|all| all[before..].to_vec());
            news[*list] = Value::Array(new.unwrap_or_default());
        }
        Some(news)
    }
}

/// Joins the pieces of a boot, and the boots.
#[derive(Default)]
pub struct Receiver {
    results: Option<Value>,
}

impl Receiver {
    /// Adds a piece. The head is that of the first boot; later boots add only to the lists.
    pub fn take(&mut self, piece: &Value) -> Result<()> {
        let Some(results) = &mut self.results else {
            ensure!(piece["format"].is_string(), "the first piece of the results has no format");
            self.results = Some(piece.clone());
            return Ok(());
        };
        for list in LISTS {
            let new = piece[list].as_array().context("a piece of the results lacks a list")?;
            let all = results[list].as_array_mut().context("the results lack a list")?;
            all.extend(new.iter().cloned());
        }
        results["complete"] = piece["complete"].clone();
        let cpus = &piece["machine"]["cpus"];
        if cpus.as_u64() > results["machine"]["cpus"].as_u64() {
            results["machine"]["cpus"] = cpus.clone();
        }
        Ok(())
    }

    /// What has arrived until now.
    pub fn results(&mut self) -> Option<&mut Value> {
        self.results.as_mut()
    }
}
