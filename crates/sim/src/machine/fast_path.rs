// SPDX-License-Identifier: GPL-2.0-only

//! The fast path: what `src/bpf` notes of tasks and CPUs, and whom it interrupts for whom. Its
//! timers are in `watch`.

use super::kernel::Wake;
use super::limits::{BATCH, FOREIGN, HANDOFF_TRUST, IDLE, OFFLINE, SCAN, WINDOW_BITS};
use super::rules::{CpuView, Need, Protection, count_handoff, find_victim};
use super::state::{Current, Kick, Occupied, Stage, Where};
use super::{Machine, Task};
use crate::observer::{Event, Observer};
use pandemonium_engine::Policy;
use pandemonium_engine::facts::Facts;
use pandemonium_engine::knobs::Knobs;
use pandemonium_engine::task::{CpuId, Pid, Tier};
use pandemonium_engine::time::{Span, Stamp};

pub(super) const fn rank(tier: Tier) -> u32 {
    BATCH + tier.index() as u32
}

/// How the fast path shall interrupt: `struct fp_settings`, told after each round.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub preempt: bool,
    hand_off: bool,
    thresh: u64,
    burst: bool,
    /// Rank of the most urgent task that the policy holds, as far as it says; zero for none.
    pub waiting: u32,
}

impl Settings {
    /// Before anything is said.
    pub(super) const NONE: Settings =
        Settings { preempt: true, hand_off: true, thresh: 0, burst: false, waiting: IDLE };

    fn protection(&self) -> Protection {
        Protection { thresh: self.thresh, burst: self.burst }
    }

    /// The policy was given new knobs.
    pub(super) fn take_up(&mut self, knobs: &Knobs) {
        *self = Settings {
            preempt: knobs.rules.preempt,
            hand_off: knobs.rules.sync_wakeups,
            thresh: knobs.preempt_thresh.as_nanos(),
            ..*self
        };
    }

    /// As the driver's `fast_path_settings` tells them.
    pub(super) fn tell<Q: Policy>(&mut self, policy: &Q, now: Stamp) {
        self.burst = policy.mode(now).burst;
        self.waiting = match policy.queued() {
            0 => IDLE,
            _ if policy.wants_more() => rank(Tier::Interactive),
            _ => rank(Tier::Batch),
        };
    }
}

impl<W: Observer> Machine<W> {
    /// `fp_wakeup`, `fp_wakeup_new`: notes the wake-up, and interrupts a CPU if the task went to
    /// user space.
    pub(super) fn fast_path_sees_wakeup(&mut self, slot: u32, how: Wake) {
        let now = self.now;
        let task = self.task(slot);
        task.wakeups += 1;
        task.woken = now;
        (task.kicked, task.handed_off) = (-1, false);
        if task.stopped > 0 {
            task.slept = now - task.stopped;
        }
        let here = how.by.unwrap_or(u32::from(task.cpu));
        if !self.setup.fast_path {
            return;
        }
        let seen = &self.cpus[here as usize].seen;
        let waker = seen.current != Current::Idle;
        // A parent is a waker for sure, others if they have handed their CPU over before.
        let spare_here = waker && (!how.slept || seen.handoffs > 0);
        let parent = match seen.current {
            Current::Task(parent) if !how.slept => Some(self.tasks[parent as usize].tier()),
            _ => None,
        };
        let mut need = Need { spare_here, ..self.need(slot, here) };
        // A new task is no more urgent than its parent.
        need.tier = parent.map_or(need.tier, |parent| need.tier.min(rank(parent)));
        let kicked = self.kick_for(slot, &mut need);
        let handed_off = spare_here && kicked == Some(here);
        let seen = &mut self.cpus[here as usize].seen;
        seen.retry_at = if kicked.is_none() { need.retry_at } else { 0 };
        if waker {
            seen.woke = now;
        }
        let task = self.task(slot);
        task.kicked = kicked.map_or(-1, |cpu| cpu as i16);
        task.handed_off = handed_off;
        if task.place == Where::Hands && (kicked.is_none() || handed_off) {
            self.watch_waiter(slot, here);
        }
    }

    /// Finds the task a CPU if it needs one.
    fn kick_for(&mut self, slot: u32, need: &mut Need) -> Option<u32> {
        if !self.kicks_are_on() {
            return None;
        }
        match self.tasks[slot as usize].place {
            Where::Hands => {}
            Where::Queue(cpu) => {
                self.kick_bound(slot, u32::from(cpu), need);
                return None;
            }
            _ => return None,
        }
        let wanted = Some((self.tasks[slot as usize].pid, self.now));
        if need.spare_here && self.is_handoff(slot, need.here) {
            self.cpus[need.here as usize].seen.wanted = wanted;
            return Some(need.here);
        }
        let victim = self.make_room(slot, need);
        match victim {
            Some(cpu) => self.expect(cpu, wanted),
            None => self.want_from_others(wanted),
        }
        victim
    }

    /// A task that was put into a CPU's queue without us, which nobody else serves.
    fn kick_bound(&mut self, slot: u32, cpu: u32, need: &mut Need) {
        let idle = self.cpus[cpu as usize].seen.current == Current::Idle;
        if !idle && self.gives_way(cpu, need) && self.may_kick(cpu) {
            self.interrupt(cpu, Some(slot));
        }
    }

    pub(super) fn kicks_are_on(&self) -> bool {
        self.setup.fast_path && self.settings.preempt && self.is_loaded()
    }

    pub(super) fn may_kick(&self, cpu: u32) -> bool {
        self.cpu_view(cpu).may_be_kicked(self.now)
    }

    /// `kick`: interrupts a CPU, for a task if for one.
    pub(super) fn interrupt(&mut self, cpu: u32, wakee: Option<u32>) {
        let (now, seen) = (self.now, &mut self.cpus[cpu as usize].seen);
        if seen.window != now >> WINDOW_BITS {
            (seen.window, seen.kicks) = (now >> WINDOW_BITS, 0);
        }
        seen.kicks += 1;
        seen.kicked = now;
        let lost = wakee.is_some_and(|slot| self.kick_is_lost(slot));
        let wakee = wakee.map(|slot| self.id(slot));
        self.emit(Event::Kicked { cpu, wakee });
        if !lost {
            self.kick_cpu(cpu, Kick::Preempt);
        }
    }

    /// What a task needs that waits for a CPU, found out on `here`.
    pub(super) fn need(&self, slot: u32, here: u32) -> Need {
        let tier = rank(self.tasks[slot as usize].tier());
        let never_preempts = self.never_preempts(slot);
        Need { now: self.now, here, tier, never_preempts, ..Need::default() }
    }

    /// What the rules know of a CPU.
    pub(super) fn cpu_view(&self, cpu: u32) -> CpuView {
        let state = &self.cpus[cpu as usize];
        let seen = &state.seen;
        CpuView {
            occupant: if state.online { self.rank_of(seen.current) } else { OFFLINE },
            since: seen.since,
            slice: seen.slice,
            low_weight: seen.light,
            kicked: seen.kicked,
            window: seen.window,
            kicks: seen.kicks,
        }
    }

    /// Whether the occupant gives way to the task.
    pub(super) fn gives_way(&self, cpu: u32, need: &mut Need) -> bool {
        self.cpu_view(cpu).gives_way(need, &self.settings.protection())
    }

    fn find_victim(&self, slot: u32, need: &mut Need) -> Option<u32> {
        let mask = self.tasks[slot as usize].mask;
        let view = |cpu| mask.holds(cpu).then(|| self.cpu_view(cpu));
        find_victim(self.setup.shape.cpus, need, &self.settings.protection(), view)
    }

    /// Makes room for a task that waits in user space; says where.
    pub(super) fn make_room(&mut self, slot: u32, need: &mut Need) -> Option<u32> {
        let victim = self.find_victim(slot, need)?;
        self.counters.kicks += 1;
        self.interrupt(victim, Some(slot));
        Some(victim)
    }

    /// Whether the waker's CPU is about to be free for the wakee.
    fn is_handoff(&self, slot: u32, here: u32) -> bool {
        let seen = &self.cpus[here as usize].seen;
        self.settings.hand_off
            && seen.woke == 0
            && seen.handoffs >= HANDOFF_TRUST
            && self.tasks[slot as usize].mask.holds(here)
    }

    /// SCHED_IDLE and nice 19 never preempt.
    fn never_preempts(&self, slot: u32) -> bool {
        let task = &self.tasks[slot as usize];
        task.nice >= 19 || self.workload.groups[task.group as usize].idle_class
    }

    pub(super) fn rank_of(&self, current: Current) -> u32 {
        match current {
            Current::Idle => IDLE,
            Current::Scheduler => FOREIGN,
            Current::Task(slot) => rank(self.tasks[slot as usize].tier()),
        }
    }

    /// Whether a task that woke up or lost its CPU at `since` is still without one.
    pub(super) fn still_waits(&self, pid: Pid, since: u64) -> Option<u32> {
        let slot = self.slot_of(pid)?;
        let task = &self.tasks[slot as usize];
        (task.waits() && task.woken.max(task.stopped) == since).then_some(slot)
    }

    // ---- Switches -----------------------------------------------------------------------------

    /// `fp_switch`: the CPU has changed hands.
    pub(super) fn fast_path_sees_switch(&mut self, cpu: u32) {
        let next = self.cpus[cpu as usize].current;
        let before = self.cpus[cpu as usize].seen.clone();
        if !self.setup.fast_path || before.current == next && next == Current::Idle {
            return;
        }
        if let Current::Task(slot) = before.current
            && self.tasks[slot as usize].pid == before.pid
        {
            let task = &mut self.tasks[slot as usize];
            let asleep = matches!(task.place, Where::Timer | Where::Token);
            task.handoffs = count_handoff(task.handoffs, asleep, before.woke, self.now);
        }
        self.occupied(cpu, next);
        if next == Current::Scheduler {
            self.cpus[cpu as usize].seen.wanted = None;
        } else {
            self.check_missed(cpu);
        }
        if next != Current::Scheduler && before.current != Current::Scheduler {
            self.kick_for_requeue(cpu, &before);
        }
        if before.current == Current::Scheduler {
            self.serve_missed();
            self.watch_left_overs(cpu);
        }
        if let Current::Task(slot) = next {
            self.watch_slice(slot, cpu);
        }
    }

    /// Who has the CPU from now on.
    fn occupied(&mut self, cpu: u32, next: Current) {
        let mut occupied = Occupied { since: self.now, current: next, ..Occupied::default() };
        if let Current::Task(slot) = next {
            let task = &self.tasks[slot as usize];
            occupied.pid = task.pid;
            occupied.slice = u64::from(task.slice);
            occupied.light = task.nice > 0 || self.workload.groups[task.group as usize].idle_class;
            occupied.handoffs = task.handoffs;
        }
        let seen = &mut self.cpus[cpu as usize].seen;
        let Occupied { kicked, window, kicks, wanted, retry_at, .. } = *seen;
        *seen = Occupied { kicked, window, kicks, wanted, retry_at, ..occupied };
    }

    /// A task that gave way to a lower tier at the end of its slice gets the CPU back at once. One
    /// of the highest tier that gave way to its own looks for another one. The CPU's next switch
    /// looks after whoever finds none.
    fn kick_for_requeue(&mut self, cpu: u32, before: &Occupied) {
        let Current::Task(slot) = before.current else { return };
        let task = &self.tasks[slot as usize];
        let went_up = task.pid == before.pid && task.place == Where::Hands;
        let tier = task.tier();
        if tier == Tier::Batch || !went_up || !self.kicks_are_on() {
            return;
        }
        let wanted = Some((task.pid, self.now));
        let occupant = self.rank_of(self.cpus[cpu as usize].seen.current);
        let victim = if occupant < rank(tier) && self.may_kick(cpu) {
            self.interrupt(cpu, Some(slot));
            Some(cpu)
        } else if tier == Tier::LatCritical {
            let mut need = Need { spare_here: true, ..self.need(slot, cpu) };
            self.make_room(slot, &mut need)
        } else {
            None
        };
        if let Some(victim) = victim {
            return self.expect(victim, wanted);
        }
        let next = &mut self.cpus[cpu as usize].seen.wanted;
        *next = next.or(wanted);
    }

    // ---- Kicks that come to nothing -----------------------------------------------------------

    /// The CPU on which the scheduler process runs.
    fn scheduler_on(&self) -> Option<u32> {
        let runs = matches!(self.scheduler.stage, Stage::Starting | Stage::Deciding);
        runs.then_some(self.scheduler.cpu)
    }

    /// The CPU was interrupted for a task. While the scheduler process runs elsewhere that may
    /// change nothing.
    fn expect(&mut self, cpu: u32, wanted: Option<(Pid, u64)>) {
        self.cpus[cpu as usize].seen.wanted = wanted;
        if self.scheduler_on().is_some() {
            self.note_missed(cpu);
        }
    }

    /// Who found nobody to interrupt is served by the CPU that the scheduler process leaves, or by
    /// one that was interrupted already.
    fn want_from_others(&mut self, wanted: Option<(Pid, u64)>) {
        let cpus = SCAN.min(self.setup.shape.cpus);
        let is_kicked = |cpu: &u32| {
            let seen = &self.cpus[*cpu as usize].seen;
            seen.kicked > seen.since
        };
        if let Some(cpu) = self.scheduler_on().or_else(|| (0..cpus).find(is_kicked)) {
            self.cpus[cpu as usize].seen.wanted = wanted;
        }
    }

    /// The CPU has switched to somebody else than the scheduler process.
    fn check_missed(&mut self, cpu: u32) {
        let seen = &self.cpus[cpu as usize].seen;
        let wanted = seen.wanted.is_some();
        // A CPU that has nothing left looked for the process, which runs elsewhere.
        if self.scheduler_on().is_some() && (wanted || seen.current == Current::Idle) {
            self.note_missed(cpu);
        } else if wanted {
            self.serve(cpu);
        }
    }

    fn note_missed(&mut self, cpu: u32) {
        if cpu < SCAN {
            self.missed |= 1 << cpu;
        }
    }

    fn serve_missed(&mut self) {
        let left = core::mem::take(&mut self.missed);
        for cpu in (0..SCAN).filter(|cpu| left >> cpu & 1 == 1) {
            self.serve(cpu);
        }
    }

    /// Interrupts the CPU once more if it sleeps, or if its occupant is in the way of whom it was
    /// interrupted for.
    fn serve(&mut self, cpu: u32) {
        let seen = &mut self.cpus[cpu as usize].seen;
        let (wanted, occupant) = (seen.wanted.take(), seen.current);
        if occupant == Current::Idle {
            let own = &self.queues[cpu as usize];
            let asks = self.scheduler.pending > 0 || !self.up.is_empty();
            if asks || !own.is_empty() || !self.shared.is_empty() {
                self.interrupt(cpu, None);
            }
            return;
        }
        let Some((pid, woken)) = wanted else { return };
        let Some(slot) = self.still_waits(pid, woken) else { return };
        // A round takes in all there is, so whoever woke up before the last one began is known.
        let received = self.scheduler.ran >= woken;
        if !received && self.rank_of(occupant) < rank(self.tasks[slot as usize].tier()) {
            self.interrupt(cpu, Some(slot));
        }
    }

    // ---- Facts --------------------------------------------------------------------------------

    /// What the policy is told of a task beyond its message.
    pub(super) fn facts(&self, pid: Pid) -> Option<Facts> {
        if !self.setup.fast_path {
            return None;
        }
        let slot = self.slot_of(pid)?;
        let task = &self.tasks[slot as usize];
        let parent = self.parents.get(&slot).copied().filter(|_| task.cpu_time == 0);
        Some(Facts { waker: parent, ..self.facts_of(task) })
    }

    fn facts_of(&self, task: &Task) -> Facts {
        let group = &self.workload.groups[task.group as usize];
        Facts {
            wakeups: u64::from(task.wakeups),
            voluntary: u64::from(task.voluntary),
            involuntary: u64::from(task.involuntary),
            cpu_time: Span::from_nanos(task.cpu_time),
            woken: Stamp::from_nanos(task.woken),
            slept: Span::from_nanos(task.slept),
            kthread: group.kthread,
            workqueue: group.comm.as_bytes().starts_with(b"kworker/"),
            idle_class: group.idle_class,
            nice: task.nice,
            allowed: task.mask.first_64(),
            kicked: CpuId::new(i32::from(task.kicked)),
            handed_off: task.handed_off,
            last_cpu: CpuId::new(i32::from(task.ran_on)),
            run_interval: Span::from_nanos(task.run_interval),
            stopped: Stamp::from_nanos(task.stopped),
            ..Facts::default()
        }
    }
}
