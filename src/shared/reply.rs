// SPDX-License-Identifier: GPL-2.0-only

//! The reply to a query about one task, and its form as words in shared memory.

use super::NUMBER_MAX;
use pandemonium_engine::explaining::BoundedText;
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
const WAIT_WORDS: usize = 7;
const HEAD: usize = 11;
/// Words of a [`Reply`].
pub const REPLY_WORDS: usize = HEAD + REASONS + 3 + BoundedText::WORDS + LONG_WAITS * WAIT_WORDS;

/// One wait for a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// When the decision was sent.
    pub at: Stamp,
    /// How long the task had waited.
    pub waited: Span,
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
    /// Since when the task waits, if it does.
    pub waiting: Option<Stamp>,
    /// The sum of its waits.
    pub waited: Span,
    /// The longest of its waits.
    pub longest: Span,
    /// Decisions by tier.
    pub tiers: [u64; 3],
    /// Decisions by rule.
    pub reasons: [u64; REASONS],
    /// Decisions after which it ran.
    pub ran: u32,
    /// Decisions that were cancelled, because it was queued again before it ran.
    pub cancelled: u32,
    /// Messages without a decision: it ran otherwise before its next one.
    pub ran_undecided: u32,
    /// Messages whose place a newer one took before it ran.
    pub replaced: u32,
    /// How the policy explains its classification of the task.
    pub explained: BoundedText,
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
            self.waited.as_nanos(),
            self.longest.as_nanos(),
            self.nr_long,
            u64::from(self.ran) | u64::from(self.cancelled) << 32,
            u64::from(self.ran_undecided) | u64::from(self.replaced) << 32,
        ];
        let parts = head.into_iter().chain(self.tiers).chain(self.reasons);
        let parts = parts.chain(self.explained.to_words());
        let parts = parts.chain(self.long.into_iter().flat_map(Wait::to_words));
        words.iter_mut().zip(parts).for_each(|(word, part)| *word = part);
        words
    }

    /// The reply that these words hold.
    pub fn from_words(words: &[u64; REPLY_WORDS]) -> Option<Reply> {
        let stamp = Stamp::from_nanos;
        let mut rest = words[HEAD..].iter().copied();
        let mut take = || rest.next().unwrap_or(0);
        let tiers = [(); 3].map(|()| take().min(NUMBER_MAX));
        let reasons = [(); REASONS].map(|()| take().min(NUMBER_MAX));
        let explained = BoundedText::from_words(&[(); BoundedText::WORDS].map(|()| take()));
        let long = [(); LONG_WAITS].map(|()| Wait::from_words([(); WAIT_WORDS].map(|()| take())));
        Some(Reply {
            number: words[0],
            pid: Some(Pid::new(words[1] as i32)?),
            since: stamp(words[2]),
            now: stamp(words[3]),
            wakeups: words[4] & u64::from(u32::MAX),
            requeues: words[4] >> 32,
            waiting: Some(stamp(words[5])).filter(|since| *since != Stamp::default()),
            waited: Span::from_nanos(words[6]),
            longest: Span::from_nanos(words[7]),
            nr_long: words[8],
            ran: words[9] as u32,
            cancelled: (words[9] >> 32) as u32,
            ran_undecided: words[10] as u32,
            replaced: (words[10] >> 32) as u32,
            tiers,
            reasons,
            explained,
            long,
        })
    }
}

impl Wait {
    fn to_words(self) -> [u64; WAIT_WORDS] {
        let what = self.tier.index() as u64 | (self.reason.index() as u64) << 8;
        let [newest, others @ ..] = self.last_others.map(u64::from);
        [
            self.at.as_nanos(),
            self.waited.as_nanos(),
            what | u64::from(self.woke) << 16,
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
        let [at, waited, what, counts, others @ ..] = words;
        Wait {
            at: Stamp::from_nanos(at),
            waited: Span::from_nanos(waited),
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
            waited: Span::from_nanos(2),
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
            waited: Span::from_nanos(18),
            longest: Span::from_nanos(19),
            tiers: [20, 21, 22],
            reasons: [23, 24, 25, 26, 27, 28],
            explained,
            nr_long: 29,
            ran: 30,
            cancelled: 31,
            ran_undecided: 32,
            replaced: u32::MAX,
            long: [wait; LONG_WAITS],
        };
        assert_eq!(Reply::from_words(&reply.to_words()), Some(reply));
        let bare = Reply { explained: BoundedText::default(), waiting: None, ..reply };
        assert_eq!(Reply::from_words(&bare.to_words()), Some(bare));
        // Arbitrary words do not panic.
        let _ = Reply::from_words(&[u64::MAX; REPLY_WORDS]);
    }
}
