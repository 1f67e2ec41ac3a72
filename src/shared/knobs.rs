// SPDX-License-Identifier: GPL-2.0-only

//! Knobs on their way from the supervisor to the worker.

use pandemonium_engine::knobs::{KNOBS_MAX, RawKnobs, Table, Values};
use std::array;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The newest values, and a number that is odd while they are being written and different after.
/// The worker never waits: values that are being written are taken up a round later.
#[repr(C)]
pub struct KnobsCell {
    seq: AtomicU64,
    len: AtomicU64,
    words: [AtomicU64; KNOBS_MAX],
}

impl KnobsCell {
    /// Hands values to the worker. Callers take turns.
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

    /// The values of the knobs of `table`, if others were published since the number that `seen`
    /// holds. One load when not.
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
    fn each_change_is_seen_once_and_never_half() {
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
        // As an interrupted writer leaves it.
        shared.knobs.seq.fetch_sub(1, Ordering::Relaxed);
        assert_eq!(shared.knobs.newer(&TABLE, &mut seen), None);
        shared.knobs.seq.fetch_add(1, Ordering::Relaxed);
        assert_eq!(shared.knobs.newer(&TABLE, &mut seen), Some(values));
        let again = shared.knobs.newer(&TABLE, &mut 0);
        assert_eq!(again, Some(values), "a new worker begins with the newest");
    }
}
