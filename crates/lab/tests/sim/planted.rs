// SPDX-License-Identifier: GPL-2.0-only

//! A planted bug of each kind: a checker that finds none guards nothing.

use crate::common::*;
use pandemonium_engine::knobs::Values;
use pandemonium_engine::orders::{Bounds, Order};
use pandemonium_engine::task::{
    Arrival, CpuId, Dispatch, Pid, Placement, RawArrival, Reason, Ticket, Tier,
};
use pandemonium_engine::time::{Span, Stamp, Vtime};
use pandemonium_engine::{MachineView, Policy, Waiting};
use pandemonium_policies::{Dropping, Fifo};
use pandemonium_sim::checkers::{Checker, Checkers, Demands};
use pandemonium_sim::machine::{FaultPlan, START, Setup};
use pandemonium_sim::observer::{Event, Fault, Left, Observer, Occupant, TaskId};
use pandemonium_sim::random::CERTAIN;
use pandemonium_sim::topology::Mask;
use pandemonium_sim::workload::{Group, Place};
use std::collections::BTreeMap;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    None,
    /// Decides for the same task twice.
    Doubles,
    /// Answers with a ticket that is one too old.
    StaleTickets,
    /// Never decides for the third task that it meets.
    Forgets,
    /// Says that it holds more than it does.
    Boasts,
    /// Stops deciding, and says that tasks wait.
    Sulks,
    /// Sends every task to one CPU.
    Crowds,
    /// The same, but for one task, which goes where a CPU is free.
    Favours,
    /// Says that it has no room, with hardly a task there.
    Cramped,
    /// Believes that its decisions arrive: ignores a task that has not run since the last one.
    Trusts,
}

struct Buggy {
    inner: Fifo,
    bug: Bug,
    last: Option<Dispatch>,
    seen: u64,
    kept: Option<Arrival>,
    /// When each task last stopped, as told with the last message about it.
    stopped: BTreeMap<Pid, Stamp>,
}

impl Buggy {
    fn new(bug: Bug) -> Buggy {
        Buggy { inner: Fifo::new(), bug, last: None, seen: 0, kept: None, stopped: BTreeMap::new() }
    }
}

impl Policy for Buggy {
    fn arrive(&mut self, now: Stamp, arrival: Arrival, view: &MachineView) {
        self.seen += 1;
        if self.bug == Bug::Forgets && self.seen >= 3 && self.kept.is_none() {
            self.kept = Some(arrival);
            return;
        }
        let stopped = self.stopped.insert(arrival.pid, arrival.stopped);
        if self.bug == Bug::Trusts && self.seen > 50 && stopped == Some(arrival.stopped) {
            return;
        }
        self.inner.arrive(now, arrival, view);
    }

    fn next(&mut self, now: Stamp, view: &MachineView) -> Option<Dispatch> {
        match self.bug {
            Bug::Doubles if self.seen > 50 => {
                if let Some(last) = self.last.take() {
                    return Some(last);
                }
            }
            Bug::Sulks if self.seen > 50 => return None,
            _ => {}
        }
        let mut dispatch = self.inner.next(now, view)?;
        if self.bug == Bug::StaleTickets && self.seen > 50 {
            dispatch.ticket.0 -= 1;
        }
        let shares = self.bug == Bug::Favours && dispatch.pid.as_raw() % 4 == 0;
        if matches!(self.bug, Bug::Crowds | Bug::Favours) && !shares {
            dispatch.placement = Placement::Cpu(CpuId::default());
        }
        self.last = Some(dispatch);
        Some(dispatch)
    }

    fn refused(&mut self, dispatch: Dispatch) {
        self.inner.refused(dispatch);
    }

    fn exit(&mut self, pid: Pid) {
        self.inner.exit(pid);
    }

    fn waiting(&self) -> &dyn Waiting {
        self
    }

    fn tune(&mut self, values: &Values) {
        self.inner.tune(values);
    }
}

impl Waiting for Buggy {
    fn nr_waiting(&self) -> usize {
        let more = (self.bug == Bug::Boasts && self.seen > 50) as usize;
        self.inner.waiting().nr_waiting() + more + self.kept.is_some() as usize
    }

    fn has_room(&self) -> bool {
        self.inner.waiting().has_room() && (self.bug != Bug::Cramped || self.seen <= 50)
    }

    fn oldest_wait(&self, now: Stamp) -> Span {
        self.inner.waiting().oldest_wait(now)
    }
}

fn verdict<Q: Policy>(make: impl FnMut() -> Q, duration: Span) -> Option<Checker> {
    verdict_of(setup(2, 1), make, duration)
}

fn verdict_of<Q: Policy>(setup: Setup, make: impl FnMut() -> Q, duration: Span) -> Option<Checker> {
    let w = workload(vec![Group::hogs("hog", 6), probe()], duration);
    run(setup, w, DEMANDS, make).verdict.err().map(|violation| violation.checker)
}

#[test]
fn every_planted_bug_is_caught_by_its_checker() {
    let caught = |bug| verdict(|| Buggy::new(bug), ms(2_000));
    assert_eq!(caught(Bug::None), None);
    assert_eq!(caught(Bug::Doubles), Some(Checker::Conservation));
    assert_eq!(caught(Bug::StaleTickets), Some(Checker::Conservation));
    assert_eq!(caught(Bug::Forgets), Some(Checker::Wait));
    assert_eq!(caught(Bug::Boasts), Some(Checker::Memory));
    assert_eq!(caught(Bug::Cramped), Some(Checker::Memory));
    assert_eq!(caught(Bug::Sulks), Some(Checker::Livelock));
    assert_eq!(verdict(|| Dropping::new(Fifo::new()), ms(2_000)), Some(Checker::Conservation));
}

/// One hog too few for the CPUs, and a policy that sends all to one: the others idle beside it.
#[test]
fn idling_beside_a_task_that_waits_is_caught() {
    let groups = || vec![Group::hogs("hog", 2), probe()];
    let caught = |bug| {
        let demands = Demands { idle: ms(5), ..DEMANDS };
        let setup = Setup { builtin_idle: false, ..setup(3, 1) };
        let ran = run(setup, workload(groups(), ms(2_000)), demands, || Buggy::new(bug));
        ran.verdict.err().map(|violation| violation.checker)
    };
    assert_eq!(caught(Bug::None), None);
    assert_eq!(caught(Bug::Crowds), Some(Checker::Idle));
}

/// All hogs are bound to one of two CPUs. Those that the policy sends into the queue of that CPU
/// keep it filled, and the CPU serves it before the shared one.
#[test]
fn a_filled_queue_of_a_cpu_does_not_starve_the_shared_one() {
    let mut bound = Group::hogs("bound", 4);
    bound.place = Place::Within(Mask::only(0));
    let w = workload(vec![bound], ms(3_000));
    let ran = run(setup(2, 1), w, DEMANDS, || Buggy::new(Bug::Favours));
    assert_eq!(ran.verdict, Ok(()));
}

/// Order of arrival gives every hog the same, whatever its weight.
#[test]
fn shares_that_do_not_follow_weights_are_caught() {
    let caught = |nice: i8| {
        let mut light = Group::hogs("light", 3);
        light.nice = nice;
        let demands = Demands { shares_percent: Some(20), ..DEMANDS };
        let w = workload(vec![Group::hogs("hog", 3), light], ms(3_000));
        run(setup(2, 1), w, demands, Fifo::new).verdict.err().map(|violation| violation.checker)
    };
    assert_eq!(caught(0), None);
    assert_eq!(caught(5), Some(Checker::Shares));
}

/// The backend moves a task that was sent where it may not run, so no policy can break this: the
/// checker is shown a machine that does.
#[test]
fn running_where_one_may_not_is_caught() {
    let mut checkers = Checkers::new(2, DEMANDS, false);
    let task = task();
    let comm = Default::default();
    let now = START;
    checkers.saw(now, &Event::Forked { task, comm, weight: 100, mask: Mask::only(1) });
    checkers.saw(now, &Event::Woke { task });
    let switched = |cpu| Event::Switched {
        cpu,
        from: Occupant::Idle,
        left: Left::Slept,
        to: Occupant::Task(task, Tier::Batch),
    };
    checkers.saw(now, &switched(1));
    assert_eq!(checkers.violation(), None);
    checkers.saw(now, &switched(0));
    assert_eq!(checkers.violation().map(|violation| violation.checker), Some(Checker::Affinity));
}

/// CPU 0 is offline from the start: nothing serves its queue.
#[test]
fn a_policy_that_sends_tasks_to_an_offline_cpu_is_caught() {
    let faults = FaultPlan::NONE.with(Fault::OfflineAtStart, CERTAIN);
    let caught = |bug| verdict_of(Setup { faults, ..setup(2, 1) }, || Buggy::new(bug), ms(2_000));
    assert_eq!(caught(Bug::None), None);
    assert_eq!(caught(Bug::Crowds), Some(Checker::Wait));
}

#[test]
fn a_policy_that_believes_its_decisions_arrive_is_caught_when_one_is_lost() {
    let caught = |ppm, bug| {
        let faults = FaultPlan::NONE.with(Fault::LostDecision, ppm);
        verdict_of(Setup { faults, ..setup(2, 1) }, || Buggy::new(bug), ms(2_000))
    };
    assert_eq!(caught(0, Bug::Trusts), None);
    assert_eq!(caught(100_000, Bug::None), None);
    assert_eq!(caught(100_000, Bug::Trusts), Some(Checker::Conservation));
}

fn task() -> TaskId {
    TaskId { slot: 0, pid: Pid::new(1000).expect("not zero"), group: 0 }
}

fn arrival() -> Arrival {
    let raw =
        RawArrival { pid: 1000, nr_cpus_allowed: 2, weight: 100, enq_cnt: 1, ..Default::default() };
    raw.decode().expect("a message as the backend writes it")
}

fn dispatch() -> Dispatch {
    Dispatch {
        pid: task().pid,
        ticket: Ticket(1),
        placement: Placement::Any { near: CpuId::default() },
        slice: ms(1),
        vtime: Vtime::default(),
        tier: Tier::Batch,
        preempt: false,
        reason: Reason::default(),
        order: None,
    }
}

/// What no policy can break, the checkers are shown as events.
fn caught_by(events: &[(Span, Event)]) -> Option<Checker> {
    let mut checkers = Checkers::new(2, DEMANDS, true);
    checkers.saw(START, &Event::Began { cpu: 0, now: START, view: MachineView::default() });
    for (after, event) in events {
        checkers.saw(START + *after, event);
    }
    checkers.violation().map(|violation| violation.checker)
}

#[test]
fn a_lost_order_that_is_executed_is_caught() {
    let order = Some(Order::usual(Span::ZERO));
    let dispatch = Dispatch { order, tier: Tier::LatCritical, ..dispatch() };
    let sent = |lost: bool| {
        let mut events = vec![
            (Span::ZERO, Event::Bounded(Some(Bounds::default()))),
            (Span::ZERO, Event::Queued { task: task(), ticket: 1 }),
            (Span::ZERO, Event::Took(arrival())),
            (Span::ZERO, Event::Sent { dispatch, cpu: None }),
        ];
        if lost {
            let lost = Event::Faulted { fault: Fault::LostOrder, task: Some(task()) };
            events.push((Span::ZERO, lost));
        }
        events.push((ms(1), Event::Ordered { task: task(), cpu: 0, at_once: true }));
        caught_by(&events)
    };
    assert_eq!(sent(false), None);
    assert_eq!(sent(true), Some(Checker::Orders));
}

/// The preempted task runs by an older decision: the newest one decides which tier it has.
#[test]
fn an_order_over_a_higher_tier_is_caught_by_the_newest_decision() {
    let order = Some(Order::usual(Span::ZERO));
    let dispatch = Dispatch { order, tier: Tier::Interactive, ..dispatch() };
    let (now, other) = (Span::ZERO, TaskId { slot: 1, pid: Pid::new(1001).unwrap(), group: 0 });
    let preempts = |newest: Tier| {
        let switched = Event::Switched {
            cpu: 0,
            from: Occupant::Idle,
            left: Left::Slept,
            to: Occupant::Task(other, Tier::LatCritical),
        };
        let comm = Default::default();
        let newer = Dispatch { pid: other.pid, tier: newest, ..dispatch };
        let message = Arrival { pid: other.pid, ..arrival() };
        caught_by(&[
            (now, Event::Forked { task: other, comm, weight: 100, mask: Mask::all(2) }),
            (now, Event::Bounded(Some(Bounds::default()))),
            (now, switched),
            (now, Event::Took(message)),
            (now, Event::Sent { dispatch: newer, cpu: None }),
            (now, Event::Took(arrival())),
            (now, Event::Sent { dispatch, cpu: None }),
            (ms(1), Event::Ordered { task: task(), cpu: 0, at_once: true }),
        ])
    };
    assert_eq!(preempts(Tier::Batch), None);
    assert_eq!(preempts(Tier::LatCritical), Some(Checker::Orders));
}

/// A late revocation is bounded by the order's life and credit.
#[test]
fn an_order_that_outlives_its_revocation_is_caught() {
    let order = Order { credit: 1, ..Order::usual(Span::ZERO) };
    let dispatch = Dispatch { order: Some(order), tier: Tier::LatCritical, ..dispatch() };
    let executed = |at: &[Span]| {
        let mut events = vec![
            (Span::ZERO, Event::Bounded(Some(Bounds::default()))),
            (Span::ZERO, Event::Took(arrival())),
            (Span::ZERO, Event::Sent { dispatch, cpu: None }),
        ];
        let ordered = |at: &Span| (*at, Event::Ordered { task: task(), cpu: 0, at_once: false });
        events.extend(at.iter().map(ordered));
        caught_by(&events)
    };
    assert_eq!(executed(&[ms(1)]), None);
    assert_eq!(executed(&[ms(1), ms(2)]), Some(Checker::Orders));
    assert_eq!(executed(&[order.life]), Some(Checker::Orders));
}

#[test]
fn a_stop_in_which_the_backend_does_not_decide_is_caught() {
    let queued = (Span::ZERO, Event::Queued { task: task(), ticket: 1 });
    let swept = |at| (ms(at), Event::Congested { task: task() });
    let began = |at| {
        let view = MachineView::default();
        (ms(at), Event::Began { cpu: 0, now: START, view })
    };
    assert_eq!(caught_by(&[queued, swept(30), began(5_000)]), None);
    assert_eq!(caught_by(&[queued, swept(101)]), Some(Checker::Stall));
    assert_eq!(caught_by(&[queued, began(99)]), None);
    assert_eq!(caught_by(&[queued, began(101)]), Some(Checker::Stall));
    // The process is stopped in the round: what it has decided does not arrive.
    let sent = (Span::ZERO, Event::Sent { dispatch: dispatch(), cpu: None });
    let took = (Span::ZERO, Event::Took(arrival()));
    let submitted = (ms(1), Event::Submitted);
    assert_eq!(caught_by(&[queued, took, sent, submitted, began(5_000)]), None);
    assert_eq!(caught_by(&[queued, took, sent, began(102)]), Some(Checker::Stall));
}
