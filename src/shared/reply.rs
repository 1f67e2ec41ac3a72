// SPDX-License-Identifier: GPL-2.0-only

//! The reply to a query about one task, and its form as words in shared memory.

use super::number::NUMBER_MAX;
use pandemonium_engine::explaining::BoundedText;
use pandemonium_engine::fates::{Bounded, Fate, Fates, Waited};
use pandemonium_engine::task::{Pid, Reason, Tier};
use pandemonium_engine::time::{Span, Stamp};

/// Long waits that a reply reports one by one: the last of them.
pub const LONG_WAITS: usize = 12;
/// Other tasks that a wait names: those that were dispatched last before its end.
const OTHERS: usize = 3;
/// Counts of other dispatches end here, so that three counts fit into a word.
const COUNT_BITS: u32 = 21;
pub const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;
const REASONS: usize = Reason::ALL.len();
const WAIT_WORDS: usize = 8;
const HEAD: usize = 12;
const FATES: usize = 12;
/// Words of a [`Reply`]. The waits are the pending one and the long ones.
pub const REPLY_WORDS: usize =
    HEAD + FATES + 3 + REASONS + BoundedText::WORDS + (1 + LONG_WAITS) * WAIT_WORDS;

/// One wait for a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// When the decision was sent.
    pub at: Stamp,
    /// How long the task waited.
    pub waited: Waited,
    /// What became of the decision.
    pub fate: Fate,
    /// Whether it had woken up; else it had lost its CPU.
    pub woke: bool,
    /// Its tier in the decision.
    pub tier: Tier,
    /// The rule that decided.
    pub reason: Reason,
    /// Decisions for other tasks during the wait, by tier.
    pub others_first: [u32; 3],
    /// The pids of the last of these tasks, newest first; 0 for none.
    pub last_others: [u32; OTHERS],
}

/// What the worker has seen of a task since the query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The number of the query.
    pub number: u64,
    pub pid: Option<Pid>,
    /// When the observation began.
    pub since: Stamp,
    /// The time of this reply.
    pub now: Stamp,
    pub wakeups: u64,
    pub requeues: u64,
    /// Since when the task waits for a decision, if it does, as far as that is known.
    pub waiting: Option<Stamp>,
    /// Waits of which the length is known, their sum, and the longest of them.
    pub waits: u64,
    pub waited: Span,
    pub longest: Span,
    pub bounded: Bounded,
    /// Decisions by tier.
    pub tiers: [u64; 3],
    /// Decisions by rule.
    pub reasons: [u64; REASONS],
    /// What became of its messages and decisions, but the last one.
    pub fates: Fates,
    /// How the policy explains its classification of the task.
    pub explained: BoundedText,
    /// The wait that ended with the last decision, if it may have been long. It is not known yet
    /// what became of that decision.
    pub pending: Option<Wait>,
    /// Number of long waits.
    pub nr_long: u64,
    /// The last long waits, newest first.
    pub long: [Wait; LONG_WAITS],
}

impl Reply {
    /// The reply as words.
    pub fn to_words(self) -> [u64; REPLY_WORDS] {
        let mut words = [0; REPLY_WORDS];
        let pid = self.pid.map_or(0, |pid| pid.as_raw() as u64);
        let waiting = self.waiting.unwrap_or_default().as_nanos();
        let head = [
            self.number,
            pid,
            self.since.as_nanos(),
            self.now.as_nanos(),
            self.wakeups | self.requeues << 32,
            waiting,
            self.waits,
            self.waited.as_nanos(),
            self.longest.as_nanos(),
            self.bounded.count,
            self.bounded.longest.as_nanos(),
            self.nr_long,
        ];
        let parts = head.into_iter().chain(words_of(&self.fates));
        let parts = parts.chain(self.tiers).chain(self.reasons);
        let parts = parts.chain(self.explained.to_words());
        let waits = [self.pending.unwrap_or_default()].into_iter().chain(self.long);
        let parts = parts.chain(waits.flat_map(Wait::to_words));
        words.iter_mut().zip(parts).for_each(|(word, part)| *word = part);
        words
    }

    /// The reply that these words hold.
    pub fn from_words(words: &[u64; REPLY_WORDS]) -> Option<Reply> {
        let stamp = Stamp::from_nanos;
        let mut rest = words[HEAD..].iter().copied();
        let mut take = || rest.next().unwrap_or(0);
        let fates = fates_of([(); FATES].map(|()| take().min(NUMBER_MAX)));
        let tiers = [(); 3].map(|()| take().min(NUMBER_MAX));
        let reasons = [(); REASONS].map(|()| take().min(NUMBER_MAX));
        let explained = BoundedText::from_words(&[(); BoundedText::WORDS].map(|()| take()));
        let mut wait = || Wait::from_words([(); WAIT_WORDS].map(|()| take()));
        let pending = Some(wait()).filter(|wait| *wait != Wait::default());
        let long = [(); LONG_WAITS].map(|()| wait());
        Some(Reply {
            number: words[0],
            pid: Some(Pid::new(words[1] as i32)?),
            since: stamp(words[2]),
            now: stamp(words[3]),
            wakeups: words[4] & u64::from(u32::MAX),
            requeues: words[4] >> 32,
            waiting: Some(stamp(words[5])).filter(|since| *since != Stamp::default()),
            waits: words[6],
            waited: Span::from_nanos(words[7]),
            longest: Span::from_nanos(words[8]),
            bounded: Bounded { count: words[9], longest: Span::from_nanos(words[10]) },
            nr_long: words[11],
            fates,
            pending,
            tiers,
            reasons,
            explained,
            long,
        })
    }
}

fn words_of(fates: &Fates) -> [u64; FATES] {
    [
        fates.ran,
        fates.ran_before,
        fates.ran_sometime,
        fates.cancelled,
        fates.late,
        fates.exited,
        fates.unknown,
        fates.ran_undecided,
        fates.replaced,
        fates.exited_undecided,
        fates.unknown_undecided,
        fates.refused,
    ]
}

fn fates_of(words: [u64; FATES]) -> Fates {
    Fates {
        ran: words[0],
        ran_before: words[1],
        ran_sometime: words[2],
        cancelled: words[3],
        late: words[4],
        exited: words[5],
        unknown: words[6],
        ran_undecided: words[7],
        replaced: words[8],
        exited_undecided: words[9],
        unknown_undecided: words[10],
        refused: words[11],
    }
}

/// The number of a fate, and the time that belongs to it.
fn words_of_fate(fate: Fate) -> (u64, Span) {
    match fate {
        Fate::Unknown => (0, Span::ZERO),
        Fate::Ran(after) => (1, after),
        Fate::RanBefore(before) => (2, before),
        Fate::RanSometime => (3, Span::ZERO),
        Fate::Cancelled => (4, Span::ZERO),
        Fate::Exited => (5, Span::ZERO),
    }
}

fn fate_of(number: u64, span: Span) -> Fate {
    match number {
        1 => Fate::Ran(span),
        2 => Fate::RanBefore(span),
        3 => Fate::RanSometime,
        4 => Fate::Cancelled,
        5 => Fate::Exited,
        _ => Fate::Unknown,
    }
}

fn words_of_waited(waited: Waited) -> (u64, Span) {
    match waited {
        Waited::AtMost(span) => (0, span),
        Waited::Exactly(span) => (1, span),
        Waited::AtLeast(span) => (2, span),
    }
}

fn waited_of(number: u64, span: Span) -> Waited {
    match number {
        1 => Waited::Exactly(span),
        2 => Waited::AtLeast(span),
        _ => Waited::AtMost(span),
    }
}

impl Wait {
    fn to_words(self) -> [u64; WAIT_WORDS] {
        let what = self.tier.index() as u64 | (self.reason.index() as u64) << 8;
        let (fate, run) = words_of_fate(self.fate);
        let (known, waited) = words_of_waited(self.waited);
        let [newest, others @ ..] = self.last_others.map(u64::from);
        [
            self.at.as_nanos(),
            waited.as_nanos(),
            run.as_nanos(),
            what | u64::from(self.woke) << 16 | fate << 24 | known << 32,
            self.others_first
                .into_iter()
                .rev()
                .fold(0, |all, part| all << COUNT_BITS | u64::from(part)),
            newest,
            others[0],
            others[1],
        ]
    }

    fn from_words(words: [u64; WAIT_WORDS]) -> Wait {
        let [at, waited, run, what, counts, others @ ..] = words;
        Wait {
            at: Stamp::from_nanos(at),
            waited: waited_of(what >> 32 & 0xff, Span::from_nanos(waited)),
            fate: fate_of(what >> 24 & 0xff, Span::from_nanos(run)),
            woke: what >> 16 & 1 == 1,
            tier: tier_of(what & 0xff),
            reason: Reason::ALL.get((what >> 8 & 0xff) as usize).copied().unwrap_or_default(),
            others_first: [0, 1, 2].map(|tier| (counts >> (tier * COUNT_BITS)) as u32 & COUNT_MAX),
            last_others: others.map(|pid| pid as u32),
        }
    }
}

fn tier_of(index: u64) -> Tier {
    Tier::ALL.get(index as usize).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn a_reply_survives_its_words() {
        let wait = Wait {
            at: Stamp::from_nanos(1),
            waited: Waited::Exactly(Span::from_nanos(2)),
            fate: Fate::RanBefore(Span::from_nanos(3)),
            woke: true,
            tier: Tier::LatCritical,
            reason: Reason::Fifo,
            others_first: [1, COUNT_MAX, 3],
            last_others: [4, 5, u32::MAX],
        };
        let mut explained = BoundedText::default();
        explained.write_str("cc1 is Batch").unwrap();
        let reply = Reply {
            number: 11,
            pid: Pid::new(12),
            since: Stamp::from_nanos(13),
            now: Stamp::from_nanos(14),
            wakeups: 15,
            requeues: 16,
            waiting: Some(Stamp::from_nanos(17)),
            waits: 18,
            waited: Span::from_nanos(19),
            longest: Span::from_nanos(20),
            bounded: Bounded { count: 21, longest: Span::from_nanos(22) },
            tiers: [23, 24, 25],
            reasons: [26, 27, 28, 29, 30, 31],
            fates: fates_of([32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43]),
            explained,
            pending: Some(Wait { waited: Waited::AtMost(Span::from_nanos(44)), ..wait }),
            nr_long: 45,
            long: [wait; LONG_WAITS],
        };
        assert_eq!(Reply::from_words(&reply.to_words()), Some(reply));
        let bare =
            Reply { explained: BoundedText::default(), waiting: None, pending: None, ..reply };
        assert_eq!(Reply::from_words(&bare.to_words()), Some(bare));
        let spans = [Span::ZERO, Span::from_nanos(1)];
        let fates = (0..6).flat_map(|fate| spans.map(|span| fate_of(fate, span)));
        for (fate, waited) in fates.zip((0..3).cycle().map(|known| waited_of(known, spans[1]))) {
            let wait = Wait { fate, waited, ..wait };
            assert_eq!(Wait::from_words(wait.to_words()), wait);
        }
        // Arbitrary words do not panic.
        let _ = Reply::from_words(&[u64::MAX; REPLY_WORDS]);
    }
}
