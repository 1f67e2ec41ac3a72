// SPDX-License-Identifier: GPL-2.0-only

//! What the worker lets others hear of its rounds: everything, for a recording, and what happens
//! to one task, for who asked about it. Nothing here waits or allocates.

use super::shared::Shared;
use super::shared::query::Query;
use pandemonium_engine::Setup;
use pandemonium_engine::explaining::BoundedText;
use pandemonium_engine::knobs::Values;
use pandemonium_engine::procdb::{Minute, Profile};
use pandemonium_engine::task::{Arrival, Cause, CpuId, Dispatch, Pid, Reason, Tier};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::{Full, Limits, MachineView, Memo, Policy, Port, Round, round};
use pandemonium_record::{Tap, Writer};

/// Long waits that are told one by one: the last of them.
pub const TOLD: usize = 12;
/// Others that came before, by pid: the last of them.
const OTHERS: usize = 3;
/// For how long a task is watched after somebody asked.
const WATCHED: Span = Span::from_millis(60_000);
/// Decisions for others are counted up to here, so that three counts fit a word.
const PASSED_BITS: u32 = 21;
const PASSED_MAX: u32 = (1 << PASSED_BITS) - 1;
const REASONS: usize = Reason::ALL.len();
const WAIT_WORDS: usize = 7;
/// Words of an [`Answer`].
pub const ANSWER_WORDS: usize = 9 + REASONS + 3 + BoundedText::WORDS + TOLD * WAIT_WORDS;

/// Those who listen to the worker.
pub struct Listeners<'s> {
    recorder: Option<Writer<'s>>,
    watch: Watch<'s>,
}

impl<'s> Listeners<'s> {
    /// Whoever listens through this memory.
    pub fn of(shared: &'s Shared) -> Self {
        Listeners { recorder: shared.ring().map(Writer::new), watch: Watch::of(&shared.query) }
    }

    /// The policy begins, and is told this.
    pub fn started(&mut self, setup: &Setup) {
        self.recorder.iter_mut().for_each(|recorder| recorder.started(setup));
    }

    /// The policy is told what an earlier worker knew of a task.
    pub fn remembered(&mut self, memo: Memo) {
        self.recorder.iter_mut().for_each(|recorder| recorder.remembered(memo));
    }

    /// The policy is told what was learned of programs.
    pub fn learned(&mut self, when: Minute, known: &[Profile]) {
        self.recorder.iter_mut().for_each(|recorder| recorder.learned(when, known));
    }

    /// The policy is given settings.
    pub fn applied(&mut self, values: &Values) {
        self.recorder.iter_mut().for_each(|recorder| recorder.applied(values));
    }

    /// The policy is told that a task is gone.
    pub fn exited(&mut self, pid: Pid) {
        self.recorder.iter_mut().for_each(|recorder| recorder.exited(pid));
    }

    /// The policy is told what time it is.
    pub fn minute(&mut self, when: Minute) {
        self.recorder.iter_mut().for_each(|recorder| recorder.minute(when));
    }

    /// One round, overheard.
    pub fn round<P: Port>(&mut self, now: Stamp, port: &mut P, policy: &mut dyn Policy) -> Round {
        self.watch.begin(now);
        let mut heard = Heard { port, watch: &mut self.watch, now };
        let done = match &mut self.recorder {
            None => round(now, &mut heard, policy, Limits::KERNEL),
            Some(recorder) => {
                let mut tap = Tap::round(&mut heard, recorder, now);
                let done = round(now, &mut tap, policy, Limits::KERNEL);
                tap.end(&done);
                done
            }
        };
        self.watch.end(now, policy);
        done
    }
}

/// A port around a port, for the watch.
struct Heard<'a, 's, P> {
    port: &'a mut P,
    watch: &'a mut Watch<'s>,
    now: Stamp,
}

impl<P: Port> Port for Heard<'_, '_, P> {
    fn recv(&mut self) -> Option<Arrival> {
        let arrival = self.port.recv()?;
        if self.watch.pid == Some(arrival.pid) {
            self.watch.came(self.now, &arrival);
        }
        Some(arrival)
    }

    fn send(&mut self, dispatch: &Dispatch) -> Result<(), Full> {
        self.port.send(dispatch)?;
        if self.watch.pid.is_some() {
            self.watch.went(self.now, dispatch);
        }
        Ok(())
    }

    fn kick(&mut self, cpu: CpuId) {
        self.port.kick(cpu);
    }

    fn view(&self) -> &MachineView {
        self.port.view()
    }
}

/// The task that somebody asked about.
struct Watch<'s> {
    query: &'s Query,
    /// The question that was taken up last.
    seen: u64,
    /// When somebody asked last.
    asked: Stamp,
    pid: Option<Pid>,
    over: Span,
    answer: Answer,
    waiting: Wait,
    /// There is something that the answer given last does not tell.
    news: bool,
}

impl<'s> Watch<'s> {
    fn of(query: &'s Query) -> Self {
        Watch {
            query,
            seen: 0,
            asked: Stamp::default(),
            pid: None,
            over: Span::ZERO,
            answer: Answer::default(),
            waiting: Wait::default(),
            news: false,
        }
    }

    fn begin(&mut self, now: Stamp) {
        if let Some(question) = self.query.newer(&mut self.seen) {
            // Who is asked about again is not forgotten in between.
            if self.pid != Some(question.pid) || self.over != question.over {
                (self.pid, self.over) = (Some(question.pid), question.over);
                self.answer = Answer { since: now, pid: Some(question.pid), ..Answer::default() };
                self.waiting = Wait::default();
            }
            self.answer.number = self.seen;
            self.asked = now;
            self.news = true;
        }
        if self.pid.is_some() && now.since(self.asked) > WATCHED {
            self.pid = None;
        }
    }

    fn end(&mut self, now: Stamp, policy: &dyn Policy) {
        let Some(pid) = self.pid.filter(|_| self.news) else { return };
        self.news = false;
        self.answer.now = now;
        self.answer.explained = BoundedText::default();
        if let Some(explaining) = policy.explaining() {
            // A text that is too long is cut off.
            let _ = explaining.explain(pid, &mut self.answer.explained);
        }
        self.query.answer(&self.answer);
    }

    fn came(&mut self, now: Stamp, arrival: &Arrival) {
        self.news = true;
        match arrival.cause {
            Cause::Requeue => self.answer.requeues += 1,
            Cause::New | Cause::Wakeup => self.answer.wakeups += 1,
        }
        if self.answer.waiting.is_none() {
            self.answer.waiting = Some(now);
            let woke = arrival.cause != Cause::Requeue;
            self.waiting = Wait { woke, ..Wait::default() };
        }
    }

    fn went(&mut self, now: Stamp, dispatch: &Dispatch) {
        let Some(since) = self.answer.waiting else { return };
        if self.pid != Some(dispatch.pid) {
            let passed = &mut self.waiting.passed[dispatch.tier.index()];
            *passed = (*passed + 1).min(PASSED_MAX);
            self.waiting.others.rotate_right(1);
            self.waiting.others[0] = dispatch.pid.as_raw() as u32;
            return;
        }
        self.news = true;
        let answer = &mut self.answer;
        answer.waiting = None;
        answer.tiers[dispatch.tier.index()] += 1;
        answer.reasons[dispatch.reason.index()] += 1;
        let waited = now.since(since);
        answer.waited += waited;
        answer.longest = answer.longest.max(waited);
        if waited > self.over {
            let (tier, reason) = (dispatch.tier, dispatch.reason);
            answer.long.rotate_right(1);
            answer.long[0] = Wait { at: now, waited, tier, reason, ..self.waiting };
            answer.nr_long += 1;
        }
    }
}

/// One wait for a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// When it was decided for.
    pub at: Stamp,
    /// How long that took.
    pub waited: Span,
    /// It had woken up; else it had lost its CPU.
    pub woke: bool,
    /// Its tier then, and the rule that decided.
    pub tier: Tier,
    /// See `tier`.
    pub reason: Reason,
    /// Decisions for others meanwhile, by tier.
    pub passed: [u32; 3],
    /// The last of them, newest first; 0 is nobody.
    pub others: [u32; OTHERS],
}

/// What is known of a task since somebody asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Which question it answers.
    pub number: u64,
    pub pid: Option<Pid>,
    /// Since when it is watched, and until when this tells.
    pub since: Stamp,
    /// See `since`.
    pub now: Stamp,
    pub wakeups: u64,
    pub requeues: u64,
    /// Since when it waits, if it does.
    pub waiting: Option<Stamp>,
    /// All its waits together, and the longest.
    pub waited: Span,
    /// See `waited`.
    pub longest: Span,
    /// Decisions by tier, and by the rule that made them.
    pub tiers: [u64; 3],
    /// See `tiers`.
    pub reasons: [u64; REASONS],
    /// What the policy holds of it.
    pub explained: BoundedText,
    /// How many waits were long, and the last of them, newest first.
    pub nr_long: u64,
    /// See `nr_long`.
    pub long: [Wait; TOLD],
}

impl Answer {
    /// As words in shared memory.
    pub fn to_words(self) -> [u64; ANSWER_WORDS] {
        let mut words = [0; ANSWER_WORDS];
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
        ];
        let parts = head.into_iter().chain(self.tiers).chain(self.reasons);
        let parts = parts.chain(self.explained.to_words());
        let parts = parts.chain(self.long.into_iter().flat_map(Wait::to_words));
        words.iter_mut().zip(parts).for_each(|(word, part)| *word = part);
        words
    }

    /// Back from words.
    pub fn from_words(words: &[u64; ANSWER_WORDS]) -> Option<Answer> {
        let stamp = Stamp::from_nanos;
        let mut rest = words[9..].iter().copied();
        let mut take = || rest.next().unwrap_or(0);
        let tiers = [(); 3].map(|()| take());
        let reasons = [(); REASONS].map(|()| take());
        let explained = BoundedText::from_words(&[(); BoundedText::WORDS].map(|()| take()));
        let long = [(); TOLD].map(|()| Wait::from_words([(); WAIT_WORDS].map(|()| take())));
        Some(Answer {
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
        let [newest, others @ ..] = self.others.map(u64::from);
        [
            self.at.as_nanos(),
            self.waited.as_nanos(),
            what | u64::from(self.woke) << 16,
            self.passed.into_iter().rev().fold(0, |all, part| all << PASSED_BITS | u64::from(part)),
            newest,
            others[0],
            others[1],
        ]
    }

    fn from_words(words: [u64; WAIT_WORDS]) -> Wait {
        let [at, waited, what, passed, others @ ..] = words;
        Wait {
            at: Stamp::from_nanos(at),
            waited: Span::from_nanos(waited),
            woke: what >> 16 & 1 == 1,
            tier: tier_of(what & 0xff),
            reason: Reason::ALL.get((what >> 8 & 0xff) as usize).copied().unwrap_or_default(),
            passed: [0, 1, 2].map(|tier| (passed >> (tier * PASSED_BITS)) as u32 & PASSED_MAX),
            others: others.map(|pid| pid as u32),
        }
    }
}

fn tier_of(index: u64) -> Tier {
    Tier::ALL.get(index as usize).copied().unwrap_or_default()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::shared::query::Question;
    use pandemonium_engine::task::{Comm, RawArrival};
    use pandemonium_policies::Pandemonium;
    use pandemonium_policies::knobs::TABLE;
    use pandemonium_record::{Entry, Reader, WORDS_MAX, decode};
    use std::collections::VecDeque;
    use std::fmt::Write;

    #[derive(Default)]
    struct Script {
        up: VecDeque<Arrival>,
        view: MachineView,
    }

    impl Port for Script {
        fn recv(&mut self) -> Option<Arrival> {
            self.up.pop_front()
        }
        fn send(&mut self, _: &Dispatch) -> Result<(), Full> {
            Ok(())
        }
        fn kick(&mut self, _: CpuId) {}
        fn view(&self) -> &MachineView {
            &self.view
        }
    }

    fn arrival(pid: i32, ticket: u64, flags: u64) -> Arrival {
        let raw = RawArrival { pid, enq_cnt: ticket, flags, weight: 100, ..Default::default() };
        Arrival { comm: Comm::from_text("hog"), ..raw.decode().unwrap() }
    }

    fn pid(number: i32) -> Pid {
        Pid::new(number).unwrap()
    }

    /// Two tasks come up, of which one decision a round takes the other first.
    #[test]
    fn who_asked_hears_of_waits_of_who_came_first_and_of_the_evidence() {
        let shared = Shared::create().unwrap();
        let mut listeners = Listeners::of(&shared);
        let mut policy = Pandemonium::new(&Setup::of_cpus(2));
        let mut port =
            Script { view: MachineView { cpus: 2, ..Default::default() }, up: [].into() };
        let at = |ms: u64| Stamp::from_nanos(1 << 40) + Span::from_millis(ms);
        policy.tune(&TABLE.defaults());
        listeners.round(at(0), &mut port, &mut policy);
        assert!(shared.query.answered().is_none(), "nobody asked");

        let question = Question { pid: pid(8), over: Span::from_millis(2) };
        let number = shared.query.ask(question);
        port.up.extend([arrival(7, 5, 1), arrival(8, 5, 1), arrival(9, 5, 1)]);
        // Those are above Batch, of whom one round takes up to eight: Batch waits for its own.
        listeners.round(at(1), &mut port, &mut policy);
        let first = shared.query.answered().unwrap();
        assert_eq!((first.number, first.pid, first.wakeups), (number, Some(pid(8)), 1));
        assert!(first.explained.as_str().starts_with("hog (pid 8) is "), "{:?}", first.explained);
        assert_eq!(first.tiers.iter().sum::<u64>() + u64::from(first.waiting.is_some()), 1);

        // One that waits while others go.
        let mut watch = Watch::of(&shared.query);
        watch.begin(at(10));
        watch.came(at(10), &Arrival { cause: Cause::Requeue, ..arrival(8, 6, 0) });
        let sent = |number, reason| Dispatch {
            pid: pid(number),
            ticket: Default::default(),
            placement: pandemonium_engine::task::Placement::Any { near: CpuId::default() },
            slice: Span::from_millis(1),
            vtime: Default::default(),
            tier: if number == 7 { Tier::LatCritical } else { Tier::Batch },
            preempt: false,
            reason,
        };
        watch.went(at(11), &sent(7, Reason::Order));
        watch.went(at(12), &sent(9, Reason::Order));
        watch.went(at(15), &sent(8, Reason::CodelRescue));
        watch.end(at(15), &policy);
        let answer = shared.query.answered().unwrap();
        let wait = answer.long[0];
        assert_eq!((wait.waited, wait.passed, wait.woke), (Span::from_millis(5), [1, 0, 1], false));
        assert_eq!((wait.reason, wait.others), (Reason::CodelRescue, [9, 7, 0]));
        assert_eq!((answer.requeues, answer.nr_long), (1, 1));
        assert_eq!(answer.reasons[Reason::CodelRescue.index()], 1);
        watch.begin(at(61_001));
        assert_eq!(watch.pid, None, "nobody asked for a minute");
    }

    #[test]
    fn a_recording_hears_all_that_reaches_the_policy() {
        let shared = Shared::with_ring().unwrap();
        let mut listeners = Listeners::of(&shared);
        let setup = Setup::of_cpus(2);
        let mut policy = Pandemonium::new(&setup);
        listeners.started(&setup);
        listeners.applied(&TABLE.defaults());
        listeners.minute(Minute::from_unix(3));
        listeners.learned(Minute::from_unix(3), &[Profile::default()]);
        let mut port = Script { up: [arrival(7, 1, 1)].into(), ..Script::default() };
        listeners.round(Stamp::from_nanos(9), &mut port, &mut policy);
        let mut reader = Reader::new(shared.ring().unwrap());
        let mut words = [0; WORDS_MAX];
        let mut kinds = Vec::new();
        while let Some(length) = reader.pop(&mut words) {
            kinds.push(match decode(&words[..length.unwrap()]).unwrap() {
                Entry::Started { cpus } => format!("started {cpus}"),
                Entry::Place(_) => "place".into(),
                Entry::Applied(_) => "applied".into(),
                Entry::Minute(_) => "minute".into(),
                Entry::Known(_) => "known".into(),
                Entry::Learned(_) => "learned".into(),
                Entry::Began { .. } => "began".into(),
                Entry::Took(arrival) => format!("took {}", arrival.pid.as_raw()),
                Entry::Sent(dispatch) => format!("sent {}", dispatch.pid.as_raw()),
                Entry::Ended { pending, .. } => format!("ended {pending}"),
                other => format!("{other:?}"),
            });
        }
        let expected = "started 2, place, place, applied, minute, known, learned, began, took 7, \
                        sent 7, ended 0";
        assert_eq!(kinds.join(", "), expected);
    }

    #[test]
    fn an_answer_comes_back_from_its_words() {
        let wait = Wait {
            at: Stamp::from_nanos(1),
            waited: Span::from_nanos(2),
            woke: true,
            tier: Tier::LatCritical,
            reason: Reason::Fifo,
            passed: [1, PASSED_MAX, 3],
            others: [4, 5, u32::MAX],
        };
        let mut explained = BoundedText::default();
        explained.write_str("it is what it is").unwrap();
        let answer = Answer {
            number: 11,
            pid: Some(pid(12)),
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
            long: [wait; TOLD],
        };
        assert_eq!(Answer::from_words(&answer.to_words()), Some(answer));
        let bare = Answer { explained: BoundedText::default(), waiting: None, ..answer };
        assert_eq!(Answer::from_words(&bare.to_words()), Some(bare));
        // Words that nobody wrote make no panic.
        let _ = Answer::from_words(&[u64::MAX; ANSWER_WORDS]);
    }
}
