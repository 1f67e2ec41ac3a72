// SPDX-License-Identifier: GPL-2.0-only

//! A planted bug of each kind: a judge that cannot convict guards nothing.

use crate::common::*;
use pandemonium_engine::knobs::Values;
use pandemonium_engine::task::{Arrival, CpuId, Dispatch, Pid, Placement, Tier};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::{MachineView, Policy, Waiting};
use pandemonium_policies::{Dropping, Fifo};
use pandemonium_sim::checkers::{Checkers, Demands, Judge};
use pandemonium_sim::observer::{Event, Left, Observer, Occupant, TaskId};
use pandemonium_sim::topology::Mask;
use pandemonium_sim::workload::Group;

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
    /// Says that it has no room, with hardly a task there.
    Cramped,
}

struct Buggy {
    inner: Fifo,
    bug: Bug,
    last: Option<Dispatch>,
    seen: u64,
    kept: Option<Arrival>,
}

impl Buggy {
    fn new(bug: Bug) -> Buggy {
        Buggy { inner: Fifo::new(), bug, last: None, seen: 0, kept: None }
    }
}

impl Policy for Buggy {
    fn arrive(&mut self, now: Stamp, arrival: Arrival, view: &MachineView) {
        self.seen += 1;
        if self.bug == Bug::Forgets && self.seen >= 3 && self.kept.is_none() {
            self.kept = Some(arrival);
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
        if self.bug == Bug::Crowds {
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

fn verdict<Q: Policy>(make: impl FnMut() -> Q, duration: Span) -> Option<Judge> {
    let w = workload(vec![Group::hogs("hog", 6), probe()], duration);
    run(setup(2, 1), w, DEMANDS, make).verdict.err().map(|violation| violation.judge)
}

#[test]
fn every_planted_bug_is_caught_by_its_judge() {
    let caught = |bug| verdict(|| Buggy::new(bug), ms(2_000));
    assert_eq!(caught(Bug::None), None);
    assert_eq!(caught(Bug::Doubles), Some(Judge::Conservation));
    assert_eq!(caught(Bug::StaleTickets), Some(Judge::Conservation));
    assert_eq!(caught(Bug::Forgets), Some(Judge::Wait));
    assert_eq!(caught(Bug::Boasts), Some(Judge::Memory));
    assert_eq!(caught(Bug::Cramped), Some(Judge::Memory));
    assert_eq!(caught(Bug::Sulks), Some(Judge::Livelock));
    assert_eq!(verdict(|| Dropping::new(Fifo::new()), ms(2_000)), Some(Judge::Conservation));
}

/// One hog too few for the CPUs, and a policy that sends all to one: the others idle beside it.
#[test]
fn idling_beside_a_task_that_waits_is_caught() {
    let groups = || vec![Group::hogs("hog", 2), probe()];
    let judge = |bug| {
        let demands = Demands { idle: ms(5), ..DEMANDS };
        let setup = pandemonium_sim::machine::Setup { builtin_idle: false, ..setup(3, 1) };
        let ran = run(setup, workload(groups(), ms(2_000)), demands, || Buggy::new(bug));
        ran.verdict.err().map(|violation| violation.judge)
    };
    assert_eq!(judge(Bug::None), None);
    assert_eq!(judge(Bug::Crowds), Some(Judge::Idle));
}

/// Order of arrival gives every hog the same, whatever its weight.
#[test]
fn shares_that_do_not_follow_weights_are_caught() {
    let judge = |nice: i8| {
        let mut light = Group::hogs("light", 3);
        light.nice = nice;
        let demands = Demands { shares_percent: Some(20), ..DEMANDS };
        let w = workload(vec![Group::hogs("hog", 3), light], ms(3_000));
        run(setup(2, 1), w, demands, Fifo::new).verdict.err().map(|violation| violation.judge)
    };
    assert_eq!(judge(0), None);
    assert_eq!(judge(5), Some(Judge::Shares));
}

/// The backend moves a task that was sent where it may not run, so no policy can break this: the
/// judge is shown a machine that does.
#[test]
fn running_where_one_may_not_is_caught() {
    let mut checkers = Checkers::new(2, DEMANDS, false);
    let task = TaskId { slot: 0, pid: Pid::new(1000).unwrap(), group: 0 };
    let comm = Default::default();
    let now = pandemonium_sim::machine::START;
    checkers.saw(now, &Event::Born { task, comm, weight: 100, mask: Mask::only(1) });
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
    assert_eq!(checkers.violation().map(|violation| violation.judge), Some(Judge::Affinity));
}
