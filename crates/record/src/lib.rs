// SPDX-License-Identifier: GPL-2.0-only

//! What goes into a policy and comes out of it, written down: enough to repeat every decision.
//!
//! ```text
//! Tap (a port around the port) --> encode --> ring (words in shared memory) --> a file
//! ```
//!
//! Nothing here allocates or waits: an entry is at most [`WORDS_MAX`] words, the ring has a fixed
//! size, and what does not fit is dropped and counted. A worker can therefore record on its hot
//! thread; another process takes the words out and writes them.

#![forbid(unsafe_code)]
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

use pandemonium_engine::knobs::{KEYS, Knobs};
use pandemonium_engine::procdb::{Minute, Profile};
use pandemonium_engine::task::{Arrival, Comm, Dispatch, Pid, Tier};
use pandemonium_engine::time::Stamp;
use pandemonium_engine::topology::{CpuPlace, Domain};
use pandemonium_engine::{MachineView, Memo};

/// One thing that a policy was told, or said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A policy begins, with limits for so many CPUs. What follows, up to the first entry of
    /// another kind, says what else it is told: [`Start`] gathers it.
    Started {
        /// How many CPUs limits are derived from.
        cpus: u32,
    },
    /// Where the next CPU is, from CPU 0 on.
    Place(CpuPlace),
    /// Programs whose names begin so belong to a tier.
    Named(Comm, Tier),
    /// CPUs to prefer.
    Preferred(Domain),
    /// What an earlier scheduler knew of a task.
    Remembered(Memo),
    /// What was learned of a program, to be told with the next [`Entry::Learned`].
    Known(Profile),
    /// What was learned of programs is told now.
    Learned(Minute),
    /// What time it is for what is learned of programs.
    Minute(Minute),
    /// A round begins.
    Began {
        /// Its clock.
        now: Stamp,
        /// What it is told of the machine.
        view: MachineView,
    },
    /// A task is taken in.
    Took(Arrival),
    /// A decision was accepted.
    Sent(Dispatch),
    /// A decision was refused.
    Refused(Dispatch),
    /// A round ended, with so many tasks left.
    Ended {
        /// Tasks that still wait.
        pending: u32,
        /// Decisions taken for age so far.
        rescues: u64,
    },
    /// A task is gone.
    Exited(Pid),
    /// New settings, in the order of [`Knobs::to_raw`].
    Applied([u64; KEYS]),
    /// Entries that were dropped before this one, for want of room.
    Dropped(u64),
    /// The recording is complete: so many entries, this one not counted.
    Finished(u64),
}

impl Entry {
    /// The settings of an [`Entry::Applied`].
    pub fn knobs(raw: &[u64; KEYS]) -> Option<Knobs> {
        Knobs::from_raw(raw)
    }
}
