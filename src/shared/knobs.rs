// SPDX-License-Identifier: GPL-2.0-only

//! Knobs, from the supervisor to the worker.

use pandemonium_engine::knobs::{KNOBS_MAX, RawKnobs, Table, Values};
use std::array;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The newest values, and a sequence number: odd while the supervisor writes. The worker never
/// waits: it takes up values that are being written a round later.
#[repr(C)]
pub struct KnobsCell {
    seq: AtomicU64,
    len: AtomicU64,
    words: [AtomicU64; KNOBS_MAX],
}

impl KnobsCell {
    /// Publishes values. Callers take turns.
    pub fn publish(&self, values: &Values) {
        let raw = values.raw();
        let seq = self.seq.load(Ordering::Relaxed);
        self.seq.store(seq + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.len.store(raw.len.into(), Ordering::Relaxed);
        for (cell, word) in self.words.iter().zip(raw.words) {
            cell.store(word, Ordering::Relaxed);
        }
        self.seq.store(seq + 2, Ordering::Release);
    }

    /// The values of the knobs of `table`, if their sequence number differs from the one in `seen`.
    /// One load if it does not.
    pub fn newer(&self, table: &'static Table, seen: &mut u64) -> Option<Values> {
        let seq = self.seq.load(Ordering::Relaxed);
        if seq == *seen || seq % 2 == 1 {
            return None;
        }
        fence(Ordering::Acquire);
        let words = array::from_fn(|i| self.words[i].load(Ordering::Relaxed));
        let raw = RawKnobs { len: self.len.load(Ordering::Relaxed) as u8, words };
        fence(Ordering::Acquire);
        if self.seq.load(Ordering::Relaxed) != seq {
            return None;
        }
        *seen = seq;
        table.values_of(&raw)
    }
}

#[cfg(test)]
mod tests {
    use crate::shared::Shared;
    use pandemonium_policies::knobs::TABLE;
    use std::sync::atomic::Ordering;

    #[test]
    fn the_worker_sees_each_change_once_and_complete() {
        let shared = Shared::create().unwrap();
        let mut seen = 0;
        assert_eq!(shared.knobs.newer(&TABLE, &mut seen), None, "nothing was published yet");
        let mut values = TABLE.defaults();
        shared.knobs.publish(&values);
        assert_eq!(shared.knobs.newer(&TABLE, &mut seen), Some(values));
        assert_eq!(shared.knobs.newer(&TABLE, &mut seen), None);

        values.set("slice_us=750").unwrap();
        values.set("rule.deficit=off").unwrap();
        shared.knobs.publish(&values);
        // The writer is in the middle.
        shared.knobs.seq.fetch_sub(1, Ordering::Relaxed);
        assert_eq!(shared.knobs.newer(&TABLE, &mut seen), None);
        shared.knobs.seq.fetch_add(1, Ordering::Relaxed);
        assert_eq!(shared.knobs.newer(&TABLE, &mut seen), Some(values));
        let again = shared.knobs.newer(&TABLE, &mut 0);
        assert_eq!(again, Some(values), "a new worker begins with the newest");
    }
}
