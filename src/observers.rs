// SPDX-License-Identifier: GPL-2.0-only

//! What the worker shows of its rounds: everything, to a recording; the waits of one task, to a
//! query; the last decision about each task, to a list. Nothing here waits or allocates.

use super::shared::Shared;
use super::shared::assignments::AssignmentList;
use super::shared::query::QueryCell;
use super::shared::reply::{COUNT_MAX, Reply, Wait};
use super::shared::task_cells::TaskCells;
use pandemonium_engine::Setup;
use pandemonium_engine::explaining::BoundedText;
use pandemonium_engine::fates::{Ended, Follower};
use pandemonium_engine::knobs::Values;
use pandemonium_engine::orders::Bounds;
use pandemonium_engine::procdb::{Minute, Profile};
use pandemonium_engine::task::{Arrival, Cause, CpuId, Dispatch, Pid};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::topology::Topology;
use pandemonium_engine::{Full, Limits, MachineView, Memo, Policy, Port, Round, round};
use pandemonium_record::{Tap, Writer};

/// For how long a task is observed after the last query about it.
const OBSERVATION: Span = Span::from_millis(60_000);

/// The observers of one worker: the recording, if there is one, the queried task, and the list of
/// tasks.
pub struct Observers<'s> {
    recorder: Option<Writer<'s>>,
    queried: QueriedTask<'s>,
    listed: ListedTasks<'s>,
}

impl<'s> Observers<'s> {
    /// The observers that this memory connects to.
    pub fn of(shared: &'s Shared) -> Self {
        let queried = QueriedTask::of(&shared.query);
        let listed = ListedTasks { cells: &shared.tasks, since: None };
        Observers { recorder: shared.ring().map(Writer::new), queried, listed }
    }

    /// The policy starts with this setup.
    pub fn started(&mut self, setup: &Setup) {
        self.recorder.iter_mut().for_each(|recorder| recorder.started(setup));
    }

    /// The policy imports an earlier worker's memo of a task.
    pub fn remembered(&mut self, memo: Memo) {
        self.recorder.iter_mut().for_each(|recorder| recorder.remembered(memo));
    }

    /// The policy imports the profiles of programs.
    pub fn learned(&mut self, when: Minute, known: &[Profile]) {
        self.recorder.iter_mut().for_each(|recorder| recorder.learned(when, known));
    }

    /// The policy applies knobs.
    pub fn applied(&mut self, values: &Values) {
        self.recorder.iter_mut().for_each(|recorder| recorder.applied(values));
    }

    /// The policy receives the processes that the user demands a treatment for.
    pub fn assigned(&mut self, list: &AssignmentList) {
        let recorders = self.recorder.iter_mut();
        recorders.for_each(|recorder| recorder.assigned(&list.treatments, &list.processes));
    }

    /// The policy receives another topology.
    pub fn placed(&mut self, topology: &Topology) {
        self.recorder.iter_mut().for_each(|recorder| recorder.placed(topology));
    }

    /// The policy forgets a task that has exited.
    pub fn exited(&mut self, pid: Pid) {
        self.recorder.iter_mut().for_each(|recorder| recorder.exited(pid));
        if self.queried.pid == Some(pid) {
            self.queried.exited();
        }
    }

    /// The policy receives the minute of the calendar.
    pub fn minute(&mut self, when: Minute) {
        self.recorder.iter_mut().for_each(|recorder| recorder.minute(when));
    }

    /// Executes one round, observed.
    pub fn round<P: Port>(&mut self, now: Stamp, port: &mut P, policy: &mut dyn Policy) -> Round {
        self.queried.begin(now);
        self.listed.begin(now);
        let (queried, listed) = (&mut self.queried, &self.listed);
        let mut observed = ObservedPort { port, queried, listed, now };
        let done = match &mut self.recorder {
            None => round(now, &mut observed, policy, Limits::KERNEL),
            Some(recorder) => {
                let mut tap = Tap::round(&mut observed, recorder, now);
                let done = round(now, &mut tap, policy, Limits::KERNEL);
                tap.end(&done);
                done
            }
        };
        self.queried.end(now, policy);
        done
    }
}

/// A port that shows messages and decisions to the observers.
struct ObservedPort<'a, 's, P> {
    port: &'a mut P,
    queried: &'a mut QueriedTask<'s>,
    listed: &'a ListedTasks<'s>,
    now: Stamp,
}

impl<P: Port> Port for ObservedPort<'_, '_, P> {
    fn recv(&mut self) -> Option<Arrival> {
        let arrival = self.port.recv()?;
        if self.queried.pid == Some(arrival.pid) {
            self.queried.received(self.now, &arrival);
        }
        self.listed.received(self.now, &arrival);
        Some(arrival)
    }

    fn send(&mut self, dispatch: &Dispatch) -> Result<(), Full> {
        self.port.send(dispatch).inspect_err(|_| self.queried.refused(dispatch))?;
        if self.queried.pid.is_some() {
            self.queried.dispatched(self.now, dispatch);
        }
        self.listed.dispatched(self.now, dispatch);
        Ok(())
    }

    fn kick(&mut self, cpu: CpuId) {
        self.port.kick(cpu);
    }

    fn publish(&mut self, bounds: Option<&Bounds>) {
        self.port.publish(bounds);
    }

    fn view(&self) -> &MachineView {
        self.port.view()
    }
}

/// All tasks, while a reader wants a list of them.
struct ListedTasks<'s> {
    cells: &'s TaskCells,
    /// Since when a reader wants it; `None` if none does.
    since: Option<Stamp>,
}

impl ListedTasks<'_> {
    fn begin(&mut self, now: Stamp) {
        self.since = self.cells.are_wanted(now).then(|| self.since.unwrap_or(now));
    }

    fn received(&self, now: Stamp, arrival: &Arrival) {
        let Some(since) = self.since else { return };
        let woke = arrival.cause != Cause::Requeue;
        let orders = arrival.facts.map(|facts| facts.orders);
        self.cells.received(arrival.pid, now, since, woke, orders);
    }

    fn dispatched(&self, now: Stamp, dispatch: &Dispatch) {
        let Some(since) = self.since else { return };
        self.cells.sent(dispatch.pid, now, since, dispatch.tier, dispatch.reason);
    }
}

/// The task of the last query.
struct QueriedTask<'s> {
    cell: &'s QueryCell,
    /// The number of the last query that was taken up.
    seen: u64,
    /// When it was taken up.
    asked: Stamp,
    pid: Option<Pid>,
    threshold: Span,
    reply: Reply,
    /// When the round began, and how long after the one before.
    round: Stamp,
    gap: Span,
    /// Its messages and decisions, with what is to be told of its waits.
    follower: Follower<Wait>,
    /// Whether `reply` has changed since it was published.
    changed: bool,
}

impl<'s> QueriedTask<'s> {
    fn of(cell: &'s QueryCell) -> Self {
        QueriedTask {
            cell,
            seen: 0,
            asked: Stamp::default(),
            pid: None,
            threshold: Span::ZERO,
            reply: Reply::default(),
            round: Stamp::default(),
            gap: Span::ZERO,
            follower: Follower::default(),
            changed: false,
        }
    }

    fn begin(&mut self, now: Stamp) {
        (self.gap, self.round) = (now.since(self.round), now);
        if let Some(query) = self.cell.newer(&mut self.seen) {
            // Another query about the same task goes on with its observation.
            if self.pid != Some(query.pid) || self.threshold != query.threshold {
                (self.pid, self.threshold) = (Some(query.pid), query.threshold);
                self.reply = Reply { since: now, pid: Some(query.pid), ..Reply::default() };
                self.follower = Follower::default();
            }
            self.reply.number = self.seen;
            self.asked = now;
            self.changed = true;
        }
        if self.pid.is_some() && now.since(self.asked) > OBSERVATION {
            self.pid = None;
        }
    }

    fn end(&mut self, now: Stamp, policy: &dyn Policy) {
        let Some(pid) = self.pid.filter(|_| self.changed) else { return };
        self.changed = false;
        self.reply.now = now;
        self.reply.waiting = self.follower.waiting().map(|(since, _)| since);
        self.reply.fates = *self.follower.fates();
        let pending = self.follower.decided().map(|ended| told(&ended));
        self.reply.pending = pending.filter(|wait| wait.waited.span() > self.threshold);
        self.reply.explained = BoundedText::default();
        if let Some(explaining) = policy.explaining() {
            // A text that is too long is cut off.
            let _ = explaining.explain(pid, &mut self.reply.explained);
        }
        self.cell.reply(&self.reply);
    }

    fn received(&mut self, now: Stamp, arrival: &Arrival) {
        self.changed = true;
        match arrival.cause {
            Cause::Requeue => self.reply.requeues += 1,
            Cause::New | Cause::Wakeup => self.reply.wakeups += 1,
        }
        let ended = self.follower.received(now, self.gap, arrival);
        ended.into_iter().for_each(|ended| self.ended(&ended));
    }

    /// It is known what became of a decision.
    fn ended(&mut self, ended: &Ended<Wait>) {
        let reply = &mut self.reply;
        if let Some(length) = reply.bounded.add(ended.waited) {
            reply.waits += 1;
            reply.waited += length;
            reply.longest = reply.longest.max(length);
        }
        if ended.waited.span() > self.threshold {
            reply.long.rotate_right(1);
            reply.long[0] = told(ended);
            reply.nr_long += 1;
        }
    }

    /// The task has exited.
    fn exited(&mut self) {
        self.changed = true;
        let ended = self.follower.exited();
        ended.into_iter().for_each(|ended| self.ended(&ended));
    }

    fn refused(&mut self, dispatch: &Dispatch) {
        if self.pid == Some(dispatch.pid) {
            self.changed = true;
            self.follower.refused();
        }
    }

    fn dispatched(&mut self, now: Stamp, dispatch: &Dispatch) {
        let Dispatch { pid, tier, reason, .. } = *dispatch;
        if self.pid != Some(pid) {
            if let Some((_, wait)) = self.follower.waiting() {
                let count = &mut wait.others_first[tier.index()];
                *count = (*count + 1).min(COUNT_MAX);
                wait.last_others.rotate_right(1);
                wait.last_others[0] = pid.as_raw() as u32;
            }
            return;
        }
        self.changed = true;
        self.reply.tiers[tier.index()] += 1;
        self.reply.reasons[reason.index()] += 1;
        if let Some(wait) = self.follower.sent(now, dispatch.ticket) {
            (wait.tier, wait.reason) = (tier, reason);
        }
    }
}

/// What is told of a wait.
fn told(ended: &Ended<Wait>) -> Wait {
    let Ended { cause, at, fate, waited, notes, .. } = *ended;
    Wait { at, waited, fate, woke: cause != Cause::Requeue, ..notes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::query::Query;
    use pandemonium_engine::PolicyInfo;
    use pandemonium_engine::facts::Facts;
    use pandemonium_engine::fates::Waited;
    use pandemonium_engine::fates::{Bounded, Fate, Fates};
    use pandemonium_engine::task::{Comm, Placement, RawArrival, Reason, Ticket, Tier};
    use pandemonium_engine::topology::CpuPlace;
    use pandemonium_engine::treatment::{Assignment, Treatment};
    use pandemonium_policies::Pandemonium;
    use pandemonium_policies::knobs::{Affinity, Knobs, TABLE};
    use pandemonium_record::file::read::Recording;
    use pandemonium_record::file::repeat::{Policies, Replayed, repeat};
    use pandemonium_record::file::write::{Header, Recorder};
    use pandemonium_record::{Entry, Reader, WORDS_MAX, decode};
    use std::collections::VecDeque;

    #[derive(Default)]
    struct Script {
        arrivals: VecDeque<Arrival>,
        view: MachineView,
    }

    impl Port for Script {
        fn recv(&mut self) -> Option<Arrival> {
            self.arrivals.pop_front()
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

    /// A message of task 8, which woke up at `woken`. Its last run, of 100 us, was number `runs`
    /// and began at `began`.
    fn woke(ticket: u64, woken: Stamp, began: Stamp, runs: u64) -> Arrival {
        let run_interval = Span::from_micros(100);
        let stopped = began + run_interval;
        let facts = Facts { woken, stopped, run_interval, voluntary: runs, ..Facts::default() };
        Arrival { facts: Some(facts), stopped, ..arrival(8, ticket, 1) }
    }

    fn dispatch(number: i32, tier: Tier, reason: Reason) -> Dispatch {
        Dispatch {
            pid: pid(number),
            ticket: Ticket(6),
            placement: Placement::Any { near: CpuId::default() },
            slice: Span::from_millis(1),
            vtime: Default::default(),
            tier,
            preempt: false,
            reason,
            order: None,
        }
    }

    fn pid(number: i32) -> Pid {
        Pid::new(number).unwrap()
    }

    fn at(ms: u64) -> Stamp {
        Stamp::from_nanos(1 << 40) + Span::from_millis(ms)
    }

    #[test]
    fn a_query_gets_the_task_s_arrivals_decisions_and_classification() {
        let shared = Shared::create().unwrap();
        let mut observers = Observers::of(&shared);
        let mut policy = Pandemonium::new(&Setup::of_cpus(2));
        let mut port =
            Script { view: MachineView { cpus: 2, ..Default::default() }, arrivals: [].into() };
        policy.tune(&TABLE.defaults());
        observers.round(at(0), &mut port, &mut policy);
        assert!(shared.query.newest_reply().is_none(), "there is no query yet");

        let query = Query { pid: pid(8), threshold: Span::from_millis(2) };
        let number = shared.query.ask(query);
        port.arrivals.extend([arrival(7, 5, 1), arrival(8, 5, 1), arrival(9, 5, 1)]);
        observers.round(at(1), &mut port, &mut policy);
        let first = shared.query.newest_reply().unwrap();
        assert_eq!((first.number, first.pid, first.wakeups), (number, Some(pid(8)), 1));
        assert!(first.explained.as_str().starts_with("hog (pid 8) is "), "{:?}", first.explained);
        assert_eq!(first.tiers.iter().sum::<u64>() + u64::from(first.waiting.is_some()), 1);
    }

    /// A task of which waits above 2 ms are told.
    fn queried(shared: &Shared) -> QueriedTask<'_> {
        shared.query.ask(Query { pid: pid(8), threshold: Span::from_millis(2) });
        let mut queried = QueriedTask::of(&shared.query);
        queried.begin(at(10));
        queried
    }

    fn reply(shared: &Shared, queried: &mut QueriedTask, ms: u64) -> Reply {
        queried.end(at(ms), &Pandemonium::new(&Setup::of_cpus(2)));
        shared.query.newest_reply().unwrap()
    }

    #[test]
    fn a_long_wait_names_the_tasks_that_were_dispatched_first() {
        let shared = Shared::create().unwrap();
        let mut queried = queried(&shared);
        queried.received(at(10), &Arrival { cause: Cause::Requeue, ..arrival(8, 6, 0) });
        queried.dispatched(at(11), &dispatch(7, Tier::LatCritical, Reason::Order));
        queried.dispatched(at(12), &dispatch(9, Tier::Batch, Reason::Order));
        queried.dispatched(at(15), &dispatch(8, Tier::Batch, Reason::CodelRescue));
        let reply = reply(&shared, &mut queried, 15);
        let wait = reply.pending.unwrap();
        assert_eq!((wait.waited, wait.woke), (Waited::AtMost(Span::from_millis(5)), false));
        assert_eq!((wait.others_first, wait.last_others), ([1, 0, 1], [9, 7, 0]));
        assert_eq!((wait.reason, wait.fate), (Reason::CodelRescue, Fate::Unknown));
        assert_eq!((reply.requeues, reply.nr_long), (1, 0));
        assert_eq!(reply.reasons[Reason::CodelRescue.index()], 1);
        queried.begin(at(70_011));
        assert_eq!(queried.pid, None, "the last query was more than a minute ago");
    }

    #[test]
    fn a_wait_is_told_with_what_became_of_its_decision() {
        let shared = Shared::create().unwrap();
        let mut queried = queried(&shared);
        queried.received(at(20), &woke(6, at(20), at(11), 3));
        queried.dispatched(at(25), &dispatch(8, Tier::Batch, Reason::Order));
        assert_eq!(reply(&shared, &mut queried, 25).waits, 0, "it may have run before");
        queried.received(at(40), &woke(7, at(40), at(26), 4));
        let reply = reply(&shared, &mut queried, 40);
        let wait = reply.long[0];
        assert_eq!(wait.waited, Waited::Exactly(Span::from_millis(5)));
        assert_eq!(wait.fate, Fate::Ran(Span::from_millis(1)));
        assert_eq!((wait.at, wait.woke, wait.tier), (at(25), true, Tier::Batch));
        assert_eq!((reply.nr_long, reply.pending), (1, None));
        assert_eq!((reply.waits, reply.longest), (1, Span::from_millis(5)));
        assert_eq!(reply.fates, Fates { ran: 1, ..Fates::default() });
    }

    /// The parent of a fork storm: the backend runs it by another way, 0.1 ms after its message,
    /// and the decision comes 50 ms later. It never waited for so long.
    #[test]
    fn a_task_that_ran_before_its_decision_did_not_wait_for_that() {
        let shared = Shared::create().unwrap();
        let mut queried = queried(&shared);
        queried.received(at(20), &woke(6, at(20), at(11), 3));
        queried.dispatched(at(70), &dispatch(8, Tier::Batch, Reason::Order));
        queried.received(at(80), &woke(7, at(80), at(20) + Span::from_micros(100), 4));
        let reply = reply(&shared, &mut queried, 80);
        assert_eq!(reply.fates, Fates { ran_before: 1, ..Fates::default() });
        assert_eq!((reply.nr_long, reply.waits), (0, 1));
        assert_eq!((reply.longest, reply.waited), (Span::from_micros(100), reply.longest));
    }

    /// The end of its last run tells whether a task ran between two messages.
    #[test]
    fn a_task_that_ran_without_a_decision_did_not_wait_until_its_next_message() {
        let shared = Shared::create().unwrap();
        let mut queried = queried(&shared);
        let message = |ticket, stopped| Arrival { stopped: at(stopped), ..arrival(8, ticket, 1) };
        let decided =
            |ticket| Dispatch { ticket: Ticket(ticket), ..dispatch(8, Tier::Batch, Reason::Order) };
        queried.received(at(10), &message(6, 1));
        // The backend ran it, and it slept.
        queried.received(at(60), &message(7, 11));
        queried.dispatched(at(61), &decided(7));
        // It is queued again before it runs, twice.
        queried.received(at(62), &message(8, 11));
        queried.received(at(63), &message(9, 11));
        queried.refused(&decided(9));
        queried.dispatched(at(64), &decided(9));
        queried.received(at(70), &message(10, 65));
        let reply_70 = reply(&shared, &mut queried, 70);
        let expected = Fates {
            ran_sometime: 1,
            cancelled: 1,
            ran_undecided: 1,
            replaced: 1,
            refused: 1,
            ..Fates::default()
        };
        assert_eq!(reply_70.fates, expected);
        // Nothing shows when it ran.
        let bounded = Bounded { count: 1, longest: Span::from_millis(4) };
        assert_eq!((reply_70.waits, reply_70.bounded), (0, bounded));
        assert_eq!(reply_70.long[0].waited, Waited::AtMost(Span::from_millis(4)));
        assert_eq!(reply_70.waiting, Some(at(70)));
        queried.exited();
        assert_eq!(reply(&shared, &mut queried, 71).waiting, None);
    }

    #[test]
    fn tasks_are_listed_while_a_reader_wants_them() {
        let shared = Shared::create().unwrap();
        let mut observers = Observers::of(&shared);
        let mut policy = Pandemonium::new(&Setup::of_cpus(2));
        policy.tune(&TABLE.defaults());
        let view = MachineView { cpus: 2, ..Default::default() };
        let mut port = Script { view, arrivals: [arrival(7, 5, 1)].into() };
        observers.round(at(0), &mut port, &mut policy);
        assert_eq!(shared.tasks.all(at(1)).count(), 0, "there is no reader");
        shared.tasks.want(at(100));
        port.arrivals.extend([arrival(8, 5, 1), arrival(9, 5, 1)]);
        observers.round(at(1), &mut port, &mut policy);
        assert_eq!(shared.tasks.all(at(1)).filter(|task| task.wakeups == 1).count(), 2);
        for ms in 2..9 {
            observers.round(at(ms), &mut port, &mut policy);
        }
        let of = |pid| shared.tasks.of(pid, at(9)).unwrap();
        assert_eq!([of(8).decisions, of(9).decisions], [1, 1]);
        assert!(of(8).last.is_some_and(|(_, reason)| reason == Reason::Order));
        port.arrivals.push_back(arrival(8, 6, 1));
        observers.round(at(100), &mut port, &mut policy);
        assert_eq!(of(8).wakeups, 1, "the reader has gone");
    }

    #[test]
    fn a_recording_has_everything_that_reaches_the_policy() {
        let shared = Shared::with_ring(1).unwrap();
        let mut observers = Observers::of(&shared);
        let setup = Setup::of_cpus(2);
        let mut policy = Pandemonium::new(&setup);
        observers.started(&setup);
        observers.applied(&TABLE.defaults());
        observers.minute(Minute::from_unix(3));
        observers.learned(Minute::from_unix(3), &[Profile::default()]);
        let mut list = AssignmentList::default();
        list.treatments.push(Treatment::default());
        list.processes.push(Assignment { pid: Pid::new(7).unwrap(), treatment: 0 });
        observers.assigned(&list);
        observers.placed(&setup.topology);
        let mut port = Script { arrivals: [arrival(7, 1, 1)].into(), ..Script::default() };
        observers.round(Stamp::from_nanos(9), &mut port, &mut policy);
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
                Entry::Treated(_) => "treated".into(),
                Entry::Assigned(process) => format!("assigned {}", process.pid.as_raw()),
                Entry::AssignedAll(count) => format!("assigned all {count}"),
                Entry::PlacedAll(count) => format!("placed all {count}"),
                other => format!("{other:?}"),
            });
        }
        let expected = "started 2, place, place, applied, minute, known, learned, treated, \
                        assigned 7, assigned all 1, place, place, placed all 2, began, took 7, \
                        sent 7, ended 0";
        assert_eq!(kinds.join(", "), expected);
    }

    /// What a worker records of two tasks that wait while CPU 3 becomes free. By the topology that
    /// follows the start, the last CPU of the second task shares its cache.
    fn recorded_with_another_topology() -> Vec<Entry> {
        let shared = Shared::with_ring(1).unwrap();
        let (mut observers, setup) = (Observers::of(&shared), Setup::of_cpus(3));
        let mut policy = Pandemonium::new(&setup);
        let values = Knobs { affinity: Affinity::Strong, ..Knobs::default() }.values();
        observers.started(&setup);
        policy.tune(&values);
        observers.applied(&values);
        let place = |core| CpuPlace { core, l2: core / 2, llc: 0, node: 0 };
        let topology = Topology::new((0..4).map(place).collect());
        policy.follow_topology(&topology);
        observers.placed(&topology);
        let on = |pid| Arrival { cpu: CpuId::new(pid).unwrap(), ..arrival(pid, 1, 1) };
        let view = MachineView { cpus: 4, running: 4, here: CpuId::new(3), ..MachineView::NONE };
        let mut port = Script { arrivals: [on(1), on(2)].into(), view };
        observers.round(at(0), &mut port, &mut policy);
        let mut reader = Reader::new(shared.ring().unwrap());
        let mut words = [0; WORDS_MAX];
        let mut entries = Vec::new();
        while let Some(length) = reader.pop(&mut words) {
            entries.push(decode(&words[..length.unwrap()]).unwrap());
        }
        entries
    }

    fn replayed<'e>(entries: impl Iterator<Item = &'e Entry>) -> Replayed {
        let policy = PolicyInfo::of::<Pandemonium>();
        let header = Header { source: "".into(), policy: policy.name.into(), redacted: false };
        let mut recorder = Recorder::new(Vec::new(), &header, &[]).unwrap();
        entries.for_each(|entry| recorder.add(entry));
        let bytes = recorder.finish().unwrap();
        let policies = Policies { recorded: Some(policy.knobs), replayed: policy };
        let mut replayed = Replayed::default();
        repeat(&mut Recording::new(&bytes[..]).unwrap(), &policies, &[], &mut replayed).unwrap();
        replayed
    }

    #[test]
    fn a_replay_follows_the_topology_as_the_policy_did() {
        let entries = recorded_with_another_topology();
        let same = replayed(entries.iter());
        assert_eq!((same.decisions, same.different), (2, 0));
        let is_change = |entry: &&Entry| matches!(entry, Entry::PlacedAll(_));
        assert_eq!(entries.iter().filter(is_change).count(), 1);
        let without = replayed(entries.iter().filter(|entry| !is_change(entry)));
        assert_eq!(without.different, 2, "the order of the two tasks is the topology's");
    }
}
