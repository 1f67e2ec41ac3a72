// SPDX-License-Identifier: GPL-2.0-only

//! Recordings: everything that a policy is told and decides, so that a replay can repeat every
//! decision.
//!
//! ```text
//! Tap (wraps the port) --> encode --> ring (words in shared memory) --> file
//! ```
//!
//! Recording neither allocates nor waits: an entry has at most [`WORDS_MAX`] words, the ring has a
//! fixed size, and entries that do not fit are dropped and counted. So the scheduler can record in
//! its main loop; another process reads the words and writes the file.
//!
//! ```
//! use pandemonium_engine::task::Pid;
//! use pandemonium_record::Entry;
//! use pandemonium_record::file::read::Recording;
//! use pandemonium_record::file::write::{Header, Recorder};
//!
//! # fn main() -> anyhow::Result<()> {
//! let header = Header { source: "example".into(), policy: "fifo".into(), redacted: false };
//! let exit = Entry::Exited(Pid::new(4711).unwrap());
//! let mut recorder = Recorder::new(Vec::new(), &header, &[])?;
//! recorder.add(&exit);
//! let bytes = recorder.finish()?;
//!
//! let mut recording = Recording::new(&bytes[..])?;
//! assert_eq!(recording.next_entry()?, Some(exit));
//! assert_eq!(recording.next_entry()?, None);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
// An entry is `Copy`: recording allocates nothing.
#![allow(clippy::large_enum_variant)]
#![warn(missing_docs)]

extern crate alloc;

mod codec;
pub mod file;
mod ring;
mod setup;
mod tap;

pub use codec::{Damage, WORDS_MAX, decode, encode, length};
pub use ring::{Reader, Writer, ring_words};
pub use setup::{Start, told_at_start};
pub use tap::Tap;

use pandemonium_engine::knobs::RawKnobs;
use pandemonium_engine::procdb::{Minute, Profile};
use pandemonium_engine::task::{Arrival, Comm, Dispatch, Pid, Tier};
use pandemonium_engine::time::Stamp;
use pandemonium_engine::topology::{CpuPlace, Domain};
use pandemonium_engine::treatment::{Assignment, Treatment};
use pandemonium_engine::{MachineView, Memo};

/// One event of a policy's input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A policy starts. The entries that follow, up to the first one of another kind, hold the rest
    /// of its setup: [`Start`] gathers them.
    Started {
        /// The number of CPUs from which the policy derives its limits.
        cpus: u32,
    },
    /// The topology of the next CPU, from CPU 0 on: part of the setup at a start, else given to the
    /// policy with the next [`Entry::PlacedAll`].
    Place(CpuPlace),
    /// Program names that start with this prefix belong to the tier.
    Named(Comm, Tier),
    /// The domain: CPUs to prefer.
    Preferred(Domain),
    /// What an earlier instance of the scheduler knew of a task.
    Remembered(Memo),
    /// A program's learned profile, given to the policy with the next [`Entry::Learned`].
    Known(Profile),
    /// The policy receives the preceding profiles.
    Learned(Minute),
    /// The policy is told the current minute, which ages the profiles.
    Minute(Minute),
    /// A treatment that the user demands, given to the policy with the next [`Entry::AssignedAll`].
    Treated(Treatment),
    /// A process that gets one, likewise.
    Assigned(Assignment),
    /// The policy receives the preceding treatments and processes, so many of the latter.
    AssignedAll(u32),
    /// The policy receives the preceding places, so many of them, as its new topology.
    PlacedAll(u32),
    /// A round begins.
    Began {
        /// The time.
        now: Stamp,
        /// What the policy sees of the machine.
        view: MachineView,
    },
    /// The policy received a task.
    Took(Arrival),
    /// A decision was accepted.
    Sent(Dispatch),
    /// A decision was refused.
    Refused(Dispatch),
    /// A round ended.
    Ended {
        /// Tasks that are still queued in the policy.
        pending: u32,
        /// Tasks that the round rescued because they had waited too long.
        rescues: u64,
    },
    /// The policy was told that a task exited.
    Exited(Pid),
    /// New settings, as [`Values::raw`](pandemonium_engine::knobs::Values::raw) encodes them.
    Applied(RawKnobs),
    /// Entries that were dropped before this one because the ring was full.
    Dropped(u64),
    /// The recording is complete and has this many entries, not counting this one.
    Finished(u64),
}
