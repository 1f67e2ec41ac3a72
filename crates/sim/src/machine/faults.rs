// SPDX-License-Identifier: GPL-2.0-only

//! What goes wrong on purpose.

use super::cpu::Prev;
use super::state::{Current, Kick, Stage, Where};
use super::{Machine, Plan};
use crate::observer::{Event, Fault, Left, Observer};
use crate::topology::Mask;
use pandemonium_engine::task::Pid;

/// How often it is drawn whether something goes wrong that is not tied to an event.
const DRAW_EVERY: u64 = 1_000_000;
/// Longest delay of a late round, longest stop, and longest absence in another class. Each is far
/// below the watchdog's 5 s, so that what waits longer is the policy's fault.
const LATE_MAX: u64 = 2_000_000;
const STOP_MAX: u64 = 100_000_000;
const AWAY_MAX: u64 = 50_000_000;
/// Furthest that a clock goes ahead.
const SKEW_MAX: u64 = 1_000_000;

/// How likely each fault is, in parts of a million: for each message, decision, round or
/// interrupt, or once a millisecond for those that are tied to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// In the order of [`Fault::ALL`].
    pub ppm: [u32; Fault::ALL.len()],
}

impl FaultPlan {
    /// Nothing goes wrong.
    pub const NONE: FaultPlan = FaultPlan { ppm: [0; Fault::ALL.len()] };

    /// How likely one is.
    pub const fn of(&self, fault: Fault) -> u32 {
        self.ppm[fault as usize]
    }

    /// The same plan with another likelihood of one fault.
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

    fn strikes(&mut self, fault: Fault) -> bool {
        let ppm = if self.stormy { self.setup.faults.of(fault) } else { 0 };
        ppm > 0 && self.chance.chance(ppm)
    }

    fn report(&mut self, fault: Fault, slot: Option<u32>) {
        let task = slot.map(|slot| self.id(slot));
        self.emit(Event::Faulted { fault, task });
    }

    pub(super) fn ring_is_full_on_purpose(&mut self, slot: u32) -> bool {
        let strikes = self.strikes(Fault::RingFull);
        if strikes {
            self.report(Fault::RingFull, Some(slot));
        }
        strikes
    }

    pub(super) fn refuses_on_purpose(&mut self, pid: Pid) -> bool {
        let strikes = self.strikes(Fault::Refusal);
        if strikes {
            let slot = self.slot_of(pid);
            self.report(Fault::Refusal, slot);
        }
        strikes
    }

    pub(super) fn kick_is_lost(&mut self, slot: u32) -> bool {
        let strikes = self.strikes(Fault::LostKick);
        if strikes {
            self.report(Fault::LostKick, Some(slot));
        }
        strikes
    }

    /// How much longer a round takes than it should.
    pub(super) fn delay_on_purpose(&mut self) -> u64 {
        if !self.strikes(Fault::LateScheduler) {
            return 0;
        }
        self.report(Fault::LateScheduler, None);
        self.chance.between(1, LATE_MAX)
    }

    pub(super) fn something_goes_wrong(&mut self) {
        if !self.stormy {
            return;
        }
        self.plan_faults();
        for fault in Fault::ALL {
            let tied = matches!(
                fault,
                Fault::RingFull | Fault::Refusal | Fault::LateScheduler | Fault::LostKick
            );
            if !tied && self.strikes(fault) {
                self.strike(fault);
            }
        }
    }

    fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::StoppedScheduler => {
                let until = self.now + self.chance.between(1, STOP_MAX);
                if self.is_loaded() && self.scheduler.stage != Stage::Frozen {
                    self.scheduler.freeze = Some(until);
                    self.report(fault, None);
                }
            }
            Fault::ClockSkew => {
                for cpu in 0..self.cpus.len() {
                    self.cpus[cpu].skew = self.chance.below(SKEW_MAX);
                }
                self.report(fault, None);
            }
            Fault::Hotplug => self.plug(),
            _ => {
                if let Some(slot) = self.somebody() {
                    self.strike_task(fault, slot);
                }
            }
        }
    }

    /// A task at random that is alive and that no other task depends on.
    fn somebody(&mut self) -> Option<u32> {
        let tasks = self.tasks.len() as u64;
        for _ in 0..if tasks == 0 { 0 } else { 16 } {
            let slot = self.chance.below(tasks) as u32;
            let task = &self.tasks[slot as usize];
            let linked = self.workload.groups[task.group as usize].is_linked();
            if task.place != Where::Nowhere && !linked {
                return Some(slot);
            }
        }
        None
    }

    fn strike_task(&mut self, fault: Fault, slot: u32) {
        let place = self.tasks[slot as usize].place;
        match fault {
            Fault::TaskDeath | Fault::PidReuse => {
                let (group, pid) = {
                    let task = &self.tasks[slot as usize];
                    (u32::from(task.group), task.pid)
                };
                self.report(fault, Some(slot));
                self.end(slot, false);
                if fault == Fault::PidReuse && self.vacant.pop() == Some(slot) {
                    self.bear(slot, group, 0, Some(pid), None);
                }
            }
            Fault::StaleTicket if place == Where::Hands && self.is_loaded() => {
                self.report(fault, Some(slot));
                self.requeue(slot);
            }
            Fault::Affinity => {
                self.report(fault, Some(slot));
                let mask = self.random_mask();
                self.confine(slot, mask);
            }
            Fault::ClassChange => {
                self.report(fault, Some(slot));
                self.leave_class(slot);
            }
            Fault::Renice => {
                self.report(fault, Some(slot));
                let nice = self.chance.between(0, 39) as i8 - 20;
                self.task(slot).nice = nice;
                if self.is_loaded() && place == Where::Hands {
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

    /// The kernel takes a waiting task out and queues it anew, as it does for every change of a
    /// task's attributes.
    fn requeue(&mut self, slot: u32) {
        self.withdraw(slot);
        self.task(slot).awake = 0;
        self.enqueue_requeued(slot);
    }

    fn leave_class(&mut self, slot: u32) {
        let place = self.tasks[slot as usize].place;
        match place {
            Where::Cpu(cpu) => self.release(u32::from(cpu), slot, Left::Gone),
            Where::Timer | Where::Token | Where::Nowhere => return,
            Where::Hands | Where::Queue(_) | Where::Shared => self.withdraw(slot),
        }
        let until = self.now + self.chance.between(1, AWAY_MAX);
        let task = self.task(slot);
        task.place = Where::Timer;
        task.generation += 1;
        let generation = task.generation;
        self.event_queue.add(until, Plan::Timer { task: slot, generation });
    }

    /// One CPU, a few neighbours, or all.
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

    /// `set_cpus_allowed`: a task that waits is queued anew, one that runs where it may not any
    /// more loses its CPU.
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
                self.enqueue_requeued(slot);
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
            self.enqueue_requeued(slot);
        }
    }

    fn moved(&mut self, slot: u32, mask: Mask) {
        let task = self.id(slot);
        self.emit(Event::Moved { task, mask });
    }

    /// The mask, or all CPUs if none of it is online: the kernel does the same.
    pub(super) fn with_an_online_cpu(&self, mask: Mask) -> Mask {
        let cpus = self.setup.shape.cpus;
        let usable = (0..cpus).any(|cpu| mask.holds(cpu) && self.cpus[cpu as usize].online);
        if usable { mask } else { Mask::all(cpus) }
    }

    /// An online CPU of the mask, from `near` on.
    pub(super) fn home_in(&self, mask: Mask, near: u32) -> u32 {
        let cpus = self.setup.shape.cpus;
        let usable = |cpu: &u32| mask.holds(*cpu) && self.cpus[*cpu as usize].online;
        (0..cpus).map(|step| (near + step) % cpus).find(usable).unwrap_or(near)
    }

    /// A CPU goes offline, or comes back; the scheduler is ended for it and loaded anew.
    fn plug(&mut self) {
        let cpus = self.setup.shape.cpus;
        let cpu = self.chance.below(u64::from(cpus)) as u32;
        let online = !self.cpus[cpu as usize].online;
        if !online && self.online == 1 || !self.is_loaded() {
            return;
        }
        self.report(Fault::Hotplug, None);
        self.unload();
        self.set_online(cpu, online);
        let back = self.now + self.setup.costs.reload.as_nanos();
        self.event_queue.add(back, Plan::Reload);
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
            self.queue_without_us(slot);
        }
        for slot in 0..self.tasks.len() as u32 {
            let task = &self.tasks[slot as usize];
            if task.place == Where::Nowhere {
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
}
