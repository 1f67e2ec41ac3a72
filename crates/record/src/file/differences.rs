// SPDX-License-Identifier: GPL-2.0-only

//! Entries as bytes of a file: each word as its difference from that word of a similar entry.
//!
//! *Problem.* Compressing words as text costs more instructions than the scheduler takes for the
//! round that they tell of, and it competes with the recorded workload.
//!
//! *Idea.* Most words of an entry are those of an earlier entry, or a little larger: times, counts
//! and masks. A difference of two words needs no search, and few bytes.
//!
//! *Terms.* An entry is similar to the last one of its kind; if it tells of a task, to the last one
//! of its kind and of a task in the same slot, [`SLOTS`] of which stand for all pids. The first
//! word after the head holds a pid and more, so it counts as two words, its halves.
//!
//! *Format.* A byte with the kind, and [`LENGTH`] if the next byte has the entry's number of words
//! because the similar entry has another one. Then four bits for each word, the lower ones first:
//! the number of bytes of its difference. Then those bytes, the lowest first. Differences alternate
//! between positive and negative: 0, -1, 1, -2, ...
//!
//! *Properties.* Reading returns the words that were written. An entry takes at least a byte for
//! two of its words, so a small file cannot keep a reader busy. Memory has a fixed size. Writing
//! takes a number of steps in proportion to the words.

use crate::codec::{Damage, KIND_MAX, WORDS_MAX, head, head_of};
use std::io::{self, Read};
use std::ops::RangeInclusive;

/// Most bytes of an entry.
pub(super) const BYTES_MAX: usize = 2 + LENGTHS_MAX + 8 * WORDS_MAX;
/// Most bytes that hold the lengths of differences.
const LENGTHS_MAX: usize = WORDS_MAX.div_ceil(2);
/// This bit of an entry's first byte says that the number of words follows.
const LENGTH: u8 = 0x80;
/// Words that are compared: all of an entry that comes often. The others of a longer entry are told
/// as they are.
const COMPARED: usize = 40;
/// The kinds of entries about a task.
const OF_TASKS: RangeInclusive<u8> = 2..=4;
/// As many kinds as an index has.
const KINDS: usize = KIND_MAX as usize + 1;
/// Entries that are kept of each of these kinds.
const SLOTS: usize = 256;

/// What is known of the entries so far. Both sides know the same.
struct Known {
    /// The words of the last entry of each kind; behind them, for each kind of a task, those of the
    /// last one in each slot.
    words: Vec<[u64; COMPARED]>,
    /// The number of words of the last entry of each kind.
    lengths: [u8; KINDS],
    /// The pid of the last entry about a task.
    pid: u64,
}

impl Known {
    fn new() -> Self {
        let size = KINDS + OF_TASKS.count() * SLOTS;
        Known { words: vec![[0; COMPARED]; size], lengths: [0; KINDS], pid: 0 }
    }

    /// What the first word's lower half is expected to be.
    fn first(&self, kind: u8) -> u64 {
        match OF_TASKS.contains(&kind) {
            true => self.pid,
            false => self.words[usize::from(kind)][0],
        }
    }

    /// The words of the similar entry, to be replaced.
    fn similar(&mut self, kind: u8, first: u64) -> &mut [u64; COMPARED] {
        let mut at = usize::from(kind);
        if OF_TASKS.contains(&kind) {
            self.pid = first;
            at = KINDS + usize::from(kind - OF_TASKS.start()) * SLOTS + first as usize % SLOTS;
        }
        &mut self.words[at]
    }
}

/// The difference of a word from another one: small if they are close.
fn difference(word: u64, other: u64) -> u64 {
    let difference = word.wrapping_sub(other) as i64;
    (difference << 1 ^ difference >> 63) as u64
}

/// The word with this difference from another one.
fn word(difference: u64, other: u64) -> u64 {
    other.wrapping_add(difference >> 1 ^ (difference & 1).wrapping_neg())
}

/// Differences as bytes.
struct Differences<'a> {
    bytes: &'a mut [u8; BYTES_MAX],
    /// Where the lengths of the next two come.
    lengths: usize,
    /// Where the next one comes.
    end: usize,
}

impl Differences<'_> {
    /// Adds two words.
    fn put(&mut self, words: [u64; 2], others: [u64; 2]) {
        let first = self.one(words[0], others[0]);
        self.bytes[self.lengths] = first | self.one(words[1], others[1]) << 4;
        self.lengths += 1;
    }

    /// Adds the bytes of a word; returns their number.
    fn one(&mut self, word: u64, other: u64) -> u8 {
        if word == other {
            return 0;
        }
        let difference = difference(word, other);
        if let Some(place) = self.bytes[self.end..].first_chunk_mut() {
            *place = difference.to_le_bytes();
        }
        let length = 8 - difference.leading_zeros() / 8;
        self.end += length as usize;
        length as u8
    }
}

/// Turns entries into bytes.
pub(super) struct Packer(Known);

impl Packer {
    pub(super) fn new() -> Self {
        Packer(Known::new())
    }

    /// Writes an entry to the begin of `bytes`; returns their number.
    pub(super) fn pack(
        &mut self,
        words: &[u64],
        bytes: &mut [u8; BYTES_MAX],
    ) -> Result<usize, Damage> {
        let [first, second, rest @ ..] = words else { return Err(Damage) };
        let (kind, length) = head(*first)?;
        if length != words.len() {
            return Err(Damage);
        }
        let known = &mut self.0;
        (bytes[0], bytes[1]) = (kind, length as u8);
        let mut lengths = 1;
        if known.lengths[usize::from(kind)] != bytes[1] {
            known.lengths[usize::from(kind)] = bytes[1];
            bytes[0] |= LENGTH;
            lengths = 2;
        }
        let mut out = Differences { bytes, lengths, end: lengths + length.div_ceil(2) };
        let (low, high) = (second & u64::from(u32::MAX), second >> 32);
        let expected = known.first(kind);
        let similar = known.similar(kind, low);
        out.put([low, high], [expected, similar[1]]);
        (similar[0], similar[1]) = (low, high);
        let (compared, others) = rest.split_at(rest.len().min(COMPARED - 2));
        let similar = &mut similar[2..][..compared.len()];
        let (pairs, last) = compared.as_chunks();
        let (similar_pairs, similar_last) = similar.as_chunks_mut();
        for (pair, similar) in pairs.iter().zip(similar_pairs) {
            out.put(*pair, *similar);
            *similar = *pair;
        }
        if let ([word], [similar]) = (last, similar_last) {
            out.put([*word, 0], [*similar, 0]);
            *similar = *word;
        }
        let (pairs, last) = others.as_chunks();
        pairs.iter().for_each(|pair| out.put(*pair, [0; 2]));
        last.iter().for_each(|word| out.put([*word, 0], [0; 2]));
        Ok(out.end)
    }
}

/// Turns bytes into entries.
pub(super) struct Unpacker(Known);

impl Unpacker {
    pub(super) fn new() -> Self {
        Unpacker(Known::new())
    }

    /// Reads the words of an entry; returns their number.
    pub(super) fn unpack(
        &mut self,
        input: &mut impl Read,
        words: &mut [u64; WORDS_MAX],
    ) -> io::Result<usize> {
        let known = &mut self.0;
        let mut first = [0];
        input.read_exact(&mut first)?;
        let kind = first[0] & !LENGTH;
        let length = known.lengths.get_mut(usize::from(kind)).ok_or_else(damaged)?;
        if first[0] & LENGTH != 0 {
            input.read_exact(std::slice::from_mut(length))?;
        }
        let length = usize::from(*length);
        words[0] = head_of(kind, length).map_err(|Damage| damaged())?;
        let mut lengths = [0; LENGTHS_MAX];
        input.read_exact(&mut lengths[..length.div_ceil(2)])?;
        let mut take = |number: usize, other: u64| {
            let length = usize::from(lengths[number / 2] >> (number % 2 * 4) & 0xF);
            let mut bytes = [0; 8];
            input.read_exact(bytes.get_mut(..length).ok_or_else(damaged)?)?;
            Ok(word(u64::from_le_bytes(bytes), other))
        };
        let half = |word: io::Result<u64>| u32::try_from(word?).map_err(|_| damaged());
        let low = half(take(0, known.first(kind)))?.into();
        let similar = known.similar(kind, low);
        let high = half(take(1, similar[1]))?.into();
        (similar[0], similar[1]) = (low, high);
        words[1] = low | high << 32;
        for (number, word) in words.iter_mut().enumerate().take(length).skip(2) {
            let mut none = 0;
            let other = similar.get_mut(number).unwrap_or(&mut none);
            *other = take(number, *other)?;
            *word = *other;
        }
        Ok(length)
    }
}

fn damaged() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry() -> impl Strategy<Value = Vec<u64>> {
        let word = prop_oneof![0..5_u64, any::<u32>().prop_map(u64::from), any::<u64>()];
        let words = prop::collection::vec(word, 1..WORDS_MAX);
        (1..=KIND_MAX, words).prop_map(|(kind, mut words)| {
            words.insert(0, head_of(kind, words.len() + 1).unwrap());
            words
        })
    }

    proptest! {
        #[test]
        fn reading_returns_the_words_that_were_written(
            entries in prop::collection::vec(entry(), 0..20),
            repeated in 0..3,
        ) {
            let (mut packer, mut file) = (Packer::new(), Vec::new());
            let all = || (0..=repeated).flat_map(|_| &entries);
            for entry in all() {
                let mut bytes = [0xFF; BYTES_MAX];
                let length = packer.pack(entry, &mut bytes).unwrap();
                prop_assert!(length > entry.len() / 2);
                file.extend_from_slice(&bytes[..length]);
            }
            let (mut unpacker, mut input) = (Unpacker::new(), &file[..]);
            for entry in all() {
                let mut words = [0; WORDS_MAX];
                let length = unpacker.unpack(&mut input, &mut words).unwrap();
                prop_assert_eq!(&words[..length], &entry[..]);
            }
            prop_assert!(input.is_empty());
        }

        #[test]
        fn any_bytes_are_entries_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (mut unpacker, mut input) = (Unpacker::new(), &bytes[..]);
            let mut words = [0; WORDS_MAX];
            while let Ok(length) = unpacker.unpack(&mut input, &mut words) {
                prop_assert_eq!(head(words[0]).map(|(_, length)| length), Ok(length));
            }
        }
    }

    /// What a file gets for a round beside others of the same tasks.
    #[test]
    fn the_same_entry_again_takes_a_byte_for_two_words() {
        let mut packer = Packer::new();
        let mut bytes = [0; BYTES_MAX];
        let mut words = [u64::MAX; 23];
        words[0] = head_of(2, words.len()).unwrap();
        let lengths = [(); 2].map(|()| packer.pack(&words, &mut bytes).unwrap());
        assert_eq!(lengths, [2 + 12 + 2 * 5 + 21, 1 + 12]);
    }
}
