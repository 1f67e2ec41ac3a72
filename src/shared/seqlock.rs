// SPDX-License-Identifier: GPL-2.0-only

//! A sequence lock: one side writes several words, and the other one reads them all or none. No
//! side waits for the other.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The lock of the words beside it: how often they were written, doubled, and odd while they are
/// written. The words themselves are atomics, which are read and written relaxed.
#[repr(transparent)]
pub struct Seqlock(AtomicU64);

impl Seqlock {
    /// Calls `write`, which writes the words. Writers take turns.
    pub fn write(&self, write: impl FnOnce()) {
        // A process that was killed while it wrote has left an odd number.
        let odd = self.0.load(Ordering::Relaxed) | 1;
        self.0.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        write();
        self.0.store(odd + 1, Ordering::Release);
    }

    /// What `read` returns, if the words were written since the reading that `seen` is of, which is
    /// 0 before the first one. `None` as well if they are written meanwhile: then a later call
    /// returns them. One load if they were not written.
    pub fn read_newer<T>(&self, seen: &mut u64, read: impl FnOnce() -> T) -> Option<T> {
        let number = self.0.load(Ordering::Relaxed);
        if number == *seen || number % 2 == 1 {
            return None;
        }
        fence(Ordering::Acquire);
        let words = read();
        fence(Ordering::Acquire);
        if self.0.load(Ordering::Relaxed) != number {
            return None;
        }
        *seen = number;
        Some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_once_and_not_while_they_are_written() {
        let (lock, mut seen) = (Seqlock(AtomicU64::new(0)), 0);
        assert_eq!(lock.read_newer(&mut seen, || 1), None, "nothing was written yet");
        lock.write(|| assert_eq!(lock.read_newer(&mut 0, || 1), None, "they are being written"));
        assert_eq!(lock.read_newer(&mut seen, || 1), Some(1));
        assert_eq!(lock.read_newer(&mut seen, || 1), None, "they are the same");
        lock.write(|| ());
        let torn = lock.read_newer(&mut seen, || lock.write(|| ()));
        assert_eq!(torn, None, "they were written meanwhile");
        assert_eq!(lock.read_newer(&mut seen, || 1), Some(1));
        assert_eq!(lock.read_newer(&mut 0, || 1), Some(1), "for another reader");
    }

    #[test]
    fn the_next_writer_repairs_the_lock_of_one_that_was_killed() {
        let lock = Seqlock(AtomicU64::new(3));
        assert_eq!(lock.read_newer(&mut 0, || 1), None);
        lock.write(|| ());
        assert_eq!(lock.read_newer(&mut 0, || 1), Some(1));
    }

    #[test]
    fn a_reader_sees_all_words_of_one_writing() {
        const LAST: u64 = 20_000;
        let lock = Seqlock(AtomicU64::new(0));
        let cells = [const { AtomicU64::new(0) }; 8];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 1..=LAST {
                    lock.write(|| cells.iter().for_each(|it| it.store(value, Ordering::Relaxed)));
                }
            });
            let (mut seen, mut last) = (0, 0);
            while last < LAST {
                let read = || cells.each_ref().map(|cell| cell.load(Ordering::Relaxed));
                let Some(values) = lock.read_newer(&mut seen, read) else { continue };
                assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
                last = values[0];
            }
        });
    }
}
