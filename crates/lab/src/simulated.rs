// SPDX-License-Identifier: GPL-2.0-only

//! Recordings of simulated runs.

use crate::play::Case;
use anyhow::{Context, Result};
use pandemonium_engine::time::Stamp;
use pandemonium_policies::COMPOSITORS;
use pandemonium_record::file::write::{Header, Recorder};
use pandemonium_record::{Entry, told_at_start};
use pandemonium_sim::observer::{Event, Observer};
use std::fs::File;
use std::io::{BufWriter, Write};

/// A recording of a simulated run, which it watches.
pub struct Simulated<W: Write>(Recorder<W>);

impl<W: Write> Simulated<W> {
    /// Adds an entry by hand.
    #[cfg(test)]
    pub fn add(&mut self, entry: &Entry) {
        self.0.add(entry);
    }

    /// Completes the recording.
    pub fn finish(self) -> Result<W> {
        self.0.finish()
    }
}

/// A recording of `case`, which is about to be played, in a file.
pub fn create(path: &str, case: &Case, redact: bool) -> Result<Simulated<BufWriter<File>>> {
    let file = File::create(path).with_context(|| format!("cannot create {path}"))?;
    begin(BufWriter::new(file), case, redact)
}

/// A recording of `case`, which is about to be played.
pub fn begin<W: Write>(out: W, case: &Case, redact: bool) -> Result<Simulated<W>> {
    let header = Header {
        source: format!("{} (simulated)", case.trial.workload.name),
        policy: case.policy().name.to_owned(),
        redacted: redact,
    };
    let mut recorder = Recorder::new(out, &header, &COMPOSITORS)?;
    told_at_start(&case.trial.policy_setup(), |entry| recorder.add(&entry));
    Ok(Simulated(recorder))
}

impl<W: Write> Observer for Simulated<W> {
    fn saw(&mut self, _now: Stamp, event: &Event) {
        match *event {
            Event::Began { now, view, .. } => self.0.add(&Entry::Began { now, view }),
            Event::Took(arrival) => self.0.add(&Entry::Took(arrival)),
            Event::Sent { dispatch, .. } => self.0.add(&Entry::Sent(dispatch)),
            Event::Refused(dispatch) => self.0.add(&Entry::Refused(dispatch)),
            Event::Exited(pid) => self.0.add(&Entry::Exited(pid)),
            Event::Applied(values) => self.0.add(&Entry::Applied(values.raw())),
            Event::Ended { round, .. } => {
                let (pending, rescues) = (round.pending as u32, u64::from(round.rescues));
                self.0.add(&Entry::Ended { pending, rescues });
            }
            _ => {}
        }
    }
}
