// SPDX-License-Identifier: GPL-2.0-only

//! What travels between kernel and policy, in types that cannot hold nonsense: a raw message is
//! decoded once, here, into an [`Arrival`]; behind this door no field is doubted again.

use crate::facts::{CpuSet, Facts};
use crate::time::{Span, Stamp, Vtime};
use core::fmt;

/// Highest number of CPUs, a limit of the BPF backend (`MAX_CPUS` in its `intf.h`).
pub const CPUS_MAX: u32 = 1024;
/// Weight of a task of nice 0, as sched_ext counts.
pub const WEIGHT_DEFAULT: u32 = 100;
/// Highest weight sched_ext hands out (cgroup weight scale).
pub const WEIGHT_MAX: u32 = 10_000;
/// Bytes of a task name in the kernel, its terminating zero included.
pub const COMM_LEN: usize = 16;

/// Set in [`RawArrival::flags`] when the task has just woken up (kernel ABI: `SCX_ENQ_WAKEUP`).
pub const ENQ_WAKEUP: u64 = 1;

/// A thread, by the number the kernel calls pid (and `ps` calls TID or LWP).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(i32);

impl Pid {
    /// A pid, or `None` for zero (the idle task) and negative numbers, which are no task of ours.
    pub const fn new(raw: i32) -> Option<Pid> {
        if raw > 0 { Some(Pid(raw)) } else { None }
    }

    /// The kernel's number.
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}

/// A CPU number below [`CPUS_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(u16);

impl CpuId {
    /// A CPU number, or `None` outside `0..CPUS_MAX`.
    pub const fn new(raw: i32) -> Option<CpuId> {
        if raw >= 0 && (raw as u32) < CPUS_MAX { Some(CpuId(raw as u16)) } else { None }
    }

    /// The kernel's number.
    pub const fn as_raw(self) -> i32 {
        self.0 as i32
    }
}

/// Names one enqueue of one task. A dispatch carries it back; when the kernel has queued the task
/// again in between, the older ticket is cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

impl Ticket {
    /// The first ticket of a task the backend has just met: a new task, or a pid used again.
    pub const FIRST: Ticket = Ticket(1);
}

/// Share of CPU time, 1 to [`WEIGHT_MAX`]; 100 is nice 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u32);

impl Weight {
    /// A weight, brought into range.
    pub const fn new(raw: u64) -> Weight {
        match raw {
            0 => Weight(1),
            w if w > WEIGHT_MAX as u64 => Weight(WEIGHT_MAX),
            w => Weight(w as u32),
        }
    }

    /// The number, 1 to [`WEIGHT_MAX`].
    pub const fn get(self) -> u64 {
        self.0 as u64
    }

    /// What `ran` on a CPU costs in virtual time: a heavier task pays less.
    pub const fn charge(self, ran: Span) -> Span {
        ran.scale(WEIGHT_DEFAULT as u64, self.0 as u64)
    }
}

impl Default for Weight {
    fn default() -> Self {
        Weight(WEIGHT_DEFAULT)
    }
}

/// A task name: up to 15 bytes, in whatever encoding the program chose.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Comm([u8; COMM_LEN]);

impl Comm {
    /// From the kernel's bytes. Whatever follows the first zero is dropped, so that equal names
    /// are equal bytes.
    pub const fn from_kernel(raw: [u8; COMM_LEN]) -> Comm {
        let mut clean = [0; COMM_LEN];
        let mut i = 0;
        while i < COMM_LEN - 1 && raw[i] != 0 {
            clean[i] = raw[i];
            i += 1;
        }
        Comm(clean)
    }

    /// From text a person typed, cut to the 15 bytes that the kernel keeps.
    pub fn from_text(text: &str) -> Comm {
        let mut raw = [0; COMM_LEN];
        let kept = text.len().min(COMM_LEN - 1);
        raw[..kept].copy_from_slice(&text.as_bytes()[..kept]);
        Comm::from_kernel(raw)
    }

    /// The name in two words, for memory that is shared or written word by word.
    pub const fn to_words(self) -> [u64; 2] {
        let whole = u128::from_le_bytes(self.0);
        [whole as u64, (whole >> 64) as u64]
    }

    /// The name in two words, which may be any.
    pub const fn from_words([low, high]: [u64; 2]) -> Comm {
        Comm::from_kernel((low as u128 | (high as u128) << 64).to_le_bytes())
    }

    /// The name without its padding.
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(COMM_LEN);
        &self.0[..end]
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.as_bytes().utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_str("?")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// How urgently a task wants the CPU when it wants it.
///
/// Ordered: a higher tier is more urgent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Uses whole slices; wants throughput.
    Batch,
    /// Runs a while, then sleeps; someone may be waiting for it.
    #[default]
    Interactive,
    /// Runs briefly and often; a late start is seen or heard.
    LatCritical,
}

impl Tier {
    /// All tiers, least urgent first.
    pub const ALL: [Tier; 3] = [Tier::Batch, Tier::Interactive, Tier::LatCritical];

    /// Position in [`Tier::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Why a task asks for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Seen for the first time: just forked, or our scheduler has just been loaded.
    New,
    /// It slept and something happened for it.
    Wakeup,
    /// It was running and lost the CPU, because its slice ended or somebody preempted it.
    Requeue,
}

/// A task that waits for a CPU, as the kernel announced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Who.
    pub pid: Pid,
    /// Which enqueue of it.
    pub ticket: Ticket,
    /// Its name.
    pub comm: Comm,
    /// Why it is here.
    pub cause: Cause,
    /// Where it ran last, or an idle CPU that the kernel has just found for it.
    pub cpu: CpuId,
    /// On how many CPUs it may run; the message does not say which.
    pub cpus_allowed: u32,
    /// Its share of CPU time.
    pub weight: Weight,
    /// How long it ran the last time it ran.
    pub run_interval: Span,
    /// CPU time since it last woke up; zero on a wake-up.
    pub awake: Span,
    /// When it stopped running the last time it ran, by a clock of the kernel that is not ours:
    /// two messages that tell the same time tell of the same run interval.
    pub stopped: Stamp,
    /// What was observed of it, if anything was.
    pub facts: Option<Facts>,
}

/// What a dispatch has to answer: the part of an [`Arrival`] that is kept while the task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who.
    pub pid: Pid,
    /// Which enqueue of it.
    pub ticket: Ticket,
    /// Where it ran last, or an idle CPU that the kernel has just found for it.
    pub cpu: CpuId,
    /// On how many CPUs it may run.
    pub cpus_allowed: u32,
    /// Which of the first 64 CPUs it may use, if that is known.
    pub allowed: Option<CpuSet>,
    /// The CPU that was interrupted for it.
    pub kicked: Option<CpuId>,
}

impl Arrival {
    /// What is kept while the task waits.
    pub fn request(&self) -> Request {
        Request {
            pid: self.pid,
            ticket: self.ticket,
            cpu: self.cpu,
            cpus_allowed: self.cpus_allowed,
            allowed: self.facts.map(|facts| facts.allowed),
            // A kick belongs to a wake-up; on a requeue the record still tells of the last one.
            kicked: match self.cause {
                Cause::Requeue => None,
                Cause::New | Cause::Wakeup => self.facts.and_then(|facts| facts.kicked),
            },
        }
    }
}

/// A message as the backend sends it, before anything was checked.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // the names are the backend's own, see `queued_task_ctx` in its intf.h
pub struct RawArrival {
    pub pid: i32,
    pub cpu: i32,
    pub nr_cpus_allowed: u64,
    pub flags: u64,
    pub start_ts: u64,
    pub stop_ts: u64,
    pub exec_runtime: u64,
    pub weight: u64,
    pub enq_cnt: u64,
    pub comm: [u8; COMM_LEN],
}

/// Why a message could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Zero or negative pid.
    Pid,
    /// CPU number outside `0..CPUS_MAX`.
    Cpu,
}

impl RawArrival {
    /// Checks a message once, so that nobody has to again.
    ///
    /// Only a pid or CPU that names nothing is an error; a weight or a mask size out of range is
    /// brought into range, since refusing the message would lose a task.
    pub fn decode(&self) -> Result<Arrival, Malformed> {
        let awake = Span::from_nanos(self.exec_runtime);
        let cause = match self {
            raw if raw.enq_cnt <= Ticket::FIRST.0 => Cause::New,
            raw if raw.flags & ENQ_WAKEUP != 0 || raw.exec_runtime == 0 => Cause::Wakeup,
            _ => Cause::Requeue,
        };
        Ok(Arrival {
            pid: Pid::new(self.pid).ok_or(Malformed::Pid)?,
            ticket: Ticket(self.enq_cnt),
            comm: Comm::from_kernel(self.comm),
            cause,
            cpu: CpuId::new(self.cpu).ok_or(Malformed::Cpu)?,
            cpus_allowed: self.nr_cpus_allowed.clamp(1, CPUS_MAX as u64) as u32,
            weight: Weight::new(self.weight),
            run_interval: Span::from_nanos(self.stop_ts.saturating_sub(self.start_ts)),
            awake,
            stopped: Stamp::from_nanos(self.stop_ts),
            facts: None,
        })
    }
}

/// Where a task shall run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On this CPU. The kernel falls back to the task's previous CPU if the task may not run here.
    Cpu(CpuId),
    /// On an idle CPU close to `near` if there is one, else on the first CPU that gets free.
    Any {
        /// Where its memory is likely to be cached.
        near: CpuId,
    },
}

/// Which rule decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It was the most urgent, and the first in its queue.
    #[default]
    Order,
    /// It had waited beyond the overflow limit.
    OverflowRescue,
    /// Batch work was owed a turn.
    Deficit,
    /// It had waited beyond the hard limit.
    StarvationRescue,
    /// It had waited beyond the adaptive threshold.
    CodelRescue,
    /// The machine has time, so who comes first is served first.
    Fifo,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 6] = [
        Reason::Order,
        Reason::OverflowRescue,
        Reason::Deficit,
        Reason::StarvationRescue,
        Reason::CodelRescue,
        Reason::Fifo,
    ];

    /// Position in [`Reason::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether age decided.
    pub const fn is_rescue(self) -> bool {
        matches!(self, Reason::OverflowRescue | Reason::StarvationRescue | Reason::CodelRescue)
    }
}

/// A decision: this task, there, for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Who.
    pub pid: Pid,
    /// The ticket of the arrival this answers.
    pub ticket: Ticket,
    /// Where.
    pub placement: Placement,
    /// For how long at most. Never zero: to the kernel zero means "what is left".
    pub slice: Span,
    /// Its place in the kernel's queues, which run the smallest first.
    pub vtime: Vtime,
    /// How urgent the task is.
    pub tier: Tier,
    /// Interrupt whoever runs at the placement. Needs a named CPU and a port that can kick.
    pub preempt: bool,
    /// Which rule decided.
    pub reason: Reason,
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    fn valid() -> RawArrival {
        let mut comm = [0; COMM_LEN];
        comm[..4].copy_from_slice(b"bash");
        RawArrival {
            pid: 42,
            cpu: 3,
            nr_cpus_allowed: 8,
            flags: 0,
            start_ts: 1_000,
            stop_ts: 5_000,
            exec_runtime: 4_000,
            weight: 100,
            enq_cnt: 7,
            comm,
        }
    }

    #[test]
    fn a_valid_message_decodes_field_by_field() {
        let arrival = valid().decode().unwrap();
        assert_eq!(arrival.pid.as_raw(), 42);
        assert_eq!(arrival.ticket, Ticket(7));
        assert_eq!(arrival.comm.to_string(), "bash");
        assert_eq!(arrival.cause, Cause::Requeue);
        assert_eq!(arrival.cpu.as_raw(), 3);
        assert_eq!(arrival.cpus_allowed, 8);
        assert_eq!(arrival.run_interval, Span::from_micros(4));
        assert_eq!(arrival.awake, Span::from_micros(4));
    }

    #[test]
    fn the_cause_comes_from_ticket_then_flag_then_runtime() {
        let cause = |change: fn(&mut RawArrival)| {
            let mut raw = valid();
            change(&mut raw);
            raw.decode().unwrap().cause
        };
        assert_eq!(cause(|raw| raw.enq_cnt = 1), Cause::New);
        assert_eq!(cause(|raw| raw.flags = ENQ_WAKEUP), Cause::Wakeup);
        assert_eq!(cause(|raw| raw.exec_runtime = 0), Cause::Wakeup);
        assert_eq!(cause(|_| ()), Cause::Requeue);
    }

    #[test]
    fn a_message_that_names_nothing_is_refused() {
        let decoded = |change: fn(&mut RawArrival)| {
            let mut raw = valid();
            change(&mut raw);
            raw.decode().unwrap_err()
        };
        assert_eq!(decoded(|raw| raw.pid = 0), Malformed::Pid);
        assert_eq!(decoded(|raw| raw.pid = -1), Malformed::Pid);
        assert_eq!(decoded(|raw| raw.cpu = -1), Malformed::Cpu);
        assert_eq!(decoded(|raw| raw.cpu = CPUS_MAX as i32), Malformed::Cpu);
    }

    #[test]
    fn odd_numbers_are_brought_into_range_rather_than_losing_a_task() {
        let mut raw = valid();
        raw.weight = 0;
        raw.nr_cpus_allowed = 0;
        raw.start_ts = 9_000; // stopped before it started
        let arrival = raw.decode().unwrap();
        assert_eq!(arrival.weight.get(), 1);
        assert_eq!(arrival.cpus_allowed, 1);
        assert_eq!(arrival.run_interval, Span::ZERO);
        raw.weight = u64::MAX;
        assert_eq!(raw.decode().unwrap().weight.get(), WEIGHT_MAX as u64);
    }

    #[test]
    fn names_are_equal_whatever_follows_the_zero() {
        assert_eq!(Comm::from_kernel(*b"cc1\0garbage....."), Comm::from_text("cc1"));
        assert_eq!(Comm::from_kernel(*b"sixteen_letters!").as_bytes().len(), COMM_LEN - 1);
        assert_eq!(Comm::from_text("a-name-that-is-too-long").as_bytes(), b"a-name-that-is-");
        assert_eq!(Comm::from_kernel(*b"\xff\xfeok\0\0\0\0\0\0\0\0\0\0\0\0").to_string(), "??ok");
    }

    #[test]
    fn a_heavier_task_pays_less() {
        let ran = Span::from_millis(1);
        assert_eq!(Weight::new(100).charge(ran), ran);
        assert_eq!(Weight::new(200).charge(ran), Span::from_micros(500));
        assert_eq!(Weight::new(1).charge(ran), Span::from_millis(100));
    }
}
