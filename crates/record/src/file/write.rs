// SPDX-License-Identifier: GPL-2.0-only

//! Writing a recording. The scheduler (`src/driver/record.rs`) compiles this file too.

use crate::{Entry, WORDS_MAX, encode};
use anyhow::{Context, Result};
use pandemonium_engine::task::Comm;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;

pub const MAGIC: &[u8; 8] = b"PNDMREC\n";
/// Raised when an entry or the header changes its meaning. Other versions are refused.
/// 2: what a policy is told at its start is entries, and the times and reasons of tasks are kept.
/// 3: the view of a round tells which CPUs are busy.
/// 4: more facts of a task.
pub const VERSION: u32 = 4;
/// Of zstd: the fastest of the usual ones, since it competes with what is recorded.
const LEVEL: i32 = 1;
/// Entries are gathered in so many bytes before they are compressed: a call for each word costs
/// more than the compression.
const GATHERED: usize = 64 * 1024;

/// What a recording is of.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Where it comes from: a simulated workload, or a machine.
    pub source: String,
    pub policy: String,
    /// Whether names of programs are replaced.
    pub redacted: bool,
}

/// Writes a recording.
pub struct Recorder<W: Write> {
    out: zstd::Encoder<'static, W>,
    /// Entries that are not compressed yet.
    gathered: Vec<u8>,
    /// How many entries were added.
    pub entries: u64,
    redactor: Option<Redactor>,
    /// What went wrong while writing; from then on nothing is written.
    pub failure: Option<std::io::Error>,
}

impl<W: Write> Recorder<W> {
    pub fn new(mut out: W, header: &Header, kept: &'static [&'static str]) -> Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let mut out = zstd::Encoder::new(out, LEVEL)?;
        let json = serde_json::to_vec(header)?;
        out.write_all(&(json.len() as u32).to_le_bytes())?;
        out.write_all(&json)?;
        let redactor = header.redacted.then(|| Redactor { kept, ..Redactor::default() });
        let gathered = Vec::with_capacity(GATHERED);
        Ok(Recorder { out, gathered, entries: 0, redactor, failure: None })
    }

    /// Adds an entry. An error is kept for the end.
    pub fn add(&mut self, entry: &Entry) {
        let mut entry = *entry;
        if let Some(redactor) = &mut self.redactor {
            redactor.redact(&mut entry);
        }
        if self.failure.is_none() {
            self.failure = self.write(&entry).err();
        }
    }

    fn write(&mut self, entry: &Entry) -> std::io::Result<()> {
        let mut words = [0; WORDS_MAX];
        let length = encode(entry, &mut words);
        self.entries += 1;
        if self.gathered.len() + 8 * length > GATHERED {
            self.pass_on()?;
        }
        self.gathered.extend(words[..length].iter().flat_map(|word| word.to_le_bytes()));
        Ok(())
    }

    fn pass_on(&mut self) -> std::io::Result<()> {
        let done = self.out.write_all(&self.gathered);
        self.gathered.clear();
        done
    }

    /// Completes the file: one without its end is known to be cut off.
    pub fn finish(mut self) -> Result<W> {
        let entries = self.entries;
        self.add(&Entry::Finished(entries));
        if self.failure.is_none() {
            self.failure = self.pass_on().err();
        }
        if let Some(error) = self.failure {
            return Err(error).context("cannot write the recording");
        }
        let mut out = self.out.finish()?;
        out.flush()?;
        Ok(out)
    }
}

/// Replaces the names of programs: the same one by the same, so that what was learned of a name
/// still belongs to it. Names that the policies act on stay: without them a replay would decide
/// otherwise. Only where more programs are known than the process database has room for can the
/// order of names decide, which of the longest unseen one is forgotten first.
#[derive(Default)]
struct Redactor {
    replaced: BTreeMap<Comm, Comm>,
    acted_on: Vec<Comm>,
    /// Beginnings of names that say nothing about a person.
    kept: &'static [&'static str],
}

impl Redactor {
    fn redact(&mut self, entry: &mut Entry) {
        match entry {
            Entry::Named(name, _) => self.acted_on.push(*name),
            Entry::Took(arrival) => arrival.comm = self.name(arrival.comm),
            Entry::Remembered(memo) => memo.comm = self.name(memo.comm),
            Entry::Known(profile) => profile.comm = self.name(profile.comm),
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
        let new = || Comm::from_text(&format!("program-{number}"));
        *self.replaced.entry(comm).or_insert_with(new)
    }
}
