// SPDX-License-Identifier: GPL-2.0-only

//! The messages between kernel and policy, as types that hold valid values only.
//!
//! A raw message is checked once, when [`RawArrival::decode`] turns it into an [`Arrival`]. No
//! later code checks its fields again.

pub use crate::facts::{Pid, User};
pub use crate::tier::Tier;
pub use crate::topology::{CPUS_MAX, CpuId};

use crate::facts::{CpuSet, Facts};
use crate::orders::Order;
use crate::text::is_unprintable;
use crate::time::{Span, Stamp, Vtime};
use core::fmt::{self, Write};

/// Weight of a task of nice 0, as sched_ext counts.
pub const WEIGHT_DEFAULT: u32 = 100;
/// Highest weight of sched_ext (cgroup weight scale).
pub const WEIGHT_MAX: u32 = 10_000;
/// Bytes of a task name in the kernel, including the terminating zero.
pub const COMM_LEN: usize = 16;

/// Set in [`RawArrival::flags`] if the task has just woken up (kernel ABI: `SCX_ENQ_WAKEUP`).
pub const ENQ_WAKEUP: u64 = 1;

/// Identifies one enqueue of one task. The dispatch carries it back. If the task was enqueued
/// again in the meantime, the backend discards the dispatch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

impl Ticket {
    /// The first ticket of a task that is new to the backend: a new task, or a reused pid.
    pub const FIRST: Ticket = Ticket(1);
}

/// Share of CPU time, 1 to [`WEIGHT_MAX`]; 100 is nice 0. Two bytes, for data that is kept of every
/// task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u16);

impl Weight {
    /// A weight, clamped to the valid range.
    pub const fn new(raw: u64) -> Weight {
        match raw {
            0 => Weight(1),
            w if w > WEIGHT_MAX as u64 => Weight(WEIGHT_MAX as u16),
            w => Weight(w as u16),
        }
    }

    /// The number, 1 to [`WEIGHT_MAX`].
    pub const fn get(self) -> u64 {
        self.0 as u64
    }

    /// The virtual time charged for `ran`: the higher the weight, the lower the charge.
    pub const fn charge(self, ran: Span) -> Span {
        ran.scale(WEIGHT_DEFAULT as u64, self.0 as u64)
    }
}

impl Default for Weight {
    fn default() -> Self {
        Weight(WEIGHT_DEFAULT as u16)
    }
}

/// A task name: up to 15 bytes, in any encoding.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Comm([u8; COMM_LEN]);

impl Comm {
    /// From the kernel's bytes. Bytes after the first zero are dropped, so that equal names are
    /// equal bytes.
    pub const fn from_kernel(raw: [u8; COMM_LEN]) -> Comm {
        let mut clean = [0; COMM_LEN];
        let mut i = 0;
        while i < COMM_LEN - 1 && raw[i] != 0 {
            clean[i] = raw[i];
            i += 1;
        }
        Comm(clean)
    }

    /// From text that a user typed, truncated to the 15 bytes that the kernel keeps.
    pub fn from_text(text: &str) -> Comm {
        let mut raw = [0; COMM_LEN];
        let kept = text.len().min(COMM_LEN - 1);
        raw[..kept].copy_from_slice(&text.as_bytes()[..kept]);
        Comm::from_kernel(raw)
    }

    /// The name as two words, for memory that is read and written one word at a time.
    pub const fn to_words(self) -> [u64; 2] {
        let whole = u128::from_le_bytes(self.0);
        [whole as u64, (whole >> 64) as u64]
    }

    /// A name from two words. Any words are accepted.
    pub const fn from_words([low, high]: [u64; 2]) -> Comm {
        Comm::from_kernel((low as u128 | (high as u128) << 64).to_le_bytes())
    }

    /// The name without its padding.
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(COMM_LEN);
        &self.0[..end]
    }
}

/// For a terminal: a `?` stands for each [unprintable](is_unprintable) character and for bytes that
/// are not UTF-8. A task can give itself any name, an escape sequence too.
impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.as_bytes().utf8_chunks() {
            for c in chunk.valid().chars() {
                f.write_char(if is_unprintable(c) { '?' } else { c })?;
            }
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

/// Why a task was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// First enqueue: the task was just forked, or the scheduler was just loaded.
    New,
    /// The task woke up.
    Wakeup,
    /// The task lost the CPU: its slice ended, or another task preempted it.
    Requeue,
}

/// A message: a task waits for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The task.
    pub pid: Pid,
    /// Which enqueue of the task this is.
    pub ticket: Ticket,
    /// The task's name.
    pub comm: Comm,
    /// Why the task was enqueued.
    pub cause: Cause,
    /// The task's last CPU, or an idle CPU that the kernel has just selected for it.
    pub cpu: CpuId,
    /// The number of CPUs the task may use. The message does not say which CPUs these are.
    pub cpus_allowed: u32,
    /// The task's share of CPU time.
    pub weight: Weight,
    /// Length of the last run interval.
    pub run_interval: Span,
    /// CPU time since the last wakeup; zero on a wakeup.
    pub awake: Span,
    /// End of the last run interval. It is read from another kernel clock than the scheduler's,
    /// so it is only compared for equality: equal values mean the same run interval.
    pub stopped: Stamp,
    /// What the fast path observed, if it did.
    pub facts: Option<Facts>,
}

/// The part of an [`Arrival`] that is kept while the task waits, because the dispatch needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The task.
    pub pid: Pid,
    /// Which enqueue of the task this is.
    pub ticket: Ticket,
    /// The task's last CPU, or an idle CPU that the kernel has just selected for it.
    pub cpu: CpuId,
    /// The number of CPUs the task may use.
    pub cpus_allowed: u32,
    /// Which CPUs the task may use, if known.
    pub allowed: Option<CpuSet>,
    /// The CPU that was interrupted for the task.
    pub kicked: Option<CpuId>,
}

impl Arrival {
    /// The part that is kept while the task waits.
    pub fn request(&self) -> Request {
        Request {
            pid: self.pid,
            ticket: self.ticket,
            cpu: self.cpu,
            cpus_allowed: self.cpus_allowed,
            allowed: self.facts.map(|facts| facts.allowed),
            // A kick belongs to a wakeup. On a requeue the record still holds the last kick.
            kicked: match self.cause {
                Cause::Requeue => None,
                Cause::New | Cause::Wakeup => self.facts.and_then(|facts| facts.kicked),
            },
        }
    }
}

/// A message as the backend sends it, not yet checked.
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
    /// Checks a message.
    ///
    /// Only an invalid pid or CPU is an error. A weight or a mask size out of range is clamped,
    /// because refusing the message would lose a task.
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

/// Where a task is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On this CPU. The kernel falls back to the task's previous CPU if the task may not run here.
    Cpu(CpuId),
    /// On an idle CPU close to `near` if there is one, else on the first CPU that becomes free.
    Any {
        /// The CPU with the task's memory in its caches, most likely.
        near: CpuId,
    },
}

/// Which rule selected a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// First in the queue of the highest tier that waits.
    #[default]
    Order,
    /// The task had waited longer than the overflow limit.
    OverflowRescue,
    /// The deficit budget was used up, so a Batch task was next.
    Deficit,
    /// The task had waited longer than the hard limit.
    StarvationRescue,
    /// The task had waited longer than the adaptive threshold.
    CodelRescue,
    /// Some CPU was free and `fifo_mode` is on, so the longest waiting task was next.
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

    /// Whether the task was selected because of its age.
    pub const fn is_rescue(self) -> bool {
        matches!(self, Reason::OverflowRescue | Reason::StarvationRescue | Reason::CodelRescue)
    }
}

/// A decision: which task runs where, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The task.
    pub pid: Pid,
    /// The ticket of the arrival that this dispatch answers.
    pub ticket: Ticket,
    /// Where the task is to run.
    pub placement: Placement,
    /// The longest time it may run. Never zero: the kernel takes zero as "what is left of the
    /// last slice".
    pub slice: Span,
    /// The key in the kernel's queues, which run the smallest key first.
    pub vtime: Vtime,
    /// The task's tier.
    pub tier: Tier,
    /// Interrupt the running task of the placement. Needs a [`Placement::Cpu`] and a port that
    /// can kick.
    pub preempt: bool,
    /// Which rule selected the task.
    pub reason: Reason,
    /// What holds for the next wakeups of the task; [`round`](crate::round()) asks the policy.
    pub order: Option<Order>,
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
    fn an_invalid_pid_or_cpu_is_refused() {
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
    fn numbers_out_of_range_are_clamped_rather_than_refused() {
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
    fn a_name_on_a_terminal_hides_and_reorders_nothing() {
        let shown = |name: &str| alloc::format!("{}", Comm::from_text(name));
        assert_eq!(shown("a\u{202e}b\u{200b}\u{2066}"), "a?b??");
    }

    #[test]
    fn bytes_after_the_zero_do_not_make_names_differ() {
        assert_eq!(Comm::from_kernel(*b"cc1\0garbage....."), Comm::from_text("cc1"));
        assert_eq!(Comm::from_kernel(*b"sixteen_letters!").as_bytes().len(), COMM_LEN - 1);
        assert_eq!(Comm::from_text("a-name-that-is-too-long").as_bytes(), b"a-name-that-is-");
        assert_eq!(Comm::from_kernel(*b"\xff\xfeok\0\0\0\0\0\0\0\0\0\0\0\0").to_string(), "??ok");
        let hostile = Comm::from_kernel(*b"\x1b[2J\n\x7f\xc2\x9b\xff\xc3\xa9\0\0\0\0\0");
        assert_eq!(hostile.to_string(), "?[2J????é");
    }

    #[test]
    fn a_higher_weight_is_charged_less() {
        let ran = Span::from_millis(1);
        assert_eq!(Weight::new(100).charge(ran), ran);
        assert_eq!(Weight::new(200).charge(ran), Span::from_micros(500));
        assert_eq!(Weight::new(1).charge(ran), Span::from_millis(100));
    }
}
