// SPDX-License-Identifier: GPL-2.0-only

//! Recordings of simulated runs.

use crate::play::Case;
use crate::recording::write::{Header, Recorder};
use anyhow::{Context, Result};
use scx_pandemonium_user::record::{Entry, told_at_start};
use scx_pandemonium_user::sim::witness::{Event, Witness};
use scx_pandemonium_user::time::Stamp;
use std::fs::File;
use std::io::{BufWriter, Write};

/// A recording of `case`, which is about to be played, in a file.
pub fn create(path: &str, case: &Case, redact: bool) -> Result<Recorder<BufWriter<File>>> {
    let file = File::create(path).with_context(|| format!("cannot create {path}"))?;
    begin(BufWriter::new(file), case, redact)
}

/// A recording of `case`, which is about to be played.
pub fn begin<W: Write>(out: W, case: &Case, redact: bool) -> Result<Recorder<W>> {
    let header = Header {
        source: format!("{} (simulated)", case.trial.workload.name),
        policy: case.policy.name().to_owned(),
        redacted: redact,
    };
    let mut recorder = Recorder::new(out, &header)?;
    told_at_start(&case.trial.policy_setup(), |entry| recorder.add(&entry));
    Ok(recorder)
}

impl<W: Write> Witness for Recorder<W> {
    fn saw(&mut self, _now: Stamp, event: &Event) {
        match *event {
            Event::Began { now, view, .. } => self.add(&Entry::Began { now, view }),
            Event::Took(arrival) => self.add(&Entry::Took(arrival)),
            Event::Sent { dispatch, .. } => self.add(&Entry::Sent(dispatch)),
            Event::Refused(dispatch) => self.add(&Entry::Refused(dispatch)),
            Event::Exited(pid) => self.add(&Entry::Exited(pid)),
            Event::Applied(knobs) => self.add(&Entry::Applied(knobs.to_raw())),
            Event::Ended { round, rescues, .. } => {
                self.add(&Entry::Ended { pending: round.pending as u32, rescues });
            }
            _ => {}
        }
    }
}
