// SPDX-License-Identifier: GPL-2.0-only

//! Learned profiles of programs, from the supervisor to the worker and back.

use pandemonium_engine::procdb::codec::{WORDS, pack, unpack};
use pandemonium_engine::procdb::{CAPACITY, Profile};
use std::array;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Two buffers, written in turn, and the number of the last complete one. A worker that is killed
/// while it writes leaves the other buffer complete.
#[repr(C)]
pub struct ProgramsCell {
    seq: AtomicU64,
    buffers: [Buffer; 2],
}

#[repr(C)]
struct Buffer {
    len: AtomicU64,
    cells: [[AtomicU64; WORDS]; CAPACITY as usize],
}

impl ProgramsCell {
    /// Publishes profiles, as many as fit. There is one writer at a time: the supervisor before it
    /// starts a worker, then the worker. Allocates nothing.
    pub fn publish(&self, profiles: &[Profile]) {
        let next = self.seq.load(Ordering::Relaxed) + 1;
        // A reader that sees one of the stores below sees the number from before them too.
        fence(Ordering::Release);
        let buffer = &self.buffers[next as usize % 2];
        let len = profiles.len().min(buffer.cells.len());
        buffer.len.store(len as u64, Ordering::Relaxed);
        for (cells, profile) in buffer.cells.iter().zip(profiles) {
            for (cell, word) in cells.iter().zip(pack(profile)) {
                cell.store(word, Ordering::Relaxed);
            }
        }
        self.seq.store(next, Ordering::Release);
    }

    /// The profiles of the last complete buffer.
    pub fn read(&self) -> Vec<Profile> {
        loop {
            let seq = self.seq.load(Ordering::Acquire);
            let profiles = self.buffers[seq as usize % 2].read();
            fence(Ordering::Acquire);
            // A buffer is overwritten only after the other one is complete, seconds later.
            if self.seq.load(Ordering::Relaxed) == seq {
                return profiles;
            }
        }
    }

    /// A number that changes whenever [`read`](Self::read) has something new.
    pub fn version(&self) -> u64 {
        self.seq.load(Ordering::Relaxed)
    }
}

impl Buffer {
    fn read(&self) -> Vec<Profile> {
        let len = (self.len.load(Ordering::Relaxed) as usize).min(self.cells.len());
        let word = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let entry = |cells: &[AtomicU64; WORDS]| unpack(&array::from_fn(|i| word(&cells[i])));
        self.cells[..len].iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::shared::Shared;
    use pandemonium_engine::procdb::{CAPACITY, Profile, Program};
    use pandemonium_engine::task::{Comm, User};

    fn named(names: &[&str]) -> Vec<Profile> {
        let program = |name| Program { comm: Comm::from_text(name), user: User::new(1_000) };
        names.iter().map(|name| Profile::unseen(program(name))).collect()
    }

    #[test]
    fn readers_get_the_last_complete_list() {
        let shared = Shared::create().unwrap();
        let programs = &shared.programs;
        assert_eq!(programs.read(), []);
        programs.publish(&named(&["make", "cc1", "ld"]));
        assert_eq!(programs.read(), named(&["make", "cc1", "ld"]));
        let version = programs.version();
        programs.publish(&named(&["make"]));
        assert_eq!(programs.read(), named(&["make"]));
        assert_ne!(programs.version(), version);
        // A worker that is killed in the middle of the next buffer leaves this one complete.
        let current = programs.version() as usize % 2;
        programs.publish(&named(&["cc1", "ld"]));
        assert_eq!(programs.buffers[current].read(), named(&["make"]));
        assert_eq!(programs.read(), named(&["cc1", "ld"]));
        programs.publish(&vec![Profile::default(); CAPACITY as usize + 5]);
        assert_eq!(programs.read().len(), CAPACITY as usize);
    }
}
