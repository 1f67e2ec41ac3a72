// SPDX-License-Identifier: GPL-2.0-only

//! A ring of words from one writer to one reader, in memory that two processes may share. Neither
//! side waits: an entry that does not fit is dropped and counted.

use super::Entry;
use super::codec::{DROPS, Damage, WORDS_MAX, encode, head};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Words before the data: the writer's position, the reader's position, and the entries dropped.
const HEAD: usize = 0;
const TAIL: usize = 1;
const DROPPED: usize = 2;
const HEADER: usize = 3;

/// Words of memory for a ring that holds `words` words of entries.
pub const fn ring_words(words: usize) -> usize {
    HEADER + words
}

/// The writing side. The memory must be zero at the start.
pub struct Writer<'a> {
    memory: &'a [AtomicU64],
    /// The words of the last entry.
    words: [u64; WORDS_MAX],
    /// Entries dropped since the last one that fitted.
    lost: u64,
}

/// The reading side.
pub struct Reader<'a> {
    memory: &'a [AtomicU64],
    /// Dropped entries that the entries so far report.
    reported: u64,
}

impl<'a> Writer<'a> {
    /// Writes into `memory`, of at least `ring_words(2 * WORDS_MAX)` words. Only one writer may
    /// exist.
    pub fn new(memory: &'a [AtomicU64]) -> Writer<'a> {
        assert!(memory.len() >= ring_words(2 * WORDS_MAX), "a ring holds more than one entry");
        Writer { memory, words: [0; _], lost: 0 }
    }

    /// Adds an entry, or counts it as dropped. After a gap, an [`Entry::Dropped`] with the number
    /// of dropped entries comes first.
    pub fn push(&mut self, entry: &Entry) {
        if self.lost > 0 && self.add(&Entry::Dropped(self.lost)) {
            self.lost = 0;
        }
        if self.lost > 0 || !self.add(entry) {
            self.lost += 1;
            self.memory[DROPPED].fetch_add(1, Relaxed);
        }
    }

    fn add(&mut self, entry: &Entry) -> bool {
        let length = encode(entry, &mut self.words);
        let data = &self.memory[HEADER..];
        let head = self.memory[HEAD].load(Relaxed);
        let tail = self.memory[TAIL].load(Acquire);
        let used = head.wrapping_sub(tail);
        if used + length as u64 > data.len() as u64 {
            return false;
        }
        let mut words = self.words[..length].iter();
        for part in cells(data, head, length) {
            part.iter().zip(&mut words).for_each(|(cell, word)| cell.store(*word, Relaxed));
        }
        self.memory[HEAD].store(head.wrapping_add(length as u64), Release);
        true
    }
}

/// The cells of so many words from this position on: up to the end of the ring, then from its
/// begin.
fn cells(data: &[AtomicU64], position: u64, length: usize) -> [&[AtomicU64]; 2] {
    let (begin, end) = data.split_at((position % data.len() as u64) as usize);
    match end.get(..length) {
        Some(end) => [end, &[]],
        None => [end, &begin[..length - end.len()]],
    }
}

impl<'a> Reader<'a> {
    /// Reads from `memory`. Only one reader may exist.
    pub fn new(memory: &'a [AtomicU64]) -> Reader<'a> {
        assert!(memory.len() >= ring_words(2 * WORDS_MAX), "a ring holds more than one entry");
        Reader { memory, reported: 0 }
    }

    /// Entries dropped so far.
    pub fn dropped(&self) -> u64 {
        self.memory[DROPPED].load(Relaxed)
    }

    /// Dropped entries that no entry has reported: those after the last one that fitted.
    pub fn unreported(&self) -> u64 {
        self.dropped().saturating_sub(self.reported)
    }

    /// Fill level, in per mille.
    pub fn fullness(&self) -> u32 {
        let used = self.memory[HEAD].load(Relaxed).wrapping_sub(self.memory[TAIL].load(Relaxed));
        let room = (self.memory.len() - HEADER) as u64;
        (used.min(room) * 1_000 / room) as u32
    }

    /// Moves the next entry into `words` and returns its number of words; `None` if the ring is
    /// empty. Damage means that another program wrote into the memory.
    pub fn pop(&mut self, words: &mut [u64; WORDS_MAX]) -> Option<Result<usize, Damage>> {
        let data = &self.memory[HEADER..];
        let position = self.memory[HEAD].load(Acquire);
        let tail = self.memory[TAIL].load(Relaxed);
        if position == tail {
            return None;
        }
        let [first, _] = cells(data, tail, 1);
        let (kind, length) = match head(first[0].load(Relaxed)) {
            Ok((kind, length)) if length as u64 <= position.wrapping_sub(tail) => (kind, length),
            _ => return Some(Err(Damage)),
        };
        let mut places = words.iter_mut();
        for part in cells(data, tail, length) {
            part.iter().zip(&mut places).for_each(|(cell, word)| *word = cell.load(Relaxed));
        }
        if kind == DROPS {
            self.reported = self.reported.saturating_add(words[1]);
        }
        self.memory[TAIL].store(tail.wrapping_add(length as u64), Release);
        Some(Ok(length))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::super::decode;
    use super::*;
    use std::vec::Vec;

    fn memory(words: usize) -> Vec<AtomicU64> {
        (0..ring_words(words)).map(|_| AtomicU64::new(0)).collect()
    }

    fn all(reader: &mut Reader) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut words = [0; WORDS_MAX];
        while let Some(length) = reader.pop(&mut words) {
            entries.push(decode(&words[..length.unwrap()]).unwrap());
        }
        entries
    }

    #[test]
    fn entries_keep_their_order_and_a_gap_is_reported() {
        let memory = memory(200);
        let (mut writer, mut reader) = (Writer::new(&memory), Reader::new(&memory));
        for number in 0..150 {
            writer.push(&Entry::Finished(number));
        }
        let before = all(&mut reader);
        assert_eq!(before, (0..100).map(Entry::Finished).collect::<Vec<_>>());
        assert_eq!(reader.dropped(), 50);
        writer.push(&Entry::Finished(150));
        assert_eq!(all(&mut reader), [Entry::Dropped(50), Entry::Finished(150)]);
        assert!(all(&mut reader).is_empty());
    }

    #[test]
    fn a_concurrent_reader_gets_or_counts_every_entry() {
        let memory = memory(300);
        let mut seen = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = Writer::new(&memory);
                (0..20_000)
                    .for_each(|number| writer.push(&Entry::Ended { pending: number, rescues: 0 }));
            });
            let mut reader = Reader::new(&memory);
            let mut dropped = 0;
            while seen.len() as u64 + dropped < 20_000 {
                for entry in all(&mut reader) {
                    match entry {
                        Entry::Ended { pending, .. } => seen.push(pending),
                        Entry::Dropped(count) => dropped += count,
                        other => panic!("{other:?}"),
                    }
                }
                // No entry reports what is dropped at the very end; the counter does.
                dropped = dropped.max(reader.dropped());
            }
        });
        assert!(seen.is_sorted(), "out of order");
    }
}
