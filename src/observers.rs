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
        self.port.send(dispatch)?;
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
    /// The wait that goes on now.
    waiting: Wait,
    /// The end of the task's last run, of its last message: if the next one has the same, it did
    /// not run in between.
    stopped: Option<Stamp>,
    /// Whether the last message was decided.
    decided: bool,
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
            waiting: Wait::default(),
            stopped: None,
            decided: false,
            changed: false,
        }
    }

    fn begin(&mut self, now: Stamp) {
        if let Some(query) = self.cell.newer(&mut self.seen) {
            // Another query about the same task goes on with its observation.
            if self.pid != Some(query.pid) || self.threshold != query.threshold {
                (self.pid, self.threshold) = (Some(query.pid), query.threshold);
                self.reply = Reply { since: now, pid: Some(query.pid), ..Reply::default() };
                self.waiting = Wait::default();
                (self.stopped, self.decided) = (None, false);
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
        self.settle(arrival);
        if self.reply.waiting.is_none() {
            self.reply.waiting = Some(now);
            let woke = arrival.cause != Cause::Requeue;
            self.waiting = Wait { woke, ..Wait::default() };
        }
    }

    /// With its next message it is known what became of the one before, and of its decision.
    fn settle(&mut self, arrival: &Arrival) {
        let Some(before) = self.stopped.replace(arrival.stopped) else { return };
        let reply = &mut self.reply;
        let ran = before != arrival.stopped;
        let count = match (self.decided, ran) {
            (true, true) => &mut reply.ran,
            (true, false) => &mut reply.cancelled,
            (false, true) => &mut reply.ran_undecided,
            (false, false) => &mut reply.replaced,
        };
        *count += 1;
        self.decided = false;
        if ran {
            // What it waited for then is over.
            reply.waiting = None;
        }
    }

    /// The task has exited.
    fn exited(&mut self) {
        self.reply.waiting = None;
        (self.stopped, self.decided, self.changed) = (None, false, true);
    }

    fn dispatched(&mut self, now: Stamp, dispatch: &Dispatch) {
        let Some(since) = self.reply.waiting else { return };
        if self.pid != Some(dispatch.pid) {
            let count = &mut self.waiting.others_first[dispatch.tier.index()];
            *count = (*count + 1).min(COUNT_MAX);
            self.waiting.last_others.rotate_right(1);
            self.waiting.last_others[0] = dispatch.pid.as_raw() as u32;
            return;
        }
        self.changed = true;
        self.decided = true;
        let reply = &mut self.reply;
        reply.waiting = None;
        reply.tiers[dispatch.tier.index()] += 1;
        reply.reasons[dispatch.reason.index()] += 1;
        let waited = now.since(since);
        reply.waited += waited;
        reply.longest = reply.longest.max(waited);
        if waited > self.threshold {
            let (tier, reason) = (dispatch.tier, dispatch.reason);
            reply.long.rotate_right(1);
            reply.long[0] = Wait { at: now, waited, tier, reason, ..self.waiting };
            reply.nr_long += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::query::Query;
    use pandemonium_engine::PolicyInfo;
    use pandemonium_engine::task::{Comm, Placement, RawArrival, Reason, Tier};
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

    fn dispatch(number: i32, tier: Tier, reason: Reason) -> Dispatch {
        Dispatch {
            pid: pid(number),
            ticket: Default::default(),
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

    #[test]
    fn a_long_wait_names_the_tasks_that_were_dispatched_first() {
        let shared = Shared::create().unwrap();
        let policy = Pandemonium::new(&Setup::of_cpus(2));
        shared.query.ask(Query { pid: pid(8), threshold: Span::from_millis(2) });
        let mut queried = QueriedTask::of(&shared.query);
        queried.begin(at(10));
        queried.received(at(10), &Arrival { cause: Cause::Requeue, ..arrival(8, 6, 0) });
        queried.dispatched(at(11), &dispatch(7, Tier::LatCritical, Reason::Order));
        queried.dispatched(at(12), &dispatch(9, Tier::Batch, Reason::Order));
        queried.dispatched(at(15), &dispatch(8, Tier::Batch, Reason::CodelRescue));
        queried.end(at(15), &policy);
        let reply = shared.query.newest_reply().unwrap();
        let wait = reply.long[0];
        assert_eq!((wait.waited, wait.woke), (Span::from_millis(5), false));
        assert_eq!((wait.others_first, wait.last_others), ([1, 0, 1], [9, 7, 0]));
        assert_eq!(wait.reason, Reason::CodelRescue);
        assert_eq!((reply.requeues, reply.nr_long), (1, 1));
        assert_eq!(reply.reasons[Reason::CodelRescue.index()], 1);
        queried.begin(at(70_011));
        assert_eq!(queried.pid, None, "the last query was more than a minute ago");
    }

    /// The end of its last run tells whether a task ran between two messages.
    #[test]
    fn a_task_that_ran_without_a_decision_did_not_wait_until_its_next_message() {
        let shared = Shared::create().unwrap();
        let policy = Pandemonium::new(&Setup::of_cpus(2));
        shared.query.ask(Query { pid: pid(8), threshold: Span::from_millis(2) });
        let mut queried = QueriedTask::of(&shared.query);
        let message = |stopped| Arrival { stopped: at(stopped), ..arrival(8, 6, 1) };
        queried.begin(at(10));
        queried.received(at(10), &message(1));
        // The backend ran it, and it slept.
        queried.received(at(60), &message(11));
        queried.dispatched(at(61), &dispatch(8, Tier::Batch, Reason::Order));
        // It is queued again before it runs, twice.
        queried.received(at(62), &message(11));
        queried.received(at(63), &message(11));
        queried.dispatched(at(64), &dispatch(8, Tier::Batch, Reason::Order));
        queried.received(at(70), &message(65));
        queried.end(at(70), &policy);
        let reply = shared.query.newest_reply().unwrap();
        assert_eq!((reply.ran, reply.cancelled), (1, 1));
        assert_eq!((reply.ran_undecided, reply.replaced), (1, 1));
        assert_eq!((reply.longest, reply.nr_long), (Span::from_millis(2), 0));
        assert_eq!(reply.waiting, Some(at(70)));
        queried.exited();
        queried.end(at(71), &policy);
        assert_eq!(shared.query.newest_reply().unwrap().waiting, None);
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
