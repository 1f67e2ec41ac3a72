// SPDX-License-Identifier: GPL-2.0-only

//! A question about one task on its way to the worker, and the answer on its way back.

use crate::listen::{ANSWER_WORDS, Answer};
use pandemonium_engine::task::Pid;
use pandemonium_engine::time::Span;
use std::array;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// One question at a time, and the newest answer. The worker looks at one number a round, and
/// never waits: an answer that is read while it is written is read again.
#[repr(C)]
pub struct Query {
    number: AtomicU64,
    pid: AtomicU64,
    over_ns: AtomicU64,
    /// Odd while an answer is being written.
    seq: AtomicU64,
    words: [AtomicU64; ANSWER_WORDS],
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// About whom.
    pub pid: Pid,
    /// Waits that are longer are told one by one.
    pub over: Span,
}

impl Query {
    /// Asks, and returns the number that the answer will bear. Callers take turns.
    pub fn ask(&self, question: Question) -> u64 {
        self.pid.store(question.pid.as_raw() as u64, Ordering::Relaxed);
        self.over_ns.store(question.over.as_nanos(), Ordering::Relaxed);
        self.number.fetch_add(1, Ordering::Release) + 1
    }

    /// The question, if it is another one than that of the number that `seen` holds.
    pub fn newer(&self, seen: &mut u64) -> Option<Question> {
        let number = self.number.load(Ordering::Relaxed);
        if number == *seen {
            return None;
        }
        fence(Ordering::Acquire);
        *seen = number;
        let pid = Pid::new(self.pid.load(Ordering::Relaxed) as i32)?;
        Some(Question { pid, over: Span::from_nanos(self.over_ns.load(Ordering::Relaxed)) })
    }

    /// Answers. There is one worker at a time; allocates nothing.
    pub fn answer(&self, answer: &Answer) {
        // A worker that was killed while it wrote left an odd number.
        let seq = self.seq.load(Ordering::Relaxed) | 1;
        self.seq.store(seq, Ordering::Relaxed);
        fence(Ordering::Release);
        for (cell, word) in self.words.iter().zip(answer.to_words()) {
            cell.store(word, Ordering::Relaxed);
        }
        self.seq.store(seq + 1, Ordering::Release);
    }

    /// The newest answer, unless it is being written or there is none.
    pub fn answered(&self) -> Option<Answer> {
        let seq = self.seq.load(Ordering::Acquire);
        let words = array::from_fn(|i| self.words[i].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let whole = seq.is_multiple_of(2) && seq > 0 && self.seq.load(Ordering::Relaxed) == seq;
        if whole { Answer::from_words(&words) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Shared;

    #[test]
    fn a_question_is_seen_once_and_an_answer_is_whole_or_none() {
        let shared = Shared::create().unwrap();
        let (mut seen, pid) = (0, Pid::new(77).unwrap());
        assert_eq!(shared.query.newer(&mut seen), None);
        let question = Question { pid, over: Span::from_millis(5) };
        assert_eq!(shared.query.ask(question), 1);
        assert_eq!(shared.query.newer(&mut seen), Some(question));
        assert_eq!(shared.query.newer(&mut seen), None);
        assert!(shared.query.answered().is_none());
        let answer = Answer { number: 1, pid: Some(pid), ..Answer::default() };
        shared.query.answer(&answer);
        assert_eq!(shared.query.answered(), Some(answer));
        // As a worker leaves it that is killed in between; the next one mends it.
        shared.query.seq.fetch_add(1, Ordering::Relaxed);
        assert!(shared.query.answered().is_none());
        shared.query.answer(&answer);
        assert_eq!(shared.query.answered(), Some(answer));
    }
}
