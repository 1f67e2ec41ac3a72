// SPDX-License-Identifier: GPL-2.0-only

//! Knobs, from the supervisor to the worker.

use super::seqlock::Seqlock;
use pandemonium_engine::knobs::{KNOBS_MAX, RawKnobs, Table, Values};
use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

/// The newest values. The worker takes up those that are being written a round later.
#[repr(C)]
pub struct KnobsCell {
    lock: Seqlock,
    len: AtomicU64,
    words: [AtomicU64; KNOBS_MAX],
}

impl KnobsCell {
    /// Publishes values. Callers take turns.
    pub fn publish(&self, values: &Values) {
        let raw = values.raw();
        self.lock.write(|| {
            self.len.store(raw.len.into(), Ordering::Relaxed);
            for (cell, word) in self.words.iter().zip(raw.words) {
                cell.store(word, Ordering::Relaxed);
            }
        });
    }

    /// The values of the knobs of `table`, if they were published since the reading of `seen`. One
    /// load if they were not.
    pub fn newer(&self, table: &'static Table, seen: &mut u64) -> Option<Values> {
        let raw = self.lock.read_newer(seen, || RawKnobs {
            len: self.len.load(Ordering::Relaxed) as u8,
            words: array::from_fn(|i| self.words[i].load(Ordering::Relaxed)),
        })?;
        table.values_of(&raw)
    }
}

#[cfg(test)]
mod tests {
    use crate::shared::Shared;
    use pandemonium_policies::knobs::TABLE;

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
        let cell = &shared.knobs;
        cell.lock.write(|| assert_eq!(cell.newer(&TABLE, &mut seen), None, "in the middle"));
        assert_eq!(shared.knobs.newer(&TABLE, &mut seen), Some(values));
        let again = shared.knobs.newer(&TABLE, &mut 0);
        assert_eq!(again, Some(values), "a new worker begins with the newest");
    }
}
