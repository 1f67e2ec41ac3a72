// SPDX-License-Identifier: GPL-2.0-only

//! Fault injection.

use super::cpu::Prev;
use super::limits::WATCHDOG;
use super::state::{Current, Kick, Stage, Stop, StopPlace, Where};
use super::{Machine, Plan};
use crate::observer::{Event, Fault, Left, Observer};
use crate::random::CERTAIN;
use crate::topology::Mask;
use pandemonium_engine::task::{Dispatch, Pid, Placement};

/// Period at which faults that belong to no particular event are drawn.
const DRAW_EVERY: u64 = 1_000_000;
/// Longest delay of a late round, and longest time in another class. Each is far below the
/// watchdog's 5 s, so that a task that waits longer is the policy's fault.
const LATE_MAX: u64 = 2_000_000;
/// Shortest stop, and how often it is doubled at most: up to the watchdog's 5 s, because the
/// backend decides meanwhile.
const STOP_MIN: u64 = 10_000_000;
const STOP_DOUBLINGS: u64 = 8;
const AWAY_MAX: u64 = 50_000_000;
/// Largest skew of a CPU's clock.
const SKEW_MAX: u64 = 1_000_000;

/// The faults that belong to no particular event.
const FREE_FAULTS: [Fault; 9] = [
    Fault::StoppedScheduler,
    Fault::TaskDeath,
    Fault::PidReuse,
    Fault::StaleTicket,
    Fault::ClockSkew,
    Fault::Hotplug,
    Fault::Affinity,
    Fault::ClassChange,
    Fault::Renice,
];

/// The probability of each fault, in parts of a million: per message, decision, order, round, kick
/// or CPU, or per millisecond for faults that belong to no such event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// In the order of [`Fault::ALL`].
    pub ppm: [u32; Fault::ALL.len()],
}

impl FaultPlan {
    /// No faults.
    pub const NONE: FaultPlan = FaultPlan { ppm: [0; Fault::ALL.len()] };

    /// The probability of a fault.
    pub const fn of(&self, fault: Fault) -> u32 {
        self.ppm[fault as usize]
    }

    /// The same plan with another probability of one fault.
    pub const fn with(mut self, fault: Fault, ppm: u32) -> FaultPlan {
        self.ppm[fault as usize] = ppm;
        self
    }
}

impl<W: Observer> Machine<W> {
    pub(super) fn plan_faults(&mut self) {
        if self.stormy {
            self.event_queue.add(self.now + DRAW_EVERY, Plan::Fault);
        }
    }

    fn draws_fault(&mut self, fault: Fault) -> bool {
        let ppm = if self.stormy { self.setup.faults.of(fault) } else { 0 };
        ppm > 0 && self.chance.chance(ppm)
    }

    fn emit_fault(&mut self, fault: Fault, slot: Option<u32>) {
        let task = slot.map(|slot| self.id(slot));
        self.emit(Event::Faulted { fault, task });
    }

    /// Draws a fault that befalls the task, and reports it.
    fn strikes(&mut self, fault: Fault, slot: Option<u32>) -> bool {
        let injected = self.draws_fault(fault);
        if injected {
            self.emit_fault(fault, slot);
        }
        injected
    }

    pub(super) fn injects_full_ring(&mut self, slot: u32) -> bool {
        self.strikes(Fault::RingFull, Some(slot))
    }

    pub(super) fn refuses_on_purpose(&mut self, pid: Pid) -> bool {
        let slot = self.slot_of(pid);
        self.strikes(Fault::Refusal, slot)
    }

    pub(super) fn injects_lost_kick(&mut self, slot: u32) -> bool {
        self.strikes(Fault::LostKick, Some(slot))
    }

    pub(super) fn injects_lost_order(&mut self, slot: u32) -> bool {
        self.strikes(Fault::LostOrder, Some(slot))
    }

    pub(super) fn injects_late_revocation(&mut self) -> bool {
        self.strikes(Fault::LateRevocation, None)
    }

    /// Only if the policy names the CPU: an idle CPU that the port picks is one of the mask.
    pub(super) fn injects_bounce(&mut self, decision: &Dispatch, slot: u32) -> bool {
        let is_named = matches!(decision.placement, Placement::Cpu(_));
        is_named && self.strikes(Fault::BouncedDecision, Some(slot))
    }

    /// Just before the decision about a task arrives, the task is queued to user space again.
    pub(super) fn injects_lost_decision(&mut self, slot: u32) {
        let is_queued = self.tasks[slot as usize].place == Where::UserSpace;
        if is_queued && self.strikes(Fault::LostDecision, Some(slot)) {
            self.requeue(slot);
        }
    }

    /// The CPUs that are offline from the start. One at least is online.
    pub(super) fn begin_with_offline_cpus(&mut self) {
        for cpu in 0..self.setup.shape.cpus {
            if self.online > 1 && self.strikes(Fault::OfflineAtStart, None) {
                self.set_online(cpu, false);
            }
        }
    }

    /// Extra time of the current round.
    pub(super) fn delay_on_purpose(&mut self) -> u64 {
        if self.strikes(Fault::LateScheduler, None) { self.chance.between(1, LATE_MAX) } else { 0 }
    }

    pub(super) fn inject_faults(&mut self) {
        if !self.stormy {
            return;
        }
        self.plan_faults();
        for fault in FREE_FAULTS {
            if self.draws_fault(fault) {
                self.inject(fault);
            }
        }
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::StoppedScheduler => {
                let stop = self.draw_stop();
                if self.is_loaded() && self.scheduler.stage != Stage::Frozen {
                    self.scheduler.stop = Some(stop);
                    self.emit_fault(fault, None);
                }
            }
            Fault::ClockSkew => {
                for cpu in 0..self.cpus.len() {
                    self.cpus[cpu].skew = self.chance.below(SKEW_MAX);
                }
                self.emit_fault(fault, None);
            }
            Fault::Hotplug => self.hotplug(),
            _ => {
                if let Some(slot) = self.random_task() {
                    self.inject_into_task(fault, slot);
                }
            }
        }
    }

    /// Short stops are as likely as long ones.
    fn draw_stop(&mut self) -> Stop {
        let least = STOP_MIN << self.chance.below(STOP_DOUBLINGS + 1);
        let length = self.chance.between(least, 2 * least).min(WATCHDOG);
        let place = if self.chance.chance(CERTAIN / 2) {
            StopPlace::InRound
        } else {
            StopPlace::BetweenRounds
        };
        Stop { until: self.now + length, place }
    }

    /// A random task that is alive and on which no other task depends.
    fn random_task(&mut self) -> Option<u32> {
        let tasks = self.tasks.len() as u64;
        for _ in 0..if tasks == 0 { 0 } else { 16 } {
            let slot = self.chance.below(tasks) as u32;
            let task = &self.tasks[slot as usize];
            let linked = self.workload.groups[task.group as usize].is_linked();
            if task.place != Where::Vacant && !linked {
                return Some(slot);
            }
        }
        None
    }

    fn inject_into_task(&mut self, fault: Fault, slot: u32) {
        let place = self.tasks[slot as usize].place;
        match fault {
            Fault::TaskDeath | Fault::PidReuse => {
                let (group, pid) = {
                    let task = &self.tasks[slot as usize];
                    (u32::from(task.group), task.pid)
                };
                self.emit_fault(fault, Some(slot));
                self.end(slot, false);
                if fault == Fault::PidReuse && self.vacant.pop() == Some(slot) {
                    self.create_task(slot, group, 0, Some(pid), None);
                }
            }
            Fault::StaleTicket if place == Where::UserSpace && self.is_loaded() => {
                self.emit_fault(fault, Some(slot));
                self.requeue(slot);
            }
            Fault::Affinity => {
                self.emit_fault(fault, Some(slot));
                let mask = self.random_mask();
                self.confine(slot, mask);
            }
            Fault::ClassChange => {
                self.emit_fault(fault, Some(slot));
                self.leave_class(slot);
            }
            Fault::Renice => {
                self.emit_fault(fault, Some(slot));
                let nice = self.chance.between(0, 39) as i8 - 20;
                self.task(slot).nice = nice;
                if self.is_loaded() && place == Where::UserSpace {
                    self.requeue(slot);
                }
            }
            _ => {}
        }
        if let Some(cpu) = place.cpu()
            && self.cpus[cpu as usize].current == Current::Idle
        {
            self.reschedule(cpu, Prev::None);
        }
    }

    /// The kernel dequeues a waiting task and queues it again, as for every change of a task's
    /// attributes.
    fn requeue(&mut self, slot: u32) {
        self.withdraw(slot);
        self.task(slot).awake = 0;
        self.enqueue_requeued(slot, false);
    }

    fn leave_class(&mut self, slot: u32) {
        let place = self.tasks[slot as usize].place;
        match place {
            Where::Cpu(cpu) => self.release(u32::from(cpu), slot, Left::Gone),
            Where::Timer | Where::Blocked | Where::Vacant => return,
            Where::UserSpace | Where::Queue(_) | Where::Shared | Where::Local(_) => {
                self.withdraw(slot)
            }
        }
        let until = self.now + self.chance.between(1, AWAY_MAX);
        let task = self.task(slot);
        task.place = Where::Timer;
        task.generation += 1;
        let generation = task.generation;
        self.event_queue.add(until, Plan::Timer { task: slot, generation });
    }

    /// One CPU, some adjacent ones, or all.
    fn random_mask(&mut self) -> Mask {
        let cpus = self.setup.shape.cpus;
        let first = self.chance.below(u64::from(cpus)) as u32;
        match self.chance.below(3) {
            0 => Mask::only(first),
            1 => {
                let end = first + 1 + self.chance.below(u64::from(cpus - first)) as u32;
                Mask::Range(first as u16, end as u16)
            }
            _ => Mask::all(cpus),
        }
    }

    /// `set_cpus_allowed`: a waiting task is queued again; a running task loses its CPU if the new
    /// mask excludes it.
    pub(super) fn confine(&mut self, slot: u32, mask: Mask) {
        let mask = self.with_an_online_cpu(mask);
        let home = self.home_in(mask, u32::from(self.tasks[slot as usize].cpu));
        let place = self.tasks[slot as usize].place;
        if let Where::Cpu(cpu) = place {
            self.task(slot).mask = mask;
            self.moved(slot, mask);
            if !mask.holds(u32::from(cpu)) {
                self.release(u32::from(cpu), slot, Left::Lost);
                let now = self.now;
                let task = self.task(slot);
                (task.since, task.cpu) = (now, home as u16);
                self.enqueue_requeued(slot, false);
            }
            return;
        }
        let waits = self.tasks[slot as usize].waits();
        if waits {
            self.withdraw(slot);
        }
        let task = self.task(slot);
        (task.mask, task.cpu, task.awake) = (mask, home as u16, 0);
        self.moved(slot, mask);
        if waits {
            self.enqueue_requeued(slot, false);
        }
    }

    fn moved(&mut self, slot: u32, mask: Mask) {
        let task = self.id(slot);
        self.emit(Event::Moved { task, mask });
    }

    /// The mask, or all CPUs if none of its CPUs is online, as in the kernel.
    pub(super) fn with_an_online_cpu(&self, mask: Mask) -> Mask {
        let cpus = self.setup.shape.cpus;
        let usable = (0..cpus).any(|cpu| mask.holds(cpu) && self.cpus[cpu as usize].online);
        if usable { mask } else { Mask::all(cpus) }
    }

    /// An online CPU of the mask; the search starts at `near`.
    pub(super) fn home_in(&self, mask: Mask, near: u32) -> u32 {
        let cpus = self.setup.shape.cpus;
        let usable = |cpu: &u32| mask.holds(*cpu) && self.cpus[*cpu as usize].online;
        (0..cpus).map(|step| (near + step) % cpus).find(usable).unwrap_or(near)
    }

    /// A CPU goes offline or online, and sometimes some of the next ones too. Mostly the scheduler
    /// stays loaded; for a CPU that was offline at its load it is loaded again.
    fn hotplug(&mut self) {
        let cpus = self.setup.shape.cpus;
        let first = self.chance.below(u64::from(cpus)) as u32;
        let online = !self.cpus[first as usize].online;
        if !online && self.online == 1 || !self.is_loaded() {
            return;
        }
        let others = if self.chance.chance(CERTAIN / 4) { cpus / 2 } else { 0 };
        self.emit_fault(Fault::Hotplug, None);
        let restarts = self.chance.chance(CERTAIN / 4);
        if restarts {
            self.unload();
        }
        for cpu in first..=(first + others).min(cpus - 1) {
            let state = &self.cpus[cpu as usize];
            // The process moves between two rounds.
            let decides = state.current == Current::Scheduler;
            if state.online != online && !decides && (online || self.online > 1) {
                self.cpus[cpu as usize].left = !online;
                self.set_online(cpu, online);
            }
        }
        if restarts {
            let back = self.now + self.setup.costs.reload.as_nanos();
            self.event_queue.add(back, Plan::Reload);
        }
    }

    pub(super) fn set_online(&mut self, cpu: u32, online: bool) {
        self.cpus[cpu as usize].online = online;
        self.emit(Event::Online { cpu, online });
        if online {
            self.online += 1;
            self.go_idle(cpu);
            return self.kick_cpu(cpu, Kick::Idle);
        }
        self.online -= 1;
        self.idle.remove(cpu);
        if let Current::Task(slot) = self.cpus[cpu as usize].current {
            self.release(cpu, slot, Left::Lost);
            let (now, home) = (self.now, self.home_in(self.tasks[slot as usize].mask, cpu));
            let task = self.task(slot);
            (task.since, task.cpu) = (now, home as u16);
            self.enqueue_requeued(slot, false);
        }
        if self.scheduler.cpu == cpu {
            self.scheduler.cpu = self.home_in(Mask::all(self.setup.shape.cpus), cpu);
        }
        self.empty_queues_of(cpu);
        for slot in 0..self.tasks.len() as u32 {
            let task = &self.tasks[slot as usize];
            if task.place == Where::Vacant {
                continue;
            }
            let (mask, home) = (task.mask, u32::from(task.cpu));
            if self.with_an_online_cpu(mask) != mask {
                self.confine(slot, mask);
            } else if home == cpu {
                self.task(slot).cpu = self.home_in(mask, cpu) as u16;
            }
        }
    }

    /// `patch_cpu_offline`: what waits for a CPU that goes waits for any CPU.
    fn empty_queues_of(&mut self, cpu: u32) {
        let now = self.now;
        if let Some(slot) = self.cpus[cpu as usize].local {
            self.withdraw(slot);
            self.task(slot).since = now;
            self.enqueue_requeued(slot, false);
        }
        while let Some((vtime, _, slot)) = self.queues[cpu as usize].pop_first() {
            let slice = self.tasks[slot as usize].slice;
            self.insert(slot, None, slice.into(), vtime);
        }
        self.kick_idle_cpus();
    }
}
