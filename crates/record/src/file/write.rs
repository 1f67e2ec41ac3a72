// SPDX-License-Identifier: GPL-2.0-only

//! Writes a recording. Both the scheduler (`src/record.rs`) and the lab use it.

use super::differences::{BYTES_MAX, Packer};
use crate::{Damage, Entry, WORDS_MAX, decode, encode};
use anyhow::{Context, Result};
use pandemonium_engine::task::Comm;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;

/// The first bytes of every recording.
pub const MAGIC: &[u8; 8] = b"PNDMREC\n";
/// Raised when the meaning of an entry or of the header changes. Readers refuse later versions.
/// 2: a policy's setup is recorded as entries, and the times and reasons of tasks are kept.
/// 3: a round's view has the set of busy CPUs.
/// 4: tasks have more facts.
/// 5: settings are those of the policy in the header; rescues are counted per round.
/// 8: tasks and learned profiles have a user.
/// 9: a round's view tells how many decided tasks wait.
/// 10: treatments have a domain.
/// 11: the topology is recorded again when it changes.
/// 12: words are told by their differences, and no longer compressed by zstd.
pub const VERSION: u32 = 12;
/// The earliest format that readers accept: what it lacks has a value that says so.
pub const OLDEST: u32 = 7;
/// Bytes that are written at once: a system call costs as much as some hundred entries.
const GATHERED: usize = 64 * 1024;

/// Describes a recording.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Its origin: a simulated workload, or a machine.
    pub source: String,
    /// The name of the recorded policy.
    pub policy: String,
    /// Whether program names are replaced.
    pub redacted: bool,
}

/// Names that are replaced by numbers of their own. Tasks can rename themselves as often as they
/// like; all further names share one replacement, so that redaction takes a bounded amount of
/// memory.
const REPLACED_MAX: usize = 1 << 16;
/// The replacement that they share.
const OTHER: &str = "program-other";

/// Writes a recording.
pub struct Recorder<W: Write> {
    out: W,
    packer: Packer,
    /// Entries that are not written yet, with room for another one, and the number of bytes.
    gathered: Box<[u8; GATHERED + BYTES_MAX]>,
    filled: usize,
    /// Entries added so far.
    pub entries: u64,
    redactor: Option<Redactor>,
    /// The first write error; after it nothing more is written.
    pub failure: Option<std::io::Error>,
}

impl<W: Write> Recorder<W> {
    /// Starts a recording: writes the header to `out`. Redaction keeps names with a prefix in
    /// `kept`.
    pub fn new(mut out: W, header: &Header, kept: &'static [&'static str]) -> Result<Self> {
        let json = serde_json::to_vec(header)?;
        let length = json.len() as u32;
        out.write_all(&[MAGIC, &VERSION.to_le_bytes()[..], &length.to_le_bytes(), &json].concat())?;
        let redactor = header.redacted.then(|| Redactor { kept, ..Redactor::default() });
        Ok(Recorder {
            out,
            packer: Packer::new(),
            gathered: Box::new([0; _]),
            filled: 0,
            entries: 0,
            redactor,
            failure: None,
        })
    }

    /// Adds an entry. A write error is kept in `failure`.
    pub fn add(&mut self, entry: &Entry) {
        let mut entry = *entry;
        if let Some(redactor) = &mut self.redactor {
            redactor.redact(&mut entry);
        }
        let mut words = [0; WORDS_MAX];
        let length = encode(&entry, &mut words);
        // What `encode` writes is no damage.
        let _ = self.gather(&words[..length]);
    }

    /// The same, with an entry as words. Only for redaction they are decoded: else what they hold
    /// is found by a reader.
    pub fn add_words(&mut self, words: &[u64]) -> Result<(), Damage> {
        if self.redactor.is_none() {
            return self.gather(words);
        }
        self.add(&decode(words)?);
        Ok(())
    }

    fn gather(&mut self, words: &[u64]) -> Result<(), Damage> {
        if let (Some(place), None) = (self.gathered[self.filled..].first_chunk_mut(), &self.failure)
        {
            self.filled += self.packer.pack(words, place)?;
            self.entries += 1;
        }
        if self.filled > GATHERED {
            self.pass_on();
        }
        Ok(())
    }

    fn pass_on(&mut self) {
        let done = self.out.write_all(&self.gathered[..self.filled]);
        self.filled = 0;
        self.failure = self.failure.take().or(done.err());
    }

    /// Completes the file. A file without the final entry is known to be truncated.
    pub fn finish(mut self) -> Result<W> {
        let entries = self.entries;
        self.add(&Entry::Finished(entries));
        self.pass_on();
        if let Some(error) = self.failure {
            return Err(error).context("cannot write the recording");
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Replaces program names. Each name always gets the same replacement, so that learned profiles
/// still match. Names on which the policies act are kept: without them a replay would decide
/// differently. Two differences remain: if the process database is full, the order of names
/// breaks ties between the longest unseen programs when it evicts one, and beyond
/// [`REPLACED_MAX`] names further ones count as one program.
#[derive(Default)]
struct Redactor {
    replaced: BTreeMap<Comm, Comm>,
    acted_on: Vec<Comm>,
    /// Prefixes of names that reveal nothing about a person.
    kept: &'static [&'static str],
}

impl Redactor {
    fn redact(&mut self, entry: &mut Entry) {
        match entry {
            // Each start of a scheduler names its own.
            Entry::Started { .. } => self.acted_on.clear(),
            Entry::Named(name, _) => self.acted_on.push(*name),
            Entry::Took(arrival) => arrival.comm = self.name(arrival.comm),
            Entry::Remembered(memo) => memo.comm = self.name(memo.comm),
            Entry::Known(profile) => profile.program.comm = self.name(profile.program.comm),
            _ => {}
        }
    }

    fn name(&mut self, comm: Comm) -> Comm {
        let name = comm.as_bytes();
        let begins = |known: &[u8]| name.starts_with(known);
        let stays = self.kept.iter().any(|known| begins(known.as_bytes()))
            || self.acted_on.iter().any(|known| begins(known.as_bytes()))
            || begins(b"kworker/")
            || name.is_empty();
        if stays {
            return comm;
        }
        let number = self.replaced.len();
        if number >= REPLACED_MAX && !self.replaced.contains_key(&comm) {
            return Comm::from_text(OTHER);
        }
        let new = || Comm::from_text(&format!("program-{number}"));
        *self.replaced.entry(comm).or_insert_with(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pandemonium_engine::task::Tier;

    #[test]
    fn redaction_keeps_a_bounded_number_of_names_and_hides_the_others_too() {
        let mut redactor = Redactor::default();
        let own = |number: usize| Comm::from_text(&format!("secret-{number}"));
        let hidden: Vec<Comm> =
            (0..REPLACED_MAX + 9).map(|number| redactor.name(own(number))).collect();
        assert_eq!(redactor.replaced.len(), REPLACED_MAX);
        assert_eq!(hidden[REPLACED_MAX - 1], Comm::from_text("program-65535"));
        assert!(hidden[REPLACED_MAX..].iter().all(|name| *name == Comm::from_text(OTHER)));
        assert_eq!(redactor.name(own(3)), hidden[3], "a known name keeps its replacement");
    }

    #[test]
    fn names_that_only_an_earlier_start_acted_on_are_replaced() {
        let mut redactor = Redactor::default();
        let game = Comm::from_text("game");
        redactor.redact(&mut Entry::Named(game, Tier::Interactive));
        assert_eq!(redactor.name(game), game);
        redactor.redact(&mut Entry::Started { cpus: 2 });
        assert_ne!(redactor.name(game), game);
    }
}
