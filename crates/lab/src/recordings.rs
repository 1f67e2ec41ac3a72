// SPDX-License-Identifier: GPL-2.0-only

//! Tests with recordings of simulated runs: writing, reading, redacting, damaging and replaying
//! them.

use crate::any_bytes::recording as survive_any;
use crate::explain::explain;
use crate::play::Case;
use crate::replay::waits;
use crate::simulated;
use crate::what::What;
use anyhow::Result;
use pandemonium_engine::PolicyInfo;
use pandemonium_engine::task::{Arrival, Comm};
use pandemonium_engine::time::Span;
use pandemonium_policies::{Fifo, Pandemonium};
use pandemonium_print::printable;
use pandemonium_record::file::read::{COMPRESSED, Recording};
use pandemonium_record::file::repeat::{Policies, Replayed, repeat};
use pandemonium_record::file::write::{Header, MAGIC, Recorder, VERSION};
use pandemonium_record::{Entry, WORDS_MAX, encode, length};
use pandemonium_sim::random::Random;
use proptest::prelude::*;
use std::sync::LazyLock;

const PANDEMONIUM: PolicyInfo = PolicyInfo::of::<Pandemonium>();

/// Replays under the policy that the recording is of.
fn policies(policy: PolicyInfo) -> Policies {
    Policies { recorded: Some(policy.knobs), replayed: policy }
}

fn case() -> Case {
    let mut case = Case::new(&What::named("wake", 2), PANDEMONIUM, 1).unwrap();
    case.trial.workload.duration = Span::from_millis(700);
    case
}

fn recorded(redact: bool) -> Vec<u8> {
    let case = case();
    let mut recorder = simulated::begin(Vec::new(), &case, redact).unwrap();
    case.play(&mut recorder);
    recorder.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<Vec<Entry>> {
    let mut recording = Recording::new(bytes)?;
    let mut entries = Vec::new();
    while let Some(entry) = recording.next_entry()? {
        entries.push(entry);
    }
    Ok(entries)
}

fn names(entries: &[Entry]) -> Vec<String> {
    let name = |entry: &Entry| match entry {
        Entry::Took(arrival) => Some(arrival.comm.to_string()),
        _ => None,
    };
    let mut names: Vec<String> = entries.iter().filter_map(name).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn recordings_are_read_back_and_redaction_hides_names() {
    let bytes = recorded(false);
    let entries = read(&bytes).unwrap();
    assert!(entries.len() > 200, "{}", entries.len());
    assert!(bytes.len() < entries.len() * 24, "{} bytes", bytes.len());
    assert_eq!(names(&entries), ["burner", "probe"]);
    let hidden = read(&recorded(true)).unwrap();
    assert_eq!(names(&hidden), ["program-0", "program-1"]);
    assert_eq!(hidden.len(), entries.len());
}

#[test]
fn foreign_and_truncated_files_are_errors_that_say_so() {
    let bytes = recorded(false);
    let error = |bytes: &[u8]| format!("{:#}", read(bytes).unwrap_err());
    assert!(error(b"").contains("too short"));
    assert!(error(b"#!/bin/sh\nexit 0\n").contains("no recording of pandemonium_lab"));
    for version in [1, VERSION + 1] {
        let mut other = bytes.clone();
        other[8..12].copy_from_slice(&version.to_le_bytes());
        assert!(error(&other).contains(&format!("format {version}")), "{}", error(&other));
    }
    for cut in [12, 20, bytes.len() / 2, bytes.len() - 1] {
        let said = error(&bytes[..cut]);
        assert!(said.contains("cut off") || said.contains("incomplete"), "{cut}: {said}");
    }
}

static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| recorded(false));
/// The same as words, as older formats have them.
static PLAIN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let entries = read(&BYTES).unwrap();
    let mut plain = BYTES[12..16 + header_length(&BYTES[12..])].to_vec();
    for entry in entries.iter().chain([&Entry::Finished(entries.len() as u64)]) {
        let mut words = [0; WORDS_MAX];
        let length = encode(entry, &mut words);
        plain.extend(words[..length].iter().flat_map(|word| word.to_le_bytes()));
    }
    plain
});

/// The length of the header that begins here with it.
fn header_length(plain: &[u8]) -> usize {
    u32::from_le_bytes([plain[0], plain[1], plain[2], plain[3]]) as usize
}

fn packed(plain: &[u8]) -> Vec<u8> {
    let packed = zstd::encode_all(plain, 1).unwrap();
    [MAGIC, &COMPRESSED.to_le_bytes()[..], &packed].concat()
}

#[test]
fn a_compressed_recording_of_an_older_format_has_the_same_entries() {
    assert_eq!(read(&packed(&PLAIN)).unwrap(), read(&BYTES).unwrap());
}

/// Reads and replays a recording as the program does. Any outcome but a panic is correct.
fn survive(bytes: &[u8], policy: PolicyInfo) {
    let _ = read(bytes);
    if let Ok(mut recording) = Recording::new(bytes) {
        let _ = repeat(&mut recording, &policies(policy), &[], &mut Replayed::default());
    }
}

/// Makes one change, as a fuzzer does: flips a bit, replaces a word, removes, repeats or moves a
/// piece, or truncates.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let any = |random: &mut Random, below: usize| random.below(below as u64 + 1) as usize;
    let length = bytes.len();
    let from = any(random, length);
    let piece = from..(from + any(random, 200)).min(length);
    match random.below(6) {
        0 if from < length => bytes[from] ^= 1 << random.below(8),
        1 if from + 8 <= length => {
            // Extreme values find the most bugs.
            let words = [0, 1, u64::MAX, 1 << 63, u64::from(u32::MAX), random.bits()];
            let word = words[random.below(6) as usize];
            bytes[from..from + 8].copy_from_slice(&word.to_le_bytes());
        }
        2 => drop(bytes.drain(piece)),
        3 => {
            let copy = bytes[piece].to_vec();
            bytes.splice(from..from, copy);
        }
        4 => {
            let (copy, at) = (bytes[piece].to_vec(), any(random, length));
            bytes.splice(at..at, copy);
        }
        5 if random.chance(100_000) => bytes.truncate(from),
        _ => {}
    }
}

/// Runs the fuzz target on mutants of a recording, the same ones each time. The test counts the
/// mutants that get past the header, because otherwise it could pass without testing the rest.
#[test]
fn the_fuzz_target_survives_mutants_of_a_recording() {
    let mut random = Random::new(7);
    let short = &PLAIN[..PLAIN.len().min(40_000)];
    let mut replayed = 0;
    for number in 0..3_000u32 {
        let kind = (number % 4) as u8;
        let original = if kind & 1 == 0 { &BYTES[..] } else { short };
        let mut data = [&[kind], original].concat();
        for _ in 0..random.between(1, 12) {
            let mut rest = data.split_off(1);
            mutate(&mut rest, &mut random);
            data.append(&mut rest);
        }
        if kind & 1 == 1 {
            let entries = read(&packed(&data[1..]));
            replayed +=
                u32::from(entries.is_err_and(|error| !format!("{error:#}").contains("header")));
        }
        survive_any(&data);
    }
    assert!(replayed > 500, "only {replayed} of 1500 got past the header");
}

/// A recording from another machine may have any text in it.
#[test]
fn neither_names_nor_the_header_of_a_recording_control_the_terminal() {
    let header = Header { source: "\x1b[2J".into(), policy: "fi\x07fo".into(), redacted: false };
    let mut recorder = Recorder::new(Vec::new(), &header, &[]).unwrap();
    let hostile = Comm::from_kernel(*b"\x1b]0;\xff\x9b\xc2\x9b\x07\n\0\0\0\0\0\0");
    for entry in read(&BYTES).unwrap().iter().take(2_000) {
        recorder.add(&match *entry {
            Entry::Took(arrival) => Entry::Took(Arrival { comm: hostile, ..arrival }),
            other => other,
        });
    }
    let bytes = recorder.finish().unwrap();
    let pids = read(&bytes).unwrap().into_iter().find_map(|entry| match entry {
        Entry::Took(arrival) => Some(arrival.pid.as_raw().to_string()),
        _ => None,
    });
    let recording = || Recording::new(&bytes[..]).unwrap();
    let told = explain(recording(), &pids.unwrap(), Span::ZERO).unwrap();
    assert!(told.contains("?]0;"), "{told:?}");
    let unknown = explain(recording(), "other", Span::ZERO).unwrap_err().to_string();
    let mut replayed = Replayed::default();
    repeat(&mut recording(), &policies(PANDEMONIUM), &[], &mut replayed).unwrap();
    let waits = waits(&replayed).text();
    assert!(waits.contains("?]0;"), "{waits:?}");
    for text in [told, unknown, waits] {
        let text = printable(&text);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }
}

/// Such a recording exists when a CPU comes online that was offline at the start.
#[test]
fn a_recording_with_a_restart_replays_both_parts() {
    let entries = read(&BYTES).unwrap();
    let mut recorder = simulated::begin(Vec::new(), &case(), false).unwrap();
    // The header has the first start already, so it is skipped. The last round before the restart
    // does not end.
    let begun = entries.iter().position(|entry| matches!(entry, Entry::Applied(_))).unwrap();
    let first = entries[begun..].iter();
    let cut = entries.iter().rposition(|entry| matches!(entry, Entry::Began { .. })).unwrap();
    first.take(cut + 1 - begun).for_each(|entry| recorder.add(entry));
    entries.iter().for_each(|entry| recorder.add(entry));
    let bytes = recorder.finish().unwrap();
    let mut replayed = Replayed::default();
    let mut recording = Recording::new(&bytes[..]).unwrap();
    repeat(&mut recording, &policies(PANDEMONIUM), &[], &mut replayed).unwrap();
    assert_eq!((replayed.starts, replayed.different), (2, 0));
    assert!(replayed.rounds > 60, "{}", replayed.rounds);
}

/// Valid entries in an order that no scheduler writes.
#[test]
fn entries_in_an_impossible_order_do_not_panic() {
    let entries = read(&BYTES).unwrap();
    let twice = |entry: &Entry| [*entry, *entry];
    let orders: [Vec<Entry>; 4] = [
        entries.iter().rev().copied().collect(),
        entries.iter().flat_map(twice).collect(),
        entries.iter().filter(|entry| !matches!(entry, Entry::Sent(_))).copied().collect(),
        entries.iter().filter(|entry| !matches!(entry, Entry::Began { .. })).copied().collect(),
    ];
    for order in orders {
        let mut recorder = simulated::begin(Vec::new(), &case(), false).unwrap();
        order.iter().for_each(|entry| recorder.add(entry));
        survive(&recorder.finish().unwrap(), PANDEMONIUM);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Any bytes at any place give an error or entries, never a panic.
    #[test]
    fn no_file_makes_the_reader_panic(
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..20),
        cut in any::<Option<usize>>(),
        inside in any::<bool>(),
    ) {
        let mut bytes = if inside { PLAIN.clone() } else { BYTES.clone() };
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(cut.map_or(bytes.len(), |cut| cut % bytes.len()));
        survive(&if inside { packed(&bytes) } else { bytes }, PolicyInfo::of::<Fifo>());
    }

    /// Flips bits in the payload of entries, so that the entries still decode and are replayed.
    #[test]
    fn no_entries_make_a_policy_panic(
        changes in prop::collection::vec((any::<usize>(), 0..64u32), 1..40),
    ) {
        let mut plain = PLAIN.clone();
        let header = 4 + header_length(&plain);
        let words = (plain.len() - header) / 8;
        for (at, bit) in changes {
            let at = header + at % words * 8;
            let word = u64::from_le_bytes(plain[at..at + 8].try_into().unwrap());
            // The first word of an entry stays, because it has the length: without it the rest is
            // undecodable.
            if length(word).is_err() {
                plain[at..at + 8].copy_from_slice(&(word ^ 1 << bit).to_le_bytes());
            }
        }
        survive(&packed(&plain), PANDEMONIUM);
    }
}
