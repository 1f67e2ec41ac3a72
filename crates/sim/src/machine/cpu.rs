// SPDX-License-Identifier: GPL-2.0-only

//! One CPU: the running task, its slice, and the switch to the next task.

use super::state::{Current, Kick, Stage, Where};
use super::{Machine, Plan};
use crate::observer::{Event, Left, Observer};
use crate::random::Random;
use crate::topology::FULL_SPEED;

/// Calls of `ops.dispatch` before the kernel lets the CPU idle: `SCX_DSP_MAX_LOOPS`.
const DISPATCH_LOOPS: u32 = 32;

/// The previous occupant, if it is still runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prev {
    None,
    Task(u32),
    Scheduler,
}

/// The result of `ops.dispatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Task(u32),
    Scheduler,
    /// The previous occupant continues.
    Keep,
    /// Nothing to run. With `again`, the call took a decision from the ring, so the kernel calls
    /// once more.
    Nothing {
        again: bool,
    },
}

impl<W: Observer> Machine<W> {
    /// The first tick of `cpu` at or after `at`. The ticks of the CPUs are spread.
    fn tick_from(&self, cpu: u32, at: u64) -> u64 {
        let length = self.setup.costs.tick.as_nanos().max(1);
        let spread = self.setup.costs.tick_spread.as_nanos().min(length - 1);
        let tick = |number: u64| {
            let salt = u64::from(cpu) << 48 ^ number;
            number * length + Random::derive(self.setup.seed, salt).between(0, spread)
        };
        let number = at / length;
        let this = tick(number);
        if this >= at { this } else { tick(number + 1) }
    }

    /// Accounts the work done on `cpu` until now.
    pub(super) fn settle(&mut self, cpu: u32) {
        let (now, state) = (self.now, &mut self.cpus[cpu as usize]);
        let Current::Task(slot) = state.current else { return };
        if now <= state.works_from {
            return;
        }
        let wall = now - state.works_from;
        let speed = state.speed;
        state.works_from = now;
        let task = &mut self.tasks[slot as usize];
        let done = (wall * speed / FULL_SPEED).min(task.left);
        task.left -= done;
        let task = task.id(slot);
        self.emit(Event::Worked { task, work: done });
    }

    /// Queues the next event of a CPU that runs a task.
    pub(super) fn plan_cpu(&mut self, cpu: u32) {
        let state = &self.cpus[cpu as usize];
        let Current::Task(slot) = state.current else { return };
        let task = &self.tasks[slot as usize];
        // Rounded up, so that the step is finished when its event comes.
        let needs = (task.left * FULL_SPEED).div_ceil(state.speed);
        let done = state.works_from.max(self.now) + needs;
        let slice_over = self.tick_from(cpu, state.started + u64::from(task.slice));
        let at = done.min(slice_over).max(self.now);
        let state = &mut self.cpus[cpu as usize];
        state.generation += 1;
        let generation = state.generation;
        self.event_queue.add(at, Plan::Cpu { cpu, generation });
    }

    /// The task on `cpu` has finished its step, or reaches the tick that ends its slice.
    pub(super) fn cpu_is_due(&mut self, cpu: u32, generation: u32) {
        let state = &self.cpus[cpu as usize];
        let Current::Task(slot) = state.current else { return };
        if state.generation != generation {
            return;
        }
        self.settle(cpu);
        if self.tasks[slot as usize].left == 0 && self.now >= self.cpus[cpu as usize].works_from {
            self.advance(cpu, slot);
        }
        if self.cpus[cpu as usize].current != Current::Task(slot) {
            return;
        }
        let used = self.now.saturating_sub(self.cpus[cpu as usize].started);
        let at_tick = self.tick_from(cpu, self.now) == self.now;
        if at_tick && used >= u64::from(self.tasks[slot as usize].slice) {
            self.reschedule(cpu, Prev::Task(slot));
        } else {
            self.plan_cpu(cpu);
        }
    }

    /// Kicks `cpu`. A kick that is on its way already takes the stronger kind.
    pub(super) fn kick_cpu(&mut self, cpu: u32, kick: Kick) {
        let costs = &self.setup.costs;
        let state = &mut self.cpus[cpu as usize];
        let had = state.kick;
        state.kick = had.max(kick);
        if had == Kick::None {
            let exit = if state.current == Current::Idle { costs.idle_exit.as_nanos() } else { 0 };
            let at = self.now + costs.interrupt.as_nanos() + exit;
            self.event_queue.add(at, Plan::Kick { cpu });
        }
    }

    /// Kicks each CPU that idles.
    pub(super) fn kick_idle_cpus(&mut self) {
        for cpu in 0..self.setup.shape.cpus {
            if self.cpus[cpu as usize].current == Current::Idle {
                self.kick_cpu(cpu, Kick::Idle);
            }
        }
    }

    /// A kick reaches `cpu`. It does not preempt the scheduler process: the fast path never
    /// intends that.
    pub(super) fn kick_arrives(&mut self, cpu: u32) {
        let state = &mut self.cpus[cpu as usize];
        let kick = core::mem::replace(&mut state.kick, Kick::None);
        if !state.online {
            return;
        }
        match state.current {
            Current::Idle => self.reschedule(cpu, Prev::None),
            Current::Task(slot) if kick == Kick::Preempt => {
                self.reschedule(cpu, Prev::Task(slot));
            }
            Current::Task(_) | Current::Scheduler => {}
        }
    }

    /// The kernel's `schedule()`: the previous task's slice ended, or it slept, exited or yielded;
    /// `ops.dispatch` picks the next one.
    pub(super) fn reschedule(&mut self, cpu: u32, prev: Prev) {
        self.settle(cpu);
        let mut next = Next::Nothing { again: true };
        for _ in 0..DISPATCH_LOOPS {
            next = self.dispatch(cpu, prev);
            if next != (Next::Nothing { again: true }) {
                break;
            }
        }
        match next {
            Next::Keep => self.renew_slice(cpu, prev),
            Next::Task(slot) => {
                self.put_prev(cpu, prev);
                self.start_task(cpu, slot);
            }
            Next::Scheduler => {
                self.put_prev(cpu, prev);
                self.start_scheduler(cpu);
            }
            Next::Nothing { again } => {
                self.put_prev(cpu, prev);
                self.go_idle(cpu);
                if again {
                    self.kick_cpu(cpu, Kick::Idle);
                }
            }
        }
    }

    /// No other task wants the CPU: the occupant gets another slice.
    fn renew_slice(&mut self, cpu: u32, prev: Prev) {
        match prev {
            Prev::Task(slot) => {
                self.account_run(cpu, slot);
                let slice = u32::try_from(self.renewed_slice(slot));
                self.task(slot).slice = slice.unwrap_or(u32::MAX);
                self.plan_cpu(cpu);
            }
            Prev::Scheduler => self.begin_round(cpu, 0),
            Prev::None => {}
        }
    }

    /// Accounts CPU time up to now; the run interval continues.
    fn account_run(&mut self, cpu: u32, slot: u32) -> u64 {
        let ran = self.now.saturating_sub(self.cpus[cpu as usize].started);
        self.cpus[cpu as usize].started = self.now;
        let task = &mut self.tasks[slot as usize];
        task.awake += ran;
        task.cpu_time += ran;
        task.run_interval += ran;
        ran
    }

    /// The previous occupant is still runnable: queues it again.
    fn put_prev(&mut self, cpu: u32, prev: Prev) {
        match prev {
            Prev::None => {}
            Prev::Task(slot) => {
                self.release(cpu, slot, Left::Lost);
                self.task(slot).involuntary += 1;
                let now = self.now;
                self.task(slot).since = now;
                self.enqueue_requeued(slot, true);
            }
            Prev::Scheduler => {
                self.vacate(cpu, Left::Lost);
                self.scheduler.stage = Stage::Queued;
            }
        }
    }

    /// Takes a task off its CPU, which has no occupant until the next switch.
    pub(super) fn release(&mut self, cpu: u32, slot: u32, left: Left) {
        self.settle(cpu);
        self.account_run(cpu, slot);
        let now = self.now;
        let task = self.task(slot);
        task.stopped = now;
        task.slice = 0;
        self.running -= 1;
        self.vacate(cpu, left);
    }

    fn vacate(&mut self, cpu: u32, left: Left) {
        let from = self.occupant(self.cpus[cpu as usize].current);
        let state = &mut self.cpus[cpu as usize];
        state.current = Current::Idle;
        state.generation += 1;
        state.started = self.now;
        let to = crate::observer::Occupant::Idle;
        self.emit(Event::Switched { cpu, from, left, to });
    }

    fn occupy(&mut self, cpu: u32, current: Current) {
        let to = self.occupant(current);
        self.idle.remove(cpu);
        let state = &mut self.cpus[cpu as usize];
        state.current = current;
        state.started = self.now;
        state.generation += 1;
        let from = crate::observer::Occupant::Idle;
        self.emit(Event::Switched { cpu, from, left: Left::Slept, to });
        self.siblings_change(cpu);
        self.fast_path_sees_switch(cpu);
    }

    /// A task starts to run.
    fn start_task(&mut self, cpu: u32, slot: u32) {
        self.running += 1;
        self.occupy(cpu, Current::Task(slot));
        let moved = self.moving_costs(cpu, slot);
        let task = &mut self.tasks[slot as usize];
        task.place = Where::Cpu(cpu as u16);
        task.cpu = cpu as u16;
        task.ran_on = cpu as u16;
        task.run_interval = 0;
        task.left += moved;
        self.cpus[cpu as usize].works_from = self.now + self.setup.costs.switch.as_nanos();
        self.plan_cpu(cpu);
    }

    /// Extra work after a migration.
    fn moving_costs(&self, cpu: u32, slot: u32) -> u64 {
        let task = &self.tasks[slot as usize];
        let (from, shape) = (u32::from(task.ran_on), &self.setup.shape);
        let [l2, l3, node] = self.setup.costs.moved;
        let cost = match () {
            () if task.cpu_time == 0 || shape.share_l2(from, cpu) => return 0,
            () if shape.share_l3(from, cpu) => l2,
            () if shape.share_node(from, cpu) => l3,
            () => node,
        };
        cost.as_nanos()
    }

    fn start_scheduler(&mut self, cpu: u32) {
        self.occupy(cpu, Current::Scheduler);
        let switch = self.setup.costs.switch.as_nanos();
        self.begin_round(cpu, switch);
    }

    pub(super) fn go_idle(&mut self, cpu: u32) {
        if self.cpus[cpu as usize].online {
            self.idle.insert(cpu);
        }
        self.siblings_change(cpu);
        self.fast_path_sees_switch(cpu);
    }

    /// Updates the speed of the core's threads: each depends on whether a sibling is busy.
    fn siblings_change(&mut self, cpu: u32) {
        if self.setup.shape.smt == 1 {
            return;
        }
        let busy = |machine: &Self, cpu: u32| machine.cpus[cpu as usize].current != Current::Idle;
        for one in self.setup.shape.core_of(cpu) {
            let crowded =
                self.setup.shape.core_of(cpu).any(|other| other != one && busy(self, other));
            let full = self.setup.shape.speed(one);
            let percent = if crowded { u64::from(self.setup.costs.smt_percent) } else { 100 };
            let speed = (full * percent / 100).max(1);
            if speed != self.cpus[one as usize].speed {
                self.settle(one);
                self.cpus[one as usize].speed = speed;
                if one != cpu {
                    self.plan_cpu(one);
                }
            }
        }
    }
}
