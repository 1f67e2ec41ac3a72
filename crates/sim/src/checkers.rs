// SPDX-License-Identifier: GPL-2.0-only

//! Checkers: the properties that every run must have. Each checker keeps its own account of the
//! events and reports a violation as a sentence; none asks the machine or the policy.

use super::observer::{Event, Observer, Occupant, TaskId};
use super::order_checker::OrderChecker;
use super::stall_checker::StallChecker;
use super::topology::{Cpus, Mask};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use pandemonium_engine::TASKS_MAX;
use pandemonium_engine::task::{Dispatch, Pid};
use pandemonium_engine::time::{Span, Stamp};

/// Rounds in a row that may do nothing while tasks wait.
const EMPTY_ROUNDS_MAX: u32 = 10_000;

/// The checkers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Checker {
    /// The policy dispatches every received task exactly once, with its newest ticket.
    Conservation,
    /// No task waits longer than the bound.
    Wait,
    /// No CPU idles while a task waits that may use it.
    Idle,
    /// No task runs outside its affinity mask.
    Affinity,
    /// Tasks that never sleep get CPU time in proportion to their weight.
    Shares,
    /// The policy holds no more tasks than are queued, and no more than its limit.
    Memory,
    /// The scheduler process does not run round after round without effect while tasks wait.
    Livelock,
    /// No standing order is executed beyond its bounds.
    Orders,
    /// Tasks that are queued to user space get a round, or the backend decides.
    Stall,
}

impl Checker {
    /// All checkers.
    pub const ALL: [Checker; 9] = [
        Checker::Conservation,
        Checker::Wait,
        Checker::Idle,
        Checker::Affinity,
        Checker::Shares,
        Checker::Memory,
        Checker::Livelock,
        Checker::Orders,
        Checker::Stall,
    ];

    /// Its name in options and output.
    pub const fn name(self) -> &'static str {
        match self {
            Checker::Conservation => "conservation",
            Checker::Wait => "wait",
            Checker::Idle => "idle",
            Checker::Affinity => "affinity",
            Checker::Shares => "shares",
            Checker::Memory => "memory",
            Checker::Livelock => "livelock",
            Checker::Orders => "orders",
            Checker::Stall => "stall",
        }
    }
}

/// A property that a run violated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The checker that found it.
    pub checker: Checker,
    /// When it was found.
    pub at: Stamp,
    /// A sentence that says what is wrong.
    pub why: String,
}

/// The bounds that the checkers apply to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demands {
    /// No task waits longer than this ...
    pub wait: Span,
    /// ... plus this for each other runnable task.
    pub wait_each: Span,
    /// Extra wait that is allowed while faults are injected.
    pub storm: Span,
    /// No CPU idles longer than this while a task waits that may use it.
    pub idle: Span,
    /// Tasks that never sleep get CPU time by weight, within this many percent.
    pub shares_percent: Option<u32>,
}

/// What is known of a task.
#[derive(Clone, Copy)]
struct Known {
    task: Option<TaskId>,
    mask: Mask,
    weight: u32,
    /// Since when it has been waiting for a CPU, if it waits.
    waits: Option<Stamp>,
    /// Work done, and whether it ever slept; for the shares.
    work: u64,
    slept: bool,
    forked: Stamp,
}

/// All checkers. The first violation is kept.
pub struct Checkers {
    demands: Demands,
    violation: Option<Violation>,
    tasks: Vec<Known>,
    waiting: BTreeSet<(Stamp, u32)>,
    /// The most tasks that have waited at the same time.
    crowd: usize,
    /// The newest ticket that the policy received and has not dispatched, by pid; zero for none.
    held: Vec<u64>,
    nr_held: usize,
    /// Since when each CPU idles; `idle` says which ones do.
    idle_since: Vec<Stamp>,
    idle: Cpus,
    online: Cpus,
    /// When fault injection, or the time without a scheduler, ended.
    calm_since: Stamp,
    stormy: bool,
    loaded: bool,
    empty_rounds: u32,
    cpus: u32,
    orders: OrderChecker,
    stall: StallChecker,
}

impl Checkers {
    /// Checkers for a machine with `cpus` CPUs. `stormy` says that faults are injected at first.
    pub fn new(cpus: u32, demands: Demands, stormy: bool) -> Checkers {
        let mut checkers = Checkers {
            demands,
            violation: None,
            tasks: Vec::new(),
            waiting: BTreeSet::new(),
            crowd: 0,
            held: Vec::new(),
            nr_held: 0,
            idle_since: alloc::vec![super::machine::START; cpus as usize],
            idle: Cpus::none(cpus),
            online: Cpus::none(cpus),
            calm_since: super::machine::START,
            stormy,
            loaded: true,
            empty_rounds: 0,
            cpus,
            orders: OrderChecker::default(),
            stall: StallChecker::default(),
        };
        (0..cpus).for_each(|cpu| {
            checkers.online.insert(cpu);
            checkers.idle.insert(cpu);
        });
        checkers
    }

    /// The first violation, if there is one.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// The result for the whole run.
    pub fn finish(mut self, end: Stamp) -> Result<(), Violation> {
        if let Some(&(since, slot)) = self.waiting.first() {
            self.waited(end, slot, since);
        }
        if let Some(why) = self.stall.check(end) {
            self.complain(Checker::Stall, end, why);
        }
        self.check_shares(end);
        self.violation.map_or(Ok(()), Err)
    }

    fn complain(&mut self, checker: Checker, at: Stamp, why: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { checker, at, why });
        }
    }

    fn known(&mut self, task: TaskId) -> &mut Known {
        let slot = task.slot as usize;
        if slot >= self.tasks.len() {
            self.tasks.resize(slot + 1, Known::UNKNOWN);
        }
        &mut self.tasks[slot]
    }

    fn begins_to_wait(&mut self, now: Stamp, task: TaskId) {
        if self.known(task).waits.replace(now).is_none() {
            self.waiting.insert((now, task.slot));
            self.crowd = self.crowd.max(self.waiting.len());
        }
    }

    fn ends_to_wait(&mut self, task: TaskId) -> Option<Stamp> {
        let since = self.known(task).waits.take()?;
        self.waiting.remove(&(since, task.slot));
        Some(since)
    }

    // ---- Wait ---------------------------------------------------------------------------------

    fn bound(&self) -> Span {
        let demands = &self.demands;
        let crowd = demands.wait_each.scale(self.crowd as u64, 1);
        demands.wait + crowd + if self.stormy { demands.storm } else { Span::ZERO }
    }

    fn waited(&mut self, now: Stamp, slot: u32, since: Stamp) {
        // After the storm, a wait counts from the storm's end.
        let since = if self.stormy { since } else { since.max(self.calm_since) };
        let (waited, bound) = (now.since(since), self.bound());
        if waited > bound {
            let pid = self.tasks[slot as usize].task.map_or(0, |task| task.pid.as_raw());
            let crowd = self.crowd;
            let why = format!(
                "pid {pid} waited {waited}, longer than {bound}; up to {crowd} tasks waited at once"
            );
            self.complain(Checker::Wait, now, why);
        }
    }

    // ---- Idle ---------------------------------------------------------------------------------

    /// A wait ends: checks that no CPU which the task may use idled too long meanwhile.
    fn idle_beside(&mut self, now: Stamp, slot: u32, since: Stamp) {
        let since = since.max(self.calm_since);
        if now.since(since) <= self.demands.idle || self.stormy || !self.loaded {
            return;
        }
        let mask = self.tasks[slot as usize].mask;
        let idle_since = |cpu: u32| self.idle_since[cpu as usize].max(since);
        let longest = self
            .idle
            .iter()
            .filter(|&cpu| mask.holds(cpu) && self.online.holds(cpu))
            .min_by_key(|&cpu| idle_since(cpu));
        if let Some(cpu) = longest {
            self.check_idle(now, cpu, slot, now.since(idle_since(cpu)));
        }
    }

    /// A CPU stops idling: checks that no task which may use it waited too long meanwhile.
    fn waiting_beside(&mut self, now: Stamp, cpu: u32) {
        let idle_since = self.idle_since[cpu as usize].max(self.calm_since);
        if now.since(idle_since) <= self.demands.idle || self.stormy || !self.loaded {
            return;
        }
        let first =
            self.waiting.iter().find(|&&(_, slot)| self.tasks[slot as usize].mask.holds(cpu));
        if let Some(&(since, slot)) = first {
            self.check_idle(now, cpu, slot, now.since(since.max(idle_since)));
        }
    }

    fn check_idle(&mut self, now: Stamp, cpu: u32, slot: u32, beside: Span) {
        if beside > self.demands.idle {
            let pid = self.tasks[slot as usize].task.map_or(0, |task| task.pid.as_raw());
            let limit = self.demands.idle;
            let why = format!(
                "CPU {cpu} idled for {beside}, longer than {limit}, while pid {pid} waited for it"
            );
            self.complain(Checker::Idle, now, why);
        }
    }

    // ---- Conservation -------------------------------------------------------------------------

    fn hold(&mut self, pid: Pid) -> &mut u64 {
        let index = pid.as_raw() as usize;
        if index >= self.held.len() {
            self.held.resize(index + 1, 0);
        }
        &mut self.held[index]
    }

    fn decided(&mut self, now: Stamp, dispatch: &Dispatch, accepted: bool) {
        let pid = dispatch.pid;
        let newest = *self.hold(pid);
        if newest == 0 {
            let why = format!("pid {} was dispatched but is not queued", pid.as_raw());
            return self.complain(Checker::Conservation, now, why);
        }
        if newest != dispatch.ticket.0 {
            let ticket = dispatch.ticket.0;
            let pid = pid.as_raw();
            let why = format!("pid {pid} was dispatched with ticket {ticket}, not {newest}");
            self.complain(Checker::Conservation, now, why);
        }
        if accepted {
            *self.hold(pid) = 0;
            self.nr_held -= 1;
        }
    }

    fn round_ended(&mut self, now: Stamp, round: &pandemonium_engine::Round, has_room: bool) {
        let (pending, held) = (round.pending, self.nr_held);
        if pending < held {
            let why =
                format!("the policy says that it holds {pending} tasks, but {held} are queued");
            self.complain(Checker::Conservation, now, why);
        } else if pending > held || pending > TASKS_MAX as usize {
            let why = format!(
                "the policy says that it holds {pending} tasks; {held} are queued, and it may hold \
                 {TASKS_MAX} at most"
            );
            self.complain(Checker::Memory, now, why);
        } else if !has_room && pending < TASKS_MAX as usize / 2 {
            let why = format!("the policy has no room although it holds only {pending} tasks");
            self.complain(Checker::Memory, now, why);
        }
        let empty = round.received == 0 && round.sent == 0 && !round.refused && pending > 0;
        self.empty_rounds = if empty { self.empty_rounds + 1 } else { 0 };
        if self.empty_rounds > EMPTY_ROUNDS_MAX {
            let why = format!("{EMPTY_ROUNDS_MAX} rounds did nothing while {pending} tasks waited");
            self.complain(Checker::Livelock, now, why);
        }
    }

    fn forget_all(&mut self) {
        self.held.fill(0);
        self.nr_held = 0;
    }

    // ---- Affinity -----------------------------------------------------------------------------

    fn starts(&mut self, now: Stamp, cpu: u32, task: TaskId) {
        let mask = self.known(task).mask;
        if !mask.holds(cpu) || !self.online.holds(cpu) {
            let why =
                format!("pid {} ran on CPU {cpu}, which it may not use now", task.pid.as_raw());
            self.complain(Checker::Affinity, now, why);
        }
        if let Some(since) = self.ends_to_wait(task) {
            self.waited(now, task.slot, since);
            self.idle_beside(now, task.slot, since);
        }
    }

    // ---- Shares -------------------------------------------------------------------------------

    /// Checks the tasks that may use every CPU, were alive during the whole run and never slept:
    /// each did work in proportion to its weight.
    fn check_shares(&mut self, end: Stamp) {
        let Some(percent) = self.demands.shares_percent else { return };
        let cpus = self.cpus;
        let start = super::machine::START;
        let hungry: Vec<(i32, u64, u64)> = self
            .tasks
            .iter()
            .filter(|known| !known.slept && known.forked == start && known.mask.count() == cpus)
            .filter_map(|known| {
                let pid = known.task?.pid.as_raw();
                Some((pid, u64::from(known.weight), known.work))
            })
            .collect();
        let weights: u64 = hungry.iter().map(|(_, weight, _)| weight).sum();
        let work: u64 = hungry.iter().map(|(_, _, work)| work).sum();
        let heaviest = hungry.iter().map(|(_, weight, _)| *weight).max().unwrap_or(0);
        // A task can use one CPU at most. If that limits one of them, the shares do not apply:
        // there are no more tasks than CPUs, or one task's share exceeds a CPU.
        if hungry.len() <= cpus as usize || heaviest * u64::from(cpus) > weights {
            return;
        }
        for (pid, weight, had) in hungry {
            let due = work / weights.max(1) * weight;
            if had.abs_diff(due) * 100 > due * u64::from(percent) {
                let (had, due) = (Span::from_nanos(had), Span::from_nanos(due));
                let why =
                    format!("pid {pid} of weight {weight} did {had} of work; its share was {due}");
                self.complain(Checker::Shares, end, why);
            }
        }
    }
}

impl Known {
    const UNKNOWN: Known = Known {
        task: None,
        mask: Mask::Bits(0),
        weight: 0,
        waits: None,
        work: 0,
        slept: false,
        forked: super::machine::START,
    };
}

impl Observer for Checkers {
    fn saw(&mut self, now: Stamp, event: &Event) {
        if let Some(why) = self.orders.saw(now, event) {
            self.complain(Checker::Orders, now, why);
        }
        if let Some(why) = self.stall.saw(now, event) {
            self.complain(Checker::Stall, now, why);
        }
        match *event {
            Event::Forked { task, weight, mask, .. } => {
                *self.known(task) =
                    Known { task: Some(task), mask, weight, forked: now, ..Known::UNKNOWN };
            }
            Event::Moved { task, mask } => self.known(task).mask = mask,
            Event::Woke { task } => self.begins_to_wait(now, task),
            // It changed class or mask, or died. If it still waits, it is queued again.
            Event::Withdrawn { task } => drop(self.ends_to_wait(task)),
            Event::Queued { task, .. }
            | Event::Congested { task }
            | Event::Direct { task, .. }
            | Event::Ordered { task, .. }
            | Event::Resumed { task }
                if self.known(task).waits.is_none() =>
            {
                self.begins_to_wait(now, task);
            }
            Event::Died { task } => self.known(task).task = None,
            Event::Took(arrival) => {
                let held = self.hold(arrival.pid);
                let new = *held == 0;
                *held = arrival.ticket.0.max(1);
                self.nr_held += usize::from(new);
            }
            Event::Sent { dispatch, .. } => self.decided(now, &dispatch, true),
            Event::Refused(dispatch) => self.decided(now, &dispatch, false),
            Event::Exited(pid) => {
                let held = core::mem::take(self.hold(pid));
                self.nr_held -= usize::from(held != 0);
            }
            Event::Ended { round, has_room, .. } => self.round_ended(now, &round, has_room),
            Event::Switched { cpu, from, left, to } => self.switched(now, cpu, from, left, to),
            Event::Worked { task, work } => self.known(task).work += work,
            Event::Online { cpu, online } => {
                if online {
                    self.online.insert(cpu);
                } else {
                    self.online.remove(cpu);
                }
            }
            Event::Loaded(loaded) => {
                self.forget_all();
                (self.loaded, self.calm_since) = (loaded, now);
            }
            Event::Calm => (self.stormy, self.calm_since) = (false, now),
            Event::Watchdog { task } => {
                let why = format!("the watchdog found pid {} waiting for 5 s", task.pid.as_raw());
                self.complain(Checker::Wait, now, why);
            }
            _ => {}
        }
    }
}

impl Checkers {
    fn switched(
        &mut self,
        now: Stamp,
        cpu: u32,
        from: Occupant,
        left: super::observer::Left,
        to: Occupant,
    ) {
        if let Occupant::Task(task, _) = from
            && left == super::observer::Left::Slept
        {
            self.known(task).slept = true;
        }
        match to {
            Occupant::Idle => {
                self.idle_since[cpu as usize] = now;
                self.idle.insert(cpu);
            }
            Occupant::Scheduler => {
                self.waiting_beside(now, cpu);
                self.idle.remove(cpu);
            }
            Occupant::Task(task, _) => {
                self.starts(now, cpu, task);
                self.waiting_beside(now, cpu);
                self.idle.remove(cpu);
            }
        }
    }
}
