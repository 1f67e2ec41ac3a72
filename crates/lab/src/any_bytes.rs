// SPDX-License-Identifier: GPL-2.0-only

//! The functions of fuzz targets: each takes any bytes as one kind of input. The outcome is an
//! error or a result, never a panic, and what is printed of it does not control a terminal.
//!
//! The fuzzer calls them, and so do tests.

use crate::explain::explain;
use crate::replay::waits;
use pandemonium_engine::knobs::Table;
use pandemonium_engine::procdb::codec;
use pandemonium_engine::procdb::{Minute, ProcDb};
use pandemonium_engine::task::{Arrival, CpuId, Dispatch, RawArrival};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::{Full, Limits, MachineView, PolicyInfo, Port, Setup, round};
use pandemonium_policies::knobs::TABLE;
use pandemonium_policies::{Fifo, Pandemonium};
use pandemonium_record::file::read::{COMPRESSED, Recording};
use pandemonium_record::file::repeat::{Policies, Replayed, repeat};
use pandemonium_record::file::write::MAGIC;
use pandemonium_record::{Reader, WORDS_MAX, decode, ring_words};
use pandemonium_statistics::mix::Seeds;
use pandemonium_workload as workload_file;
use pandemonium_workload::mix;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names that fit few tables: a database that is full evicts.
const NAMES_MAX: u32 = 8;
/// Messages of one input.
const MESSAGES_MAX: usize = 256;
/// Bytes of a raw message.
const MESSAGE: usize = 8 * 8 + 16;

/// A recording, replayed and explained.
///
/// Bit 0 of the first byte says whether the rest is a file, or the content of a compressed one,
/// because random bytes never pass the decompression. Bit 1 chooses the policy.
pub fn recording(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let file = match kind & 1 {
        0 => rest.to_vec(),
        _ => match zstd::encode_all(rest, 1) {
            Ok(packed) => [MAGIC, &COMPRESSED.to_le_bytes()[..], &packed].concat(),
            Err(_) => return,
        },
    };
    let info =
        if kind & 2 == 0 { PolicyInfo::of::<Fifo>() } else { PolicyInfo::of::<Pandemonium>() };
    let policies = Policies { recorded: Some(info.knobs), replayed: info };
    let mut replayed = Replayed::default();
    if let Ok(mut recording) = Recording::new(&file[..]) {
        let _ = repeat(&mut recording, &policies, &[], &mut replayed);
    }
    let _ = waits(&replayed).text();
    let names = replayed.names.iter().next();
    let task = names.map_or("x".to_owned(), |(pid, _)| pid.as_raw().to_string());
    if let Ok(recording) = Recording::new(&file[..]) {
        let _ = explain(recording, &task, Span::ZERO);
    }
}

/// A workload file, for the number of CPUs in the first byte.
pub fn workload(data: &[u8]) {
    let Some((cpus, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let cpus = Some(u32::from(*cpus)).filter(|cpus| *cpus > 0);
    match workload_file::read(text, cpus) {
        Ok((workload, _)) => {
            assert!(!workload.groups.iter().any(|group| group.programs.is_empty()))
        }
        Err(error) => drop(error.to_string()),
    }
}

/// A mix: any seed, for any number of CPUs, is a valid workload file. The rest of the input is the
/// seeds of a set.
pub fn mix(data: &[u8]) {
    let Some((numbers, rest)) = data.split_at_checked(10) else { return };
    let number =
        |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let (seed, cpus) = (number(&numbers[..8]), number(&numbers[8..]) as u32 % 1_024 + 1);
    let text = mix::text(seed, cpus);
    assert!(workload_file::read(&text, None).is_ok(), "{text}");
    assert!(mix::draw(seed, cpus).tasks() > 0);
    if let Ok(seeds) = String::from_utf8_lossy(rest).parse::<Seeds>() {
        let again = seeds.to_string().parse::<Seeds>();
        assert!(again.is_ok_and(|again| again.iter().eq(seeds.iter())), "{seeds}");
    }
}

/// A file of knobs. What was read is written as a file that reads the same.
pub fn knobs(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match TABLE.defaults().amended(text) {
        Ok(amended) => {
            let file = Table::file_of(&amended.values).to_string();
            let again = TABLE.defaults().amended(&file).map(|again| again.values);
            assert!(again.is_ok_and(|again| again == amended.values), "{file}");
        }
        Err(error) => drop(error.to_string()),
    }
    if let Err(error) = TABLE.defaults().set(text) {
        drop(error.to_string());
    }
}

/// A process database. The profiles that were read are merged, and survive being written.
pub fn procdb(data: &[u8]) {
    let when = Minute::from_unix(u32::MAX / 2);
    let profiles = match codec::decode(data, when) {
        Ok(profiles) => profiles,
        Err(error) => return drop(error.to_string()),
    };
    // Numbers that are out of range are clamped once.
    let again = codec::decode(&codec::encode(&profiles), when);
    assert_eq!(again.as_ref(), Ok(&profiles));
    for profile in &profiles {
        let _ = (profile.prediction(), profile.confidence(), profile.program.comm.to_string());
    }
    let mut db = ProcDb::new(NAMES_MAX);
    db.merge(when, profiles);
    assert!(db.profiles().len() <= NAMES_MAX as usize);
}

/// Messages of the backend, decided by a policy: each message in a round of its own.
pub fn messages(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let setup = Setup::of_cpus(2);
    let info =
        if kind & 1 == 0 { PolicyInfo::of::<Fifo>() } else { PolicyInfo::of::<Pandemonium>() };
    let mut policy = (info.build)(&setup);
    let mut port = Script { arrival: VecDeque::new(), view: MachineView::default() };
    port.view.cpus = 2;
    let mut now = Stamp::from_nanos(1 << 40);
    for bytes in rest.chunks_exact(MESSAGE).take(MESSAGES_MAX) {
        if let Ok(arrival) = message(bytes).decode() {
            assert!(!arrival.comm.to_string().contains(char::is_control));
            port.arrival.push_back(arrival);
        }
        round(now, &mut port, &mut *policy, Limits::KERNEL);
        now = now + Span::from_micros(100);
    }
}

fn message(bytes: &[u8]) -> RawArrival {
    let mut words = bytes
        .chunks_exact(8)
        .map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    let mut take = || words.next().unwrap_or_default();
    let ids = take();
    let mut comm = [0; 16];
    comm.copy_from_slice(&bytes[MESSAGE - 16..]);
    RawArrival {
        pid: ids as i32,
        cpu: (ids >> 32) as i32,
        nr_cpus_allowed: take(),
        flags: take(),
        start_ts: take(),
        stop_ts: take(),
        exec_runtime: take(),
        weight: take(),
        enq_cnt: take(),
        comm,
    }
}

/// A port that gives messages to a policy and refuses nothing.
struct Script {
    arrival: VecDeque<Arrival>,
    view: MachineView,
}

impl Port for Script {
    fn recv(&mut self) -> Option<Arrival> {
        self.arrival.pop_front()
    }

    fn send(&mut self, _: &Dispatch) -> Result<(), Full> {
        Ok(())
    }

    fn kick(&mut self, _: CpuId) {}

    fn view(&self) -> &MachineView {
        &self.view
    }
}

/// The shared ring of a recording, positions included.
pub fn ring(data: &[u8]) {
    let memory: Vec<AtomicU64> =
        (0..ring_words(2 * WORDS_MAX)).map(|_| AtomicU64::new(0)).collect();
    for (cell, chunk) in memory.iter().zip(data.chunks_exact(8)) {
        let word = chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        cell.store(word, Ordering::Relaxed);
    }
    let mut reader = Reader::new(&memory);
    assert!(reader.fullness() <= 1_000);
    let mut words = [0; WORDS_MAX];
    // Positions that are wrong let a reader go round the ring, which its caller does not wait for.
    for _ in 0..memory.len() {
        match reader.pop(&mut words) {
            Some(Ok(length)) => drop(decode(&words[..length])),
            Some(Err(_)) | None => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use pandemonium_seeds::survives;

    #[test]
    fn any_recording_is_replayed_or_refused() {
        survives("recording", 100, super::recording);
    }

    #[test]
    fn any_workload_is_read_or_refused() {
        survives("workload", 1_000, super::workload);
    }

    #[test]
    fn any_mix_is_a_workload() {
        survives("mix", 200, super::mix);
    }

    #[test]
    fn any_knobs_are_read_or_refused() {
        survives("knobs", 1_000, super::knobs);
    }

    #[test]
    fn any_database_is_read_or_refused() {
        survives("procdb", 1_000, super::procdb);
    }

    #[test]
    fn any_messages_are_decided_or_refused() {
        survives("messages", 200, super::messages);
    }

    #[test]
    fn any_ring_is_read_or_refused() {
        survives("ring", 1_000, super::ring);
    }
}
