// SPDX-License-Identifier: GPL-2.0-only

//! Knobs on their way from the supervisor to the worker.

use pandemonium_engine::knobs::{KEYS, Knobs};
use std::array;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The newest knobs, and a number that is odd while they are being written and different after.
/// The worker never waits: knobs that are being written are taken up a round later.
#[repr(C)]
pub struct KnobsCell {
    seq: AtomicU64,
    words: [AtomicU64; KEYS],
}

impl KnobsCell {
    /// Hands knobs to the worker. Callers take turns.
    pub fn publish(&self, knobs: &Knobs) {
        let seq = self.seq.load(Ordering::Relaxed);
        self.seq.store(seq + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (cell, word) in self.words.iter().zip(knobs.to_raw()) {
            cell.store(word, Ordering::Relaxed);
        }
        self.seq.store(seq + 2, Ordering::Release);
    }

    /// The knobs, if others were published since the number that `seen` holds. One load when not.
    pub fn newer(&self, seen: &mut u64) -> Option<Knobs> {
        let seq = self.seq.load(Ordering::Relaxed);
        if seq == *seen || seq % 2 == 1 {
            return None;
        }
        fence(Ordering::Acquire);
        let raw = array::from_fn(|i| self.words[i].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if self.seq.load(Ordering::Relaxed) != seq {
            return None;
        }
        *seen = seq;
        Knobs::from_raw(&raw)
    }
}

#[cfg(test)]
mod tests {
    use crate::shared::Shared;
    use pandemonium_engine::knobs::Knobs;
    use std::sync::atomic::Ordering;

    #[test]
    fn each_change_is_seen_once_and_never_half() {
        let shared = Shared::create().unwrap();
        let mut seen = 0;
        assert_eq!(shared.knobs.newer(&mut seen), None, "nobody has said anything yet");
        let mut knobs = Knobs::default();
        shared.knobs.publish(&knobs);
        assert_eq!(shared.knobs.newer(&mut seen), Some(knobs));
        assert_eq!(shared.knobs.newer(&mut seen), None);

        knobs.set("slice_us=750").unwrap();
        knobs.set("rule.deficit=off").unwrap();
        shared.knobs.publish(&knobs);
        // As a writer leaves it who is interrupted in between.
        shared.knobs.seq.fetch_sub(1, Ordering::Relaxed);
        assert_eq!(shared.knobs.newer(&mut seen), None);
        shared.knobs.seq.fetch_add(1, Ordering::Relaxed);
        assert_eq!(shared.knobs.newer(&mut seen), Some(knobs));
        assert_eq!(shared.knobs.newer(&mut 0), Some(knobs), "a new worker begins with the newest");
    }
}
