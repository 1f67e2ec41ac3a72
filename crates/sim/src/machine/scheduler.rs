// SPDX-License-Identifier: GPL-2.0-only

//! The scheduler process: runs the shipped `round()` behind the port, and takes simulated time.

use super::cpu::Prev;
use super::limits::{HEARTBEAT, RING, WATCHDOG};
use super::state::{Current, Down, Kick, Stage, StopPlace, Where};
use super::{Machine, Plan};
use crate::observer::{Event, Left, Observer};
use pandemonium_engine::orders::Bounds;
use pandemonium_engine::task::{Arrival, CpuId, Dispatch, Placement};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::topology::CpuMask;
use pandemonium_engine::{Full, Limits, MachineView, Policy, Port, round};

impl<W: Observer> Machine<W> {
    /// The process has a CPU and begins a round after `delay`.
    pub(super) fn begin_round(&mut self, cpu: u32, delay: u64) {
        self.scheduler.stage = Stage::Starting;
        self.scheduler.cpu = cpu;
        self.event_queue.add(self.now + delay, Plan::Round);
    }

    /// A round begins or ends.
    pub(super) fn round_is_due<Q: Policy>(&mut self, policy: &mut Q) {
        match self.scheduler.stage {
            Stage::Starting => self.decide(policy),
            Stage::Deciding => self.yield_cpu(),
            Stage::Queued | Stage::Frozen | Stage::Unloaded => {}
        }
    }

    fn look(&mut self) {
        let runs = |fits: fn(&Current) -> bool| {
            if !self.setup.fast_path {
                return CpuMask::EMPTY;
            }
            let seen = self.cpus.iter().enumerate();
            let found = seen.filter(|(_, cpu)| cpu.online && fits(&cpu.current));
            found.filter_map(|(number, _)| CpuId::new(number as i32)).collect()
        };
        self.view = MachineView {
            cpus: self.online,
            running: self.running,
            here: CpuId::new(self.scheduler.cpu as i32),
            idle: runs(|current| *current == Current::Idle),
            busy: runs(|current| matches!(current, Current::Task(_))),
            order_deficit: self.order_deficit,
            queued: self.queued_for(self.scheduler.cpu),
        };
    }

    fn decide<Q: Policy>(&mut self, policy: &mut Q) {
        let cpu = self.scheduler.cpu;
        self.scheduler.stage = Stage::Deciding;
        self.scheduler.pending = 1;
        self.scheduler.ran = self.now;
        (self.scheduler.took, self.scheduler.sent, self.scheduler.calls) = (0, 0, 0);
        while let Some(pid) = self.gone.pop() {
            policy.exit(pid);
            self.emit(Event::Exited(pid));
        }
        self.look();
        let now = Stamp::from_nanos(self.now + self.cpus[cpu as usize].skew);
        let view = self.view;
        self.begun = now;
        self.emit(Event::Began { cpu, now, view });
        let done = round(now, self, policy, Limits::KERNEL);
        let costs = &self.setup.costs;
        let scheduler = &self.scheduler;
        let paid = costs.arrival.scale(scheduler.took, 1)
            + costs.decision.scale(scheduler.sent, 1)
            + costs.call.scale(scheduler.calls, 1);
        let busy = costs.round + paid + Span::from_nanos(self.delay_on_purpose());
        self.counters.rounds += 1;
        self.counters.own_time += busy.as_nanos();
        self.emit(Event::Ended {
            round: done,
            has_room: policy.waiting().has_room(),
            oldest_wait: policy.waiting().oldest_wait(now),
            mode: policy.mode(now),
            busy,
        });
        self.scheduler.pending = done.pending as u64;
        self.scheduler.urgent = policy.wants_more();
        self.settings.tell(policy, now);
        self.event_queue.add(self.now + busy.as_nanos(), Plan::Round);
    }

    /// The round ends: its decisions and kicks take effect, and the process yields its CPU.
    fn yield_cpu(&mut self) {
        let cpu = self.scheduler.cpu;
        let stop = self.scheduler.stop;
        if stop.is_none_or(|stop| stop.place == StopPlace::BetweenRounds) {
            self.end_round();
        }
        if let Some(stop) = stop {
            self.leave_cpu(cpu, Stage::Frozen);
            self.event_queue.add(stop.until, Plan::Thaw);
            self.plan_stall();
            return;
        }
        self.reschedule(cpu, Prev::Scheduler);
    }

    /// The decisions and kicks of the round take effect.
    fn end_round(&mut self) {
        self.scheduler.is_stalled = false;
        self.down.extend(self.staged.drain(..));
        self.emit(Event::Submitted);
        while let Some(victim) = self.staged_kicks.pop() {
            self.counters.asked += 1;
            self.interrupt(victim, None);
        }
    }

    /// The process leaves its CPU and is not queued again.
    pub(super) fn leave_cpu(&mut self, cpu: u32, stage: Stage) {
        let state = &mut self.cpus[cpu as usize];
        state.current = Current::Idle;
        state.generation += 1;
        state.started = self.now;
        self.scheduler.stage = stage;
        let (from, to) = (crate::observer::Occupant::Scheduler, crate::observer::Occupant::Idle);
        self.emit(Event::Switched { cpu, from, left: Left::Slept, to });
        self.reschedule(cpu, Prev::None);
    }

    /// A stopped process continues: it ends the round in which it was stopped, is queued again, and
    /// its CPU is kicked if it idles.
    pub(super) fn thaw(&mut self) {
        if self.scheduler.stage == Stage::Frozen {
            self.scheduler.stage = Stage::Queued;
            self.scheduler.needed |= self.scheduler.is_stalled;
            let stop = self.scheduler.stop.take();
            if stop.is_some_and(|stop| stop.place == StopPlace::InRound) {
                self.end_round();
            }
            let cpu = self.scheduler.cpu;
            if self.cpus[cpu as usize].current == Current::Idle {
                self.kick_cpu(cpu, Kick::Idle);
            }
        }
    }

    /// The backend's heartbeat timer, and the kernel's watchdog.
    pub(super) fn heartbeat(&mut self) {
        if self.now.saturating_sub(self.scheduler.ran) >= HEARTBEAT {
            self.scheduler.needed = true;
            self.kick_cpu(self.scheduler.cpu, Kick::Idle);
        }
        let now = self.now;
        let late = (0..self.tasks.len() as u32).find(|&slot| {
            let task = &self.tasks[slot as usize];
            task.waits() && now.saturating_sub(task.since) > WATCHDOG
        });
        if let Some(slot) = late {
            let task = self.id(slot);
            self.emit(Event::Watchdog { task });
        }
        self.event_queue.add(now + HEARTBEAT, Plan::Heartbeat);
    }

    /// The target CPU of a decision: if a CPU may be idle, the port picks one.
    fn resolve(&mut self, dispatch: &Dispatch) -> Option<u32> {
        match dispatch.placement {
            Placement::Cpu(cpu) => Some(cpu.as_raw() as u32),
            Placement::Any { near } if self.view.running < self.view.cpus => {
                self.scheduler.calls += 1;
                let slot = self.slot_of(dispatch.pid)?;
                let mask = self.tasks[slot as usize].mask;
                let here = Some(self.scheduler.cpu);
                self.pick_idle(mask, near.as_raw() as u32, here, false)
            }
            Placement::Any { .. } => None,
        }
    }
}

impl<W: Observer> Port for Machine<W> {
    fn recv(&mut self) -> Option<Arrival> {
        let mut arrival = self.up.pop_front()?;
        arrival.facts = self.facts(arrival.pid);
        self.scheduler.took += 1;
        self.emit(Event::Took(arrival));
        Some(arrival)
    }

    fn send(&mut self, dispatch: &Dispatch) -> Result<(), Full> {
        if self.down.len() + self.staged.len() >= RING || self.refuses_on_purpose(dispatch.pid) {
            self.emit(Event::Refused(*dispatch));
            return Err(Full);
        }
        let cpu = self.resolve(dispatch).filter(|&cpu| cpu < self.setup.shape.cpus);
        if let Some(slot) = self.slot_of(dispatch.pid).filter(|_| self.setup.fast_path) {
            self.task(slot).tier = Some(dispatch.tier);
        }
        self.scheduler.sent += 1;
        self.staged.push(Down { dispatch: *dispatch, cpu });
        self.emit(Event::Sent { dispatch: *dispatch, cpu });
        self.post(dispatch);
        Ok(())
    }

    fn kick(&mut self, cpu: CpuId) {
        let cpu = cpu.as_raw() as u32;
        if self.setup.fast_path && cpu < self.setup.shape.cpus {
            self.scheduler.calls += 1;
            self.staged_kicks.push(cpu);
        }
    }

    fn publish(&mut self, bounds: Option<&Bounds>) {
        let may_order = self.setup.fast_path && self.setup.builtin_idle;
        let bounds = bounds.copied().filter(|_| may_order);
        if self.bounds != bounds && self.injects_late_revocation() {
            return;
        }
        self.bounds = bounds;
        let deficit_left = self.bounds.map_or(0, |bounds| bounds.deficit_left);
        self.deficit_max = self.order_deficit.wrapping_add(deficit_left);
        self.emit(Event::Bounded(self.bounds));
    }

    fn view(&self) -> &MachineView {
        &self.view
    }
}

impl<W: Observer> Machine<W> {
    /// The kernel ejects the scheduler and queues its tasks itself.
    pub(super) fn unload(&mut self) {
        self.up.clear();
        self.down.clear();
        self.staged.clear();
        self.staged_kicks.clear();
        self.gone.clear();
        let before = self.scheduler.stage;
        self.scheduler.stage = Stage::Unloaded;
        self.scheduler.pending = 0;
        self.order_slots.clear();
        (self.bounds, self.order_deficit) = (None, 0);
        self.emit(Event::Loaded(false));
        for slot in 0..self.tasks.len() as u32 {
            if self.tasks[slot as usize].waits() {
                self.withdraw(slot);
                self.queue_without_us(slot);
            }
        }
        if matches!(before, Stage::Starting | Stage::Deciding) {
            let cpu = self.scheduler.cpu;
            self.leave_cpu(cpu, Stage::Unloaded);
        }
    }

    /// A new scheduler is loaded: every task is new to it, except for what the old one exported.
    pub(super) fn reload<Q: Policy>(&mut self, policy: &mut Q, renew: &mut dyn FnMut() -> Q) {
        let mut next = renew();
        if let (Some(before), Some(after)) = (policy.learning(), next.learning()) {
            before.export(&mut |memo| after.import(memo));
        }
        *policy = next;
        self.scheduler.stage = Stage::Queued;
        self.scheduler.stop = None;
        self.scheduler.is_stalled = false;
        self.scheduler.ran = self.now;
        self.emit(Event::Loaded(true));
        for slot in 0..self.tasks.len() as u32 {
            self.task(slot).tickets = 0;
            if self.tasks[slot as usize].waits() {
                self.withdraw(slot);
                self.task(slot).place = Where::UserSpace;
                self.queue_up(slot, 0);
            }
        }
        self.kick_idle_cpus();
    }
}
