// SPDX-License-Identifier: GPL-2.0-only

//! Runs the function of a fuzz target in an ordinary test: on its committed inputs, the seeds, on
//! inputs that random changes make of them, and on random bytes. `make fuzz` goes on from the same
//! seeds with a fuzzer.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use std::path::Path;
use std::time::{Duration, Instant};

/// Most changes of one seed, and most bytes of one change.
const CHANGES_MAX: usize = 8;
const PIECE_MAX: usize = 64;
/// Most random bytes.
const RANDOM_MAX: usize = 512;

/// For so long each target is tried: all of them for a minute.
const TRIED_FOR: Duration = Duration::from_secs(4);

/// One change of an input.
#[derive(Clone, Debug)]
enum Change {
    /// Bytes at a place become these.
    Replace(Index, Vec<u8>),
    /// These bytes are inserted.
    Insert(Index, Vec<u8>),
    /// So many bytes are removed.
    Remove(Index, usize),
    /// The rest is removed.
    Cut(Index),
}

/// Calls `target` with each seed in `crates/fuzz/seeds/NAME`, then `count` times with changed seeds
/// and as often with random bytes, and so on for eight seconds. A panic fails the test, with the
/// smallest input that was found.
///
/// # Panics
///
/// If `target` panics, or there is no seed.
pub fn survives(name: &str, count: u32, target: fn(&[u8])) {
    let seeds = read(name);
    assert!(!seeds.is_empty(), "{name} has no seeds");
    seeds.iter().for_each(|seed| target(seed));
    let changed = (0..seeds.len(), prop::collection::vec(change(), 1..CHANGES_MAX))
        .prop_map(move |(seed, changes)| changes.iter().fold(seeds[seed].clone(), apply));
    let random = prop::collection::vec(any::<u8>(), 0..RANDOM_MAX);
    let config = Config { failure_persistence: None, ..Config::with_cases(2 * count) };
    let inputs = prop_oneof![changed, random];
    let started = Instant::now();
    while started.elapsed() < TRIED_FOR {
        // A runner that has had all its cases runs none any more.
        let outcome = TestRunner::new(config.clone()).run(&inputs, |input| {
            target(&input);
            Ok(())
        });
        if let Err(error) = outcome {
            panic!("{name}: {error}");
        }
    }
}

/// The seeds of a target, by name.
fn read(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let seed = |path: &_| std::fs::read(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    paths.iter().map(seed).collect()
}

fn change() -> impl Strategy<Value = Change> {
    let piece = || {
        // Extreme numbers find the most faults.
        let extreme = prop::sample::select(vec![0, 1, u64::MAX, 1 << 63, u64::from(u32::MAX)]);
        prop_oneof![
            extreme.prop_map(|word| word.to_le_bytes().to_vec()),
            prop::collection::vec(any::<u8>(), 1..PIECE_MAX),
            prop::sample::select(b"\0\n\"=[]{}#:,-9\x1b\xff".to_vec()).prop_map(|byte| vec![byte]),
        ]
    };
    prop_oneof![
        (any::<Index>(), piece()).prop_map(|(at, piece)| Change::Replace(at, piece)),
        (any::<Index>(), piece()).prop_map(|(at, piece)| Change::Insert(at, piece)),
        (any::<Index>(), 1..PIECE_MAX).prop_map(|(at, length)| Change::Remove(at, length)),
        any::<Index>().prop_map(Change::Cut),
    ]
}

fn apply(mut bytes: Vec<u8>, change: &Change) -> Vec<u8> {
    let length = bytes.len();
    let place = |at: &Index| at.index(length + 1);
    let end = |from: usize, length_of: usize| (from + length_of).min(length);
    match change {
        Change::Replace(at, piece) => {
            let from = place(at);
            bytes.splice(from..end(from, piece.len()), piece.iter().copied());
        }
        Change::Insert(at, piece) => {
            let from = place(at);
            bytes.splice(from..from, piece.iter().copied());
        }
        Change::Remove(at, count) => {
            let from = place(at);
            bytes.drain(from..end(from, *count));
        }
        Change::Cut(at) => bytes.truncate(place(at)),
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_target_is_tried_until_its_time_is_over() {
        static TRIES: AtomicUsize = AtomicUsize::new(0);
        survives("knobs", 1, |_| {
            TRIES.fetch_add(1, Ordering::Relaxed);
        });
        let in_one_go = read("knobs").len() + 2;
        assert!(TRIES.load(Ordering::Relaxed) > 10 * in_one_go);
    }

    #[test]
    #[should_panic(expected = "knobs")]
    fn a_target_that_panics_on_a_changed_seed_fails() {
        survives("knobs", 64, |input| assert!(read("knobs").iter().any(|seed| seed == input)));
    }

    #[test]
    #[should_panic(expected = "no-such-target")]
    fn a_target_without_seeds_fails() {
        survives("no-such-target", 1, |_| ());
    }
}
