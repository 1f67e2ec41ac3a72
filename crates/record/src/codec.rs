// SPDX-License-Identifier: GPL-2.0-only

//! Entries as words. The first word of an entry holds its kind and its length. Words that do not
//! decode are damage.

mod facts;
mod view;

use super::Entry;
use pandemonium_engine::Memo;
use pandemonium_engine::knobs::{KNOBS_MAX, RawKnobs};
use pandemonium_engine::orders::Order;
use pandemonium_engine::procdb::{self, Minute};
use pandemonium_engine::task::{
    Arrival, Cause, Comm, CpuId, Dispatch, Pid, Placement, Reason, Ticket, Tier, Weight,
};
use pandemonium_engine::time::{Span, Stamp, Vtime};
use pandemonium_engine::topology::{self, CpuMask, CpuPlace, Domain};
use pandemonium_engine::treatment::{Assignment, TREATMENT_WORDS, Treatment};

/// Words of the longest entry: the first word, the number of settings, and the settings.
pub const WORDS_MAX: usize = KNOBS_MAX + 2;

/// Upper half of every entry's first word, to detect lost words.
const MARK: u64 = 0x7061_6E64;
/// The kind of [`Entry::Dropped`].
pub(crate) const DROPS: u8 = 8;
/// The last kind of entries.
pub(crate) const KIND_MAX: u8 = 21;
/// Stands for no CPU.
const NO_CPU: u64 = 0xFFFF;

/// The words are not a valid entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage;

/// Appends words.
struct WordWriter<'a> {
    words: &'a mut [u64; WORDS_MAX],
    length: usize,
}

impl WordWriter<'_> {
    fn put(&mut self, word: u64) {
        self.words[self.length] = word;
        self.length += 1;
    }
}

/// Reads words in order.
struct WordReader<'a>(core::slice::Iter<'a, u64>);

impl WordReader<'_> {
    fn take(&mut self) -> Result<u64, Damage> {
        self.0.next().copied().ok_or(Damage)
    }

    fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    fn span(&mut self) -> Result<Span, Damage> {
        self.take().map(Span::from_nanos)
    }

    fn stamp(&mut self) -> Result<Stamp, Damage> {
        self.take().map(Stamp::from_nanos)
    }
}

fn pid(word: u64) -> Result<Pid, Damage> {
    Pid::new(word as u32 as i32).ok_or(Damage)
}

fn pid_or_none(word: u64) -> Option<Pid> {
    Pid::new(word as u32 as i32)
}

fn pid_bits(pid: Option<Pid>) -> u64 {
    pid.map_or(0, |pid| pid.as_raw() as u64)
}

fn cpu_or_none(bits: u64) -> Result<Option<CpuId>, Damage> {
    match bits & 0xFFFF {
        NO_CPU => Ok(None),
        bits => CpuId::new(bits as i32).map(Some).ok_or(Damage),
    }
}

fn cpu_bits(cpu: Option<CpuId>) -> u64 {
    cpu.map_or(NO_CPU, |cpu| cpu.as_raw() as u64)
}

/// Writes an entry into `words`; returns the number of words.
pub fn encode(entry: &Entry, words: &mut [u64; WORDS_MAX]) -> usize {
    let mut out = WordWriter { words, length: 1 };
    let kind = match entry {
        Entry::Began { now, view } => {
            out.put(now.as_nanos());
            view::put(&mut out, view);
            1
        }
        Entry::Took(arrival) => {
            put_arrival(&mut out, arrival);
            2
        }
        Entry::Sent(dispatch) => {
            put_dispatch(&mut out, dispatch);
            3
        }
        Entry::Refused(dispatch) => {
            put_dispatch(&mut out, dispatch);
            4
        }
        Entry::Ended { pending, rescues } => {
            out.put(u64::from(*pending));
            out.put(*rescues);
            5
        }
        Entry::Exited(pid) => {
            out.put(pid.as_raw() as u64);
            6
        }
        Entry::Applied(raw) => {
            out.put(u64::from(raw.len));
            raw.words.iter().take(raw.len.into()).for_each(|word| out.put(*word));
            7
        }
        Entry::Dropped(count) => {
            out.put(*count);
            DROPS.into()
        }
        Entry::Finished(count) => {
            out.put(*count);
            9
        }
        other => put_start(&mut out, other),
    };
    let length = out.length;
    words[0] = MARK << 32 | kind << 8 | length as u64;
    length
}

/// Encodes entries that are not part of a round; returns the kind.
fn put_start(out: &mut WordWriter, entry: &Entry) -> u64 {
    match entry {
        Entry::Started { cpus } => {
            out.put(u64::from(*cpus));
            10
        }
        Entry::Place(place) => {
            out.put(place.to_word());
            11
        }
        Entry::Named(comm, tier) => {
            put_comm(out, comm);
            out.put(tier.index() as u64);
            12
        }
        Entry::Preferred(Domain { cpus, strict }) => {
            cpus.words().iter().for_each(|word| out.put(*word));
            out.put(u64::from(*strict));
            13
        }
        Entry::Remembered(Memo { pid, comm, tier, run }) => {
            out.put(pid.as_raw() as u64 | (tier.index() as u64) << 32);
            put_comm(out, comm);
            out.put(run.as_nanos());
            14
        }
        Entry::Known(profile) => {
            procdb::codec::pack(profile).iter().for_each(|word| out.put(*word));
            15
        }
        Entry::Learned(minute) => {
            out.put(u64::from(minute.as_unix()));
            16
        }
        Entry::Minute(minute) => {
            out.put(u64::from(minute.as_unix()));
            17
        }
        Entry::Treated(treatment) => {
            treatment.to_words().into_iter().for_each(|word| out.put(word));
            18
        }
        Entry::Assigned(assignment) => {
            out.put(assignment.to_word());
            19
        }
        Entry::AssignedAll(count) => {
            out.put(u64::from(*count));
            20
        }
        Entry::PlacedAll(count) => {
            out.put(u64::from(*count));
            21
        }
        // `encode` handles all others. A reader would reject this kind as damage.
        _ => 0,
    }
}

fn take_start(kind: u64, input: &mut WordReader) -> Result<Entry, Damage> {
    Ok(match kind {
        10 => Entry::Started { cpus: small(input.take()?)? },
        11 => Entry::Place(CpuPlace::from_word(input.take()?)),
        12 => Entry::Named(take_comm(input)?, tier(input.take()?)?),
        13 => {
            let mut words = [0; topology::WORDS];
            for word in &mut words {
                *word = input.take()?;
            }
            let strict = flag(input.take()?)?;
            Entry::Preferred(Domain { cpus: CpuMask::from_words(words), strict })
        }
        14 => {
            let head = input.take()?;
            let (comm, run) = (take_comm(input)?, input.span()?);
            Entry::Remembered(Memo { pid: pid(head)?, comm, tier: tier(head >> 32)?, run })
        }
        15 => {
            // Recordings of format 7 do not tell the user.
            let mut words = procdb::codec::without_user([0; procdb::codec::WORDS_WITHOUT_USER]);
            let given = input.0.len().max(procdb::codec::WORDS_WITHOUT_USER);
            for word in words.get_mut(..given).ok_or(Damage)? {
                *word = input.take()?;
            }
            Entry::Known(procdb::codec::unpack(&words))
        }
        16 => Entry::Learned(Minute::from_unix(small(input.take()?)?)),
        17 => Entry::Minute(Minute::from_unix(small(input.take()?)?)),
        18 => {
            // Recordings before format 10 have no domain.
            let mut words = [0; TREATMENT_WORDS];
            let given = if input.0.len() == 2 { 2 } else { words.len() };
            for word in &mut words[..given] {
                *word = input.take()?;
            }
            Entry::Treated(Treatment::from_words(words).ok_or(Damage)?)
        }
        19 => Entry::Assigned(Assignment::from_word(input.take()?).ok_or(Damage)?),
        20 => Entry::AssignedAll(small(input.take()?)?),
        21 => Entry::PlacedAll(small(input.take()?)?),
        _ => return Err(Damage),
    })
}

fn small(word: u64) -> Result<u32, Damage> {
    u32::try_from(word).map_err(|_| Damage)
}

fn flag(word: u64) -> Result<bool, Damage> {
    match word {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Damage),
    }
}

fn tier(index: u64) -> Result<Tier, Damage> {
    Tier::ALL.get(index as usize).copied().ok_or(Damage)
}

fn put_comm(out: &mut WordWriter, comm: &Comm) {
    comm.to_words().into_iter().for_each(|word| out.put(word));
}

fn take_comm(input: &mut WordReader) -> Result<Comm, Damage> {
    Ok(Comm::from_words([input.take()?, input.take()?]))
}

/// The first word of an entry of this kind and so many words.
pub(crate) fn head_of(kind: u8, length: usize) -> Result<u64, Damage> {
    let word = MARK << 32 | u64::from(kind) << 8 | length as u64;
    if head(word)? == (kind, length) { Ok(word) } else { Err(Damage) }
}

/// The kind of the entry that starts with this word, and the number of its words.
pub(crate) fn head(first: u64) -> Result<(u8, usize), Damage> {
    let (kind, length) = ((first >> 8) as u8, (first & 0xFF) as usize);
    let sane = first >> 16 == MARK << 16
        && (1..=KIND_MAX).contains(&kind)
        && (2..=WORDS_MAX).contains(&length);
    if sane { Ok((kind, length)) } else { Err(Damage) }
}

/// The number of words of the entry that starts with this word.
pub fn length(first: u64) -> Result<usize, Damage> {
    head(first).map(|(_, length)| length)
}

/// Decodes an entry from exactly these words.
pub fn decode(words: &[u64]) -> Result<Entry, Damage> {
    let first = *words.first().ok_or(Damage)?;
    if length(first)? != words.len() {
        return Err(Damage);
    }
    let mut input = WordReader(words[1..].iter());
    let entry = match first >> 8 & 0xFF {
        1 => {
            let (now, view) = (input.stamp()?, view::take(&mut input)?);
            Entry::Began { now, view }
        }
        2 => Entry::Took(take_arrival(&mut input)?),
        3 => Entry::Sent(take_dispatch(&mut input)?),
        4 => Entry::Refused(take_dispatch(&mut input)?),
        5 => Entry::Ended { pending: input.take()? as u32, rescues: input.take()? },
        6 => Entry::Exited(pid(input.take()?)?),
        7 => {
            let len = input.take()?;
            let mut raw = RawKnobs { len: len as u8, words: [0; KNOBS_MAX] };
            let words = raw.words.get_mut(..usize::try_from(len).unwrap_or(usize::MAX));
            for word in words.ok_or(Damage)? {
                *word = input.take()?;
            }
            Entry::Applied(raw)
        }
        8 => Entry::Dropped(input.take()?),
        9 => Entry::Finished(input.take()?),
        kind => take_start(kind, &mut input)?,
    };
    if input.0.len() == 0 { Ok(entry) } else { Err(Damage) }
}

fn put_arrival(out: &mut WordWriter, arrival: &Arrival) {
    let Arrival {
        pid,
        ticket,
        comm,
        cause,
        cpu,
        cpus_allowed,
        weight,
        run_interval,
        awake,
        stopped,
        facts,
    } = *arrival;
    let cause = match cause {
        Cause::New => 0,
        Cause::Wakeup => 1,
        Cause::Requeue => 2u64,
    };
    out.put(pid.as_raw() as u64 | (cpu.as_raw() as u64) << 32 | cause << 48);
    out.put(ticket.0);
    put_comm(out, &comm);
    out.put(u64::from(cpus_allowed) << 32 | weight.get());
    out.put(run_interval.as_nanos());
    out.put(awake.as_nanos());
    out.put(stopped.as_nanos());
    if let Some(facts) = facts {
        facts::put(out, &facts);
    }
}

fn take_arrival(input: &mut WordReader) -> Result<Arrival, Damage> {
    let head = input.take()?;
    let ticket = Ticket(input.take()?);
    let comm = take_comm(input)?;
    let shares = input.take()?;
    let cause = match head >> 48 {
        0 => Cause::New,
        1 => Cause::Wakeup,
        2 => Cause::Requeue,
        _ => return Err(Damage),
    };
    Ok(Arrival {
        pid: pid(head)?,
        ticket,
        comm,
        cause,
        cpu: cpu_or_none(head >> 32)?.ok_or(Damage)?,
        cpus_allowed: (shares >> 32) as u32,
        weight: Weight::new(shares & u64::from(u32::MAX)),
        run_interval: input.span()?,
        awake: input.span()?,
        stopped: input.stamp()?,
        facts: if input.0.len() > 0 { Some(facts::take(input)?) } else { None },
    })
}

fn put_dispatch(out: &mut WordWriter, dispatch: &Dispatch) {
    let Dispatch { pid, ticket, placement, slice, vtime, tier, preempt, reason, order } = *dispatch;
    let (any, cpu) = match placement {
        Placement::Cpu(cpu) => (0, cpu),
        Placement::Any { near } => (1u64, near),
    };
    let flags =
        any | u64::from(preempt) << 1 | (tier.index() as u64) << 2 | (reason.index() as u64) << 4;
    out.put(pid.as_raw() as u64 | (cpu.as_raw() as u64) << 32 | flags << 48);
    out.put(ticket.0);
    out.put(slice.as_nanos());
    out.put(vtime.as_raw());
    // The credit of an order is never zero.
    let order = order.unwrap_or(Order { credit: 0, life: Span::ZERO, key_offset: Span::ZERO });
    out.put(u64::from(order.credit) | order.life.as_micros() << 32);
    out.put(order.key_offset.as_nanos());
}

fn take_dispatch(input: &mut WordReader) -> Result<Dispatch, Damage> {
    let head = input.take()?;
    let flags = head >> 48;
    let cpu = cpu_or_none(head >> 32)?.ok_or(Damage)?;
    let placement = if flags & 1 == 1 { Placement::Any { near: cpu } } else { Placement::Cpu(cpu) };
    Ok(Dispatch {
        pid: pid(head)?,
        ticket: Ticket(input.take()?),
        placement,
        slice: input.span()?,
        vtime: Vtime::from_raw(input.take()?),
        tier: tier(flags >> 2 & 3)?,
        preempt: flags >> 1 & 1 == 1,
        reason: *Reason::ALL.get((flags >> 4) as usize).ok_or(Damage)?,
        order: take_order(input)?,
    })
}

fn take_order(input: &mut WordReader) -> Result<Option<Order>, Damage> {
    let word = input.take()?;
    let (credit, life) = (word as u32, Span::from_micros(word >> 32));
    let order = Order { credit, life, key_offset: input.span()? };
    Ok((order.credit > 0).then_some(order))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use pandemonium_engine::MachineView;
    use pandemonium_engine::facts::{CpuSet, Facts};
    use pandemonium_engine::task::{RawArrival, User};
    use pandemonium_engine::treatment::TierDemand;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn arrival(facts: Option<Facts>) -> Arrival {
        let raw = RawArrival {
            pid: i32::MAX,
            cpu: 1023,
            nr_cpus_allowed: 7,
            stop_ts: 5,
            exec_runtime: u64::MAX,
            weight: 10_000,
            enq_cnt: u64::MAX,
            comm: *b"fifteen letters\0",
            ..RawArrival::default()
        };
        Arrival { facts, ..raw.decode().unwrap() }
    }

    fn facts() -> Facts {
        Facts {
            wakeups: 1,
            voluntary: 2,
            involuntary: 3,
            cpu_time: Span::from_nanos(4),
            woken: Stamp::from_nanos(5),
            slept: Span::from_nanos(6),
            kthread: true,
            workqueue: false,
            idle_class: true,
            nice: -20,
            allowed: CpuSet::of_group(15, u64::MAX),
            kicked: CpuId::new(63),
            handed_off: true,
            waker: Pid::new(i32::MAX),
            process: Pid::new(17),
            user: User::new(1_000),
            last_cpu: CpuId::new(1023),
            run_interval: Span::from_nanos(7),
            stopped: Stamp::from_nanos(8),
            orders: u32::MAX,
            ordered: Stamp::from_nanos(9),
            preempted: Pid::new(18),
        }
    }

    fn treated() -> Entry {
        Entry::Treated(Treatment {
            tier: TierDemand::AtMost(Tier::Interactive),
            slice: Span::from_millis(20),
            weight: Some(Weight::new(50)),
            domain: Some(Domain { cpus: CpuMask::first(65), strict: false }),
        })
    }

    fn entries() -> Vec<Entry> {
        let facts = facts();
        let dispatch = |placement, tier| Dispatch {
            pid: Pid::new(7).unwrap(),
            ticket: Ticket(8),
            placement,
            slice: Span::from_nanos(9),
            vtime: Vtime::from_raw(u64::MAX),
            tier,
            preempt: true,
            reason: Reason::CodelRescue,
            order: Some(Order::usual(Span::from_micros(4))),
        };
        let (cpu, name) = (CpuId::new(1000).unwrap(), Comm::from_text("make"));
        let cpus = |cpus: &[i32]| cpus.iter().filter_map(|cpu| CpuId::new(*cpu)).collect();
        let idle = cpus(&[63, 200]);
        let view = MachineView {
            cpus: 1024,
            running: 3,
            here: Some(cpu),
            idle,
            busy: cpus(&[0, 2, 130]),
            order_deficit: 7,
            queued: 3,
        };
        let mut all = std::vec![
            Entry::Began { now: Stamp::from_nanos(u64::MAX), view },
            Entry::Began { now: Stamp::from_nanos(1), view: MachineView { here: None, ..view } },
            Entry::Began {
                now: Stamp::from_nanos(2),
                view: MachineView { busy: cpus(&[1023]), ..view }
            },
            Entry::Took(arrival(None)),
            Entry::Took(arrival(Some(facts))),
            Entry::Took(arrival(Some(Facts::default()))),
            Entry::Refused(dispatch(Placement::Any { near: cpu }, Tier::Batch)),
            Entry::Ended { pending: u32::MAX, rescues: u64::MAX },
            Entry::Exited(Pid::new(1).unwrap()),
            Entry::Applied(RawKnobs {
                len: 3,
                words: core::array::from_fn(|at| if at < 3 { at as u64 } else { 0 })
            }),
            Entry::Dropped(12),
            Entry::Finished(13),
            Entry::Started { cpus: u32::MAX },
            Entry::Place(CpuPlace { core: 1, l2: u16::MAX, llc: 3, node: 4 }),
            Entry::Named(Comm::from_text("game"), Tier::Interactive),
            Entry::Preferred(Domain { cpus: CpuMask::first(1000), strict: true }),
            Entry::Remembered(Memo {
                pid: Pid::new(i32::MAX).unwrap(),
                comm: Comm::from_text("fifteen letters"),
                tier: Tier::LatCritical,
                run: Span::from_nanos(u64::MAX),
            }),
            Entry::Known(procdb::Profile {
                observations: 7,
                ..procdb::Profile::unseen(procdb::Program { comm: name, user: User::ROOT })
            }),
            Entry::Learned(Minute::from_unix(u32::MAX)),
            Entry::Minute(Minute::from_unix(0)),
            treated(),
            Entry::Assigned(Assignment { pid: Pid::new(4711).unwrap(), treatment: 3 }),
            Entry::AssignedAll(1),
            Entry::PlacedAll(1024),
        ];
        all.extend(Tier::ALL.map(|tier| Entry::Sent(dispatch(Placement::Cpu(cpu), tier))));
        all
    }

    #[test]
    fn decoding_an_encoded_entry_returns_it_unchanged() {
        for entry in entries() {
            let mut words = [0; WORDS_MAX];
            let length = encode(&entry, &mut words);
            assert_eq!(decode(&words[..length]), Ok(entry));
            assert_eq!(super::length(words[0]), Ok(length));
            assert_eq!(decode(&words[..length - 1]), Err(Damage), "{entry:?}");
        }
    }

    /// Before format 10 a treatment had no domain: its entry ends before that.
    #[test]
    fn a_treatment_without_words_of_a_domain_has_none() {
        let mut words = [0; WORDS_MAX];
        encode(&treated(), &mut words);
        words[0] = words[0] & !0xFF | 3;
        let Entry::Treated(treatment) = treated() else { panic!("a treatment") };
        let older = Treatment { domain: None, ..treatment };
        assert_eq!(decode(&words[..3]), Ok(Entry::Treated(older)));
    }

    /// Format 7 had no users: an entry ends before that word.
    #[test]
    fn an_entry_without_users_is_of_an_unknown_one() {
        for entry in entries() {
            let mut words = [0; WORDS_MAX];
            let length = encode(&entry, &mut words) - 1;
            words[0] = words[0] & !0xFF | length as u64;
            let older = decode(&words[..length]);
            match entry {
                Entry::Took(Arrival { facts: Some(facts), .. }) if facts.user.is_known() => {
                    let Ok(Entry::Took(Arrival { facts: Some(older), .. })) = older else {
                        panic!("{older:?}")
                    };
                    assert_eq!(older, Facts { user: User::UNKNOWN, ..facts });
                }
                Entry::Known(profile) => {
                    let program = profile.program.of_unknown();
                    assert_eq!(older, Ok(Entry::Known(procdb::Profile { program, ..profile })));
                }
                _ => assert_ne!(older, Ok(entry)),
            }
        }
    }

    proptest! {
        /// Changed words decode to damage, or to an entry that survives another round trip.
        #[test]
        fn changed_words_are_damage_or_another_valid_entry(
            which in 0..entries().len(),
            changes in prop::collection::vec((0..WORDS_MAX, any::<u64>()), 0..4),
        ) {
            let mut words = [0; WORDS_MAX];
            let length = encode(&entries()[which], &mut words);
            for (at, bits) in changes {
                words[at % length] ^= bits;
            }
            if let Ok(entry) = decode(&words[..length]) {
                let mut again = [0; WORDS_MAX];
                let length = encode(&entry, &mut again);
                prop_assert_eq!(decode(&again[..length]), Ok(entry));
            }
        }
    }
}
