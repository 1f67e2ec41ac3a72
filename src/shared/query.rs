// SPDX-License-Identifier: GPL-2.0-only

//! A query about one task on its way to the worker, and the reply on its way back.

use super::reply::{REPLY_WORDS, Reply};
use super::seqlock::Seqlock;
use pandemonium_engine::task::Pid;
use pandemonium_engine::time::Span;
use std::array;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The newest query, and the newest reply. The worker loads one number a round, and never waits. A
/// reader discards a reply that changes while it is read.
#[repr(C)]
pub struct QueryCell {
    number: AtomicU64,
    pid: AtomicU64,
    threshold_ns: AtomicU64,
    /// Of the reply.
    lock: Seqlock,
    words: [AtomicU64; REPLY_WORDS],
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The task.
    pub pid: Pid,
    /// Longer waits are reported one by one.
    pub threshold: Span,
}

impl QueryCell {
    /// Publishes a query, and returns the number that its reply bears. Callers take turns.
    pub fn ask(&self, query: Query) -> u64 {
        self.pid.store(query.pid.as_raw() as u64, Ordering::Relaxed);
        self.threshold_ns.store(query.threshold.as_nanos(), Ordering::Relaxed);
        self.number.fetch_add(1, Ordering::Release) + 1
    }

    /// The query, if its number differs from the one in `seen`.
    pub fn newer(&self, seen: &mut u64) -> Option<Query> {
        let number = self.number.load(Ordering::Relaxed);
        if number == *seen {
            return None;
        }
        fence(Ordering::Acquire);
        *seen = number;
        let pid = Pid::new(self.pid.load(Ordering::Relaxed) as i32)?;
        let threshold = Span::from_nanos(self.threshold_ns.load(Ordering::Relaxed));
        Some(Query { pid, threshold })
    }

    /// Publishes a reply. There is one worker at a time. Allocates nothing.
    pub fn reply(&self, reply: &Reply) {
        self.lock.write(|| {
            for (cell, word) in self.words.iter().zip(reply.to_words()) {
                cell.store(word, Ordering::Relaxed);
            }
        });
    }

    /// The newest reply; `None` if there is none, or the worker is writing one.
    pub fn newest_reply(&self) -> Option<Reply> {
        let read = || array::from_fn(|i| self.words[i].load(Ordering::Relaxed));
        self.lock.read_newer(&mut 0, read).and_then(|words| Reply::from_words(&words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Shared;

    #[test]
    fn a_query_is_seen_once_and_a_reply_is_complete_or_none() {
        let shared = Shared::create().unwrap();
        let (mut seen, pid) = (0, Pid::new(77).unwrap());
        assert_eq!(shared.query.newer(&mut seen), None);
        let query = Query { pid, threshold: Span::from_millis(5) };
        assert_eq!(shared.query.ask(query), 1);
        assert_eq!(shared.query.newer(&mut seen), Some(query));
        assert_eq!(shared.query.newer(&mut seen), None);
        assert!(shared.query.newest_reply().is_none());
        let reply = Reply { number: 1, pid: Some(pid), ..Reply::default() };
        shared.query.reply(&reply);
        assert_eq!(shared.query.newest_reply(), Some(reply));
        let cell = &shared.query;
        cell.lock.write(|| assert!(cell.newest_reply().is_none(), "in the middle"));
        cell.reply(&reply);
        assert_eq!(cell.newest_reply(), Some(reply));
    }
}
