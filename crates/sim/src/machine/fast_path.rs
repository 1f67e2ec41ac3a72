// SPDX-License-Identifier: GPL-2.0-only

//! The fast path: its records of tasks and CPUs, and which CPU it kicks for which task, as in
//! `src/bpf`. Its timers are in `recheck`.

use super::kernel::Wake;
use super::limits::{
    BATCH, FOREIGN, HANDOFF_TRUST, IDLE, OFFLINE, RECHECK, SCAN, SLEEP_LONG, TURN,
};
use super::orders::OrderSlot;
use super::rules::{CpuView, Need, Protection, count_handoff, crowd_slice, find_victim};
use super::state::{CpuRecord, Current, Kick, Where};
use super::{Machine, Task};
use crate::observer::{Event, Observer};
use pandemonium_engine::KernelRules;
use pandemonium_engine::Policy;
use pandemonium_engine::facts::Facts;
use pandemonium_engine::task::{CpuId, Pid, Tier, User};
use pandemonium_engine::time::{Span, Stamp};

pub(super) const fn rank(tier: Tier) -> u32 {
    BATCH + tier.index() as u32
}

/// No task has a pid from here on: the kernel's PID_MAX_LIMIT.
const PID_MAX: i32 = 1 << 22;

/// The process of a group of threads, which are none of them its first one.
fn process_of(group: u16) -> Option<Pid> {
    Pid::new(PID_MAX + i32::from(group))
}

/// The fast path's settings: `struct fp_settings`, updated after each round.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub preempt: bool,
    hand_off: bool,
    thresh: u64,
    burst: bool,
    pub batch_slice: u64,
    pub wakes_idle: bool,
    /// Rank of the most urgent task that the policy holds, as far as the policy reports it;
    /// [`IDLE`] for none.
    pub waiting: u32,
    /// How many tasks the policy holds, in whole steps of 64.
    nr_waiting: u32,
}

impl Settings {
    /// The settings before the first update.
    pub(super) const NONE: Settings = Settings {
        preempt: true,
        hand_off: true,
        thresh: 0,
        burst: false,
        batch_slice: 0,
        wakes_idle: true,
        waiting: IDLE,
        nr_waiting: 0,
    };

    fn protection(&self) -> Protection {
        Protection { thresh: self.thresh, burst: self.burst }
    }

    /// Takes over the policy's new rules.
    pub(super) fn apply_rules(&mut self, rules: &KernelRules) {
        *self = Settings {
            preempt: rules.preempt,
            hand_off: rules.hand_off,
            thresh: rules.preempt_thresh.as_nanos(),
            batch_slice: rules.batch_slice.as_nanos(),
            wakes_idle: rules.wakes_idle,
            ..*self
        };
    }

    /// Takes over the policy's state, as the driver's `fast_path_settings` does.
    pub(super) fn tell<Q: Policy>(&mut self, policy: &Q, now: Stamp) {
        self.burst = policy.mode(now).burst;
        self.nr_waiting = policy.waiting().nr_waiting_in_steps();
        self.waiting = match policy.waiting().nr_waiting() {
            0 => IDLE,
            _ if policy.wants_more() => rank(Tier::Interactive),
            _ => rank(Tier::Batch),
        };
    }
}

impl<W: Observer> Machine<W> {
    /// `fp_wakeup`, `fp_wakeup_new`: records the wakeup, and kicks a CPU if the task was queued to
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
        let has_rested = how.slept && task.slept >= SLEEP_LONG;
        let here = how.by.unwrap_or(u32::from(task.cpu));
        if !self.setup.fast_path {
            return;
        }
        let seen = &self.cpus[here as usize].seen;
        let waker = seen.current != Current::Idle;
        // Spare the CPU of a parent, and of a waker that has handed its CPU over before.
        let spare_here = waker && (!how.slept || seen.handoffs > 0);
        let parent = match seen.current {
            Current::Task(parent) if !how.slept => Some(self.tasks[parent as usize].tier()),
            _ => None,
        };
        let mut need = Need { spare_here, ..self.need(slot, here) };
        // A new task is no more urgent than its parent.
        need.tier = parent.map_or(need.tier, |parent| need.tier.min(rank(parent)));
        if has_rested && need.tier == BATCH {
            need.tier = rank(Tier::Interactive);
        }
        let kicked = self.kick_for(slot, &need);
        let handed_off = spare_here && kicked == Some(here);
        if waker {
            self.cpus[here as usize].seen.woke = now;
        }
        let task = self.task(slot);
        task.kicked = kicked.map_or(-1, |cpu| cpu as i16);
        task.handed_off = handed_off;
    }

    /// Kicks a CPU for the task if it needs one, and has it checked later; returns the CPU.
    fn kick_for(&mut self, slot: u32, need: &Need) -> Option<u32> {
        if !self.kicks_are_on() {
            return None;
        }
        match self.tasks[slot as usize].place {
            Where::UserSpace => {}
            Where::Queue(cpu) => {
                self.kick_bound(slot, u32::from(cpu), need);
                return None;
            }
            Where::Shared => {
                self.check_later(slot, need.here, TURN);
                return None;
            }
            _ => return None,
        }
        if need.spare_here && self.is_handoff(slot, need.here) {
            self.check_later(slot, need.here, TURN);
            return Some(need.here);
        }
        let victim = self.kick_victim(slot, need);
        self.check_later(slot, need.here, if need.tier > BATCH { RECHECK } else { TURN });
        victim
    }

    /// Kicks for a task that the backend put into a CPU's own DSQ, which only that CPU serves.
    fn kick_bound(&mut self, slot: u32, cpu: u32, need: &Need) {
        let idle = self.cpus[cpu as usize].seen.current == Current::Idle;
        if !idle && self.gives_way(cpu, need) && self.may_kick(cpu) {
            self.interrupt(cpu, Some(slot));
        }
    }

    pub(super) fn kicks_are_on(&self) -> bool {
        self.setup.fast_path && self.settings.preempt && self.is_loaded()
    }

    pub(super) fn may_kick(&self, cpu: u32) -> bool {
        self.cpus[cpu as usize].seen.kicks.allow_another(self.now)
    }

    /// `kick`: kicks a CPU, and names the task for which it does so, if there is one.
    pub(super) fn interrupt(&mut self, cpu: u32, wakee: Option<u32>) {
        self.cpus[cpu as usize].seen.kicks.note(self.now);
        let lost = wakee.is_some_and(|slot| self.injects_lost_kick(slot));
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
        let task = &self.tasks[slot as usize];
        let is_bound = task.mask.count() < self.setup.shape.cpus;
        let bound_to = is_bound.then_some(task.cpu.into());
        Need { now: self.now, here, tier, never_preempts, bound_to, ..Need::default() }
    }

    /// What the rules know of a CPU.
    pub(super) fn cpu_view(&self, cpu: u32) -> CpuView {
        let state = &self.cpus[cpu as usize];
        let seen = &state.seen;
        CpuView {
            occupant: if state.online { self.rank_of(seen.current) } else { OFFLINE },
            since: seen.since,
            slice: seen.slice,
            low_weight: seen.low_weight,
            kicks: seen.kicks,
        }
    }

    /// Whether the occupant gives way to the task.
    pub(super) fn gives_way(&self, cpu: u32, need: &Need) -> bool {
        self.cpu_view(cpu).gives_way(need, &self.settings.protection())
    }

    fn find_victim(&self, slot: u32, need: &Need) -> Option<u32> {
        let mask = self.tasks[slot as usize].mask;
        let view = |cpu| mask.holds(cpu).then(|| self.cpu_view(cpu));
        find_victim(self.setup.shape.cpus, need, &self.settings.protection(), view)
    }

    /// `kick_victim`: kicks a CPU for a task that waits; returns the CPU.
    pub(super) fn kick_victim(&mut self, slot: u32, need: &Need) -> Option<u32> {
        let victim = self.find_victim(slot, need)?;
        self.counters.kicks += 1;
        self.interrupt(victim, Some(slot));
        Some(victim)
    }

    /// Whether the waker will probably sleep soon, and so hand its CPU over to the wakee.
    fn is_handoff(&self, slot: u32, here: u32) -> bool {
        let seen = &self.cpus[here as usize].seen;
        self.settings.hand_off
            && seen.woke == 0
            && seen.handoffs >= HANDOFF_TRUST
            && self.tasks[slot as usize].mask.holds(here)
    }

    /// `SCHED_IDLE` and nice 19 never preempt.
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

    /// The slot of a task that became runnable at `since`, if it still waits for a CPU.
    pub(super) fn still_waits(&self, pid: Pid, since: u64) -> Option<u32> {
        let slot = self.slot_of(pid)?;
        let task = &self.tasks[slot as usize];
        (task.waits() && task.woken.max(task.stopped) == since).then_some(slot)
    }

    // ---- Switches -----------------------------------------------------------------------------

    /// `fp_switch`: the CPU has switched.
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
            let asleep = matches!(task.place, Where::Timer | Where::Blocked);
            task.handoffs = count_handoff(task.handoffs, asleep, before.woke, self.now);
        }
        self.record_occupant(cpu, next);
        if let Current::Task(slot) = next {
            self.end_slice(slot, cpu);
        }
        if before.current == Current::Scheduler {
            self.wake_idle_cpu();
        } else {
            self.kick_for_requeue(cpu, &before);
        }
    }

    /// Records the new occupant of the CPU.
    fn record_occupant(&mut self, cpu: u32, next: Current) {
        let mut record = CpuRecord { since: self.now, current: next, ..CpuRecord::default() };
        if let Current::Task(slot) = next {
            let task = &self.tasks[slot as usize];
            record.pid = task.pid;
            record.slice = u64::from(task.slice);
            record.low_weight =
                task.nice > 0 || self.workload.groups[task.group as usize].idle_class;
            record.handoffs = task.handoffs;
            if task.tier() < Tier::LatCritical {
                let waiting = self.shared.len() as u32 + self.settings.nr_waiting;
                let slice = crowd_slice(record.slice, waiting, self.online);
                (record.crowded, record.slice) = (slice < record.slice, slice);
            }
        }
        let seen = &mut self.cpus[cpu as usize].seen;
        *seen = CpuRecord { kicks: seen.kicks, ..record };
    }

    /// A task that lost its CPU to a lower tier at the end of its slice kicks that CPU at once. A
    /// LatCritical task that lost it to its own tier kicks another CPU. If the scheduler process
    /// follows, only the recheck kicks.
    fn kick_for_requeue(&mut self, cpu: u32, before: &CpuRecord) {
        let Current::Task(slot) = before.current else { return };
        let task = &self.tasks[slot as usize];
        let is_queued = task.pid == before.pid && task.place == Where::UserSpace;
        let tier = task.tier();
        if tier == Tier::Batch || !is_queued || !self.kicks_are_on() {
            return;
        }
        self.check_later(slot, cpu, RECHECK);
        let occupant = self.rank_of(self.cpus[cpu as usize].seen.current);
        if occupant == FOREIGN {
            return;
        }
        if occupant < rank(tier) && self.may_kick(cpu) {
            self.interrupt(cpu, Some(slot));
        } else if tier == Tier::LatCritical {
            let need = Need { spare_here: true, ..self.need(slot, cpu) };
            self.kick_victim(slot, &need);
        }
    }

    /// The scheduler process leaves its CPU while tasks wait: wakes an idle CPU, if there is one.
    /// The idle CPUs take turns.
    fn wake_idle_cpu(&mut self) {
        let waits = self.settings.waiting != IDLE || !self.shared.is_empty();
        if !self.kicks_are_on() || !self.settings.wakes_idle || !waits {
            return;
        }
        let (cpus, last) = (self.setup.shape.cpus, self.woken_idle_cpu);
        let mut turns = (1..=SCAN.min(cpus)).map(|step| (last + step) % cpus);
        let found = turns.find(|cpu| self.cpu_view(*cpu).occupant == IDLE);
        self.woken_idle_cpu = found.unwrap_or((last + SCAN.min(cpus)) % cpus);
        if let Some(cpu) = found {
            self.interrupt(cpu, None);
        }
    }

    // ---- Facts --------------------------------------------------------------------------------

    /// The facts that the policy gets of a task in addition to its message.
    pub(super) fn facts(&self, pid: Pid) -> Option<Facts> {
        if !self.setup.fast_path {
            return None;
        }
        let slot = self.slot_of(pid)?;
        let task = &self.tasks[slot as usize];
        let parent = self.parents.get(&slot).copied().filter(|_| task.cpu_time == 0);
        let order = self.order_slots.get(slot as usize).copied().unwrap_or_default();
        Some(Facts { waker: parent, ..self.facts_of(task, &order) })
    }

    fn facts_of(&self, task: &Task, order: &OrderSlot) -> Facts {
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
            user: if group.kthread { User::ROOT } else { group.user },
            allowed: task.mask.reported(self.setup.shape.cpus),
            kicked: CpuId::new(i32::from(task.kicked)),
            handed_off: task.handed_off,
            last_cpu: CpuId::new(i32::from(task.ran_on)),
            run_interval: Span::from_nanos(task.run_interval),
            stopped: Stamp::from_nanos(task.stopped),
            orders: order.executed,
            ordered: Stamp::from_nanos(order.executed_at),
            preempted: order.preempted,
            process: if group.threads { process_of(task.group) } else { Some(task.pid) },
            ..Facts::default()
        }
    }
}
