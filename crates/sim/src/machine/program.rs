// SPDX-License-Identifier: GPL-2.0-only

//! The life of tasks: they start, run their program, and exit.

use super::cpu::Prev;
use super::kernel::Wake;
use super::orders::OrderSlot;
use super::state::{Task, Where};
use super::{EPOCH, Machine, NO_SLOT, PID_FIRST, Plan};
use crate::observer::{Event, Left, Observer};
use crate::random::Random;
use crate::topology::Mask;
use crate::workload::{Place, Step, weight_of_nice};
use alloc::collections::VecDeque;
use pandemonium_engine::task::Pid;
use pandemonium_engine::time::Span;

/// Steps that a task may take without working or sleeping: a program without either would loop
/// forever.
const STEPS_MAX: u32 = 64;

impl<W: Observer> Machine<W> {
    /// Starts a row of a group, and queues the start of the next one.
    pub(super) fn start_row(&mut self, group: u32, row: u32) {
        let of = &self.workload.groups[group as usize];
        let (seats, spread, rows) = (of.row, of.spread.as_nanos(), of.rows);
        if row + 1 < rows {
            self.event_queue.add(self.now + spread, Plan::StartRow { group, row: row + 1 });
        }
        // The last task of a row first, so that each wakee exists before its waker runs.
        let first = self.slots_for(seats);
        for seat in (0..seats).rev() {
            self.create_task(first + seat, group, seat, None, None);
        }
    }

    /// Adjacent slots for a row.
    fn slots_for(&mut self, seats: u32) -> u32 {
        if let (1, Some(slot)) = (seats, self.vacant.pop()) {
            return slot;
        }
        let first = self.tasks.len() as u32;
        for slot in first..first + seats {
            self.tasks.push(Task::vacant(slot));
        }
        first
    }

    /// Creates a task in `slot`, with `pid` if given, which must be free. `by` is its parent's CPU,
    /// if it has a parent.
    pub(super) fn create_task(
        &mut self,
        slot: u32,
        group: u32,
        seat: u32,
        pid: Option<Pid>,
        by: Option<u32>,
    ) {
        let cpus = self.setup.shape.cpus;
        let pid = pid.or_else(|| self.free_pid());
        let Some(pid) = pid else { return };
        self.by_pid[pid.as_raw() as usize] = slot;
        let index = self.created[group as usize];
        self.created[group as usize] += 1;
        let of = &self.workload.groups[group as usize];
        let mask = match of.place {
            Place::Anywhere => Mask::all(cpus),
            Place::Within(mask) => mask,
            Place::OneEach => Mask::only(index % cpus),
        };
        let (nice, comm) = (of.nice, of.comm);
        let mask = self.with_an_online_cpu(mask);
        let near = by.unwrap_or((mask.first().unwrap_or(0) + index) % cpus);
        let home = self.home_in(mask, near);
        // Seeded by the task's number in its group, so that its draws do not depend on the policy.
        let random = Random::derive(self.setup.seed, u64::from(group) << 32 | u64::from(index));
        let generation = self.tasks[slot as usize].generation + 1;
        self.tasks[slot as usize] = Task {
            random,
            pid,
            mask,
            generation,
            period: self.now,
            group: group as u16,
            seat: seat as u16,
            cpu: home as u16,
            ran_on: home as u16,
            nice,
            ..Task::vacant(slot)
        };
        *self.order_slot(slot) = OrderSlot::default();
        let task = self.id(slot);
        self.emit(Event::Forked { task, comm, weight: weight_of_nice(nice), mask });
        // If the program starts with sleep, the task becomes runnable only after that sleep.
        if self.first_sleep(slot) {
            return;
        }
        self.wake(slot, Wake { by, sync: false, slept: false });
    }

    fn first_sleep(&mut self, slot: u32) -> bool {
        let task = &self.tasks[slot as usize];
        let of = &self.workload.groups[task.group as usize];
        match of.program(u32::from(task.seat)).first() {
            Some(Step::Sleep(_) | Step::Wait) => {
                self.next_steps(slot, None);
                true
            }
            _ => false,
        }
    }

    /// The running task forks a child, which belongs to the next group.
    fn fork(&mut self, parent: u32, cpu: Option<u32>) {
        let of = &self.tasks[parent as usize];
        let (group, pid) = (u32::from(of.group) + 1, of.pid);
        let room = self.workload.groups.get(group as usize).filter(|next| next.forked);
        if room.is_none_or(|next| self.children[group as usize] >= next.rows) {
            return;
        }
        let slot = self.slots_for(1);
        self.children[group as usize] += 1;
        self.parents.insert(slot, pid);
        // The child's `Step::End` ends the measurement that the parent started.
        let head = self.head(parent);
        if let Some(begun) = self.marks.get_mut(&head).and_then(VecDeque::pop_front) {
            self.marks.insert(slot, VecDeque::from([begun]));
        }
        self.create_task(slot, group, 0, None, cpu);
    }

    /// Wakes the parent of a forked task that has exited, if the parent waits for it.
    fn tell_parent(&mut self, slot: u32, group: u32, by: Option<u32>) {
        let Some(parent) = self.parents.remove(&slot) else { return };
        self.children[group as usize] -= 1;
        let Some(parent) = self.slot_of(parent) else { return };
        if self.tasks[parent as usize].place == Where::Blocked {
            self.wake(parent, Wake { by, sync: false, slept: true });
        } else {
            let pending_wakes = &mut self.task(parent).pending_wakes;
            *pending_wakes = pending_wakes.saturating_add(1);
        }
    }

    fn free_pid(&mut self) -> Option<Pid> {
        for _ in 0..self.by_pid.len() {
            let candidate = self.next_pid;
            self.next_pid += 1;
            if self.next_pid >= self.by_pid.len() {
                self.next_pid = PID_FIRST as usize;
            }
            if self.by_pid[candidate] == NO_SLOT {
                return Pid::new(candidate as i32);
            }
        }
        None
    }

    /// The running task on `cpu` has finished its work and continues its program.
    pub(super) fn advance(&mut self, cpu: u32, slot: u32) {
        if let Some(left) = self.next_steps(slot, Some(cpu)) {
            if left == Left::Slept {
                self.task(slot).voluntary += 1;
            }
            self.reschedule(cpu, Prev::None);
        }
    }

    /// Runs the program until the task works, sleeps or exits. `Some` if it leaves its CPU.
    fn next_steps(&mut self, slot: u32, cpu: Option<u32>) -> Option<Left> {
        for _ in 0..STEPS_MAX {
            let task = &mut self.tasks[slot as usize];
            let of = &self.workload.groups[task.group as usize];
            let program = of.program(u32::from(task.seat));
            let step = *program.get(usize::from(task.step))?;
            let next = usize::from(task.step) + 1;
            task.step = if next < program.len() { next as u8 } else { of.once };
            match step {
                Step::Work(draw) | Step::Exec(draw) => {
                    task.left += draw.draw(&mut task.random);
                    return None;
                }
                Step::Sleep(draw) => {
                    let until = self.now + draw.draw(&mut task.random).max(1);
                    return Some(self.sleep_until(slot, cpu, until));
                }
                Step::Period => {
                    if let Some(until) = self.next_period(slot) {
                        return Some(self.sleep_until(slot, cpu, until));
                    }
                }
                Step::Wait if task.pending_wakes > 0 => task.pending_wakes -= 1,
                Step::Wait => return Some(self.sleep(slot, cpu, Where::Blocked)),
                Step::Wake { offset, sync } => {
                    self.wake_neighbour(slot, offset, cpu, sync);
                    self.task(slot).left += self.setup.costs.wake.as_nanos();
                    return None;
                }
                Step::Fork => self.fork(slot, cpu),
                Step::Begin => self.begin(slot),
                Step::End => self.measure(slot),
                Step::Exit => {
                    self.end(slot, true);
                    return Some(Left::Gone);
                }
            }
        }
        // A program that neither works nor sleeps gets some work, so that time passes.
        self.task(slot).left += 1_000;
        None
    }

    /// The slot of the row's first task.
    fn head(&self, slot: u32) -> u32 {
        slot - u32::from(self.tasks[slot as usize].seat)
    }

    /// Starts a measurement: at the period's start, however late the task runs, or now if its
    /// group has no period.
    fn begin(&mut self, slot: u32) {
        let task = &self.tasks[slot as usize];
        let periodic = self.workload.groups[task.group as usize].period.high > Span::ZERO;
        let begins = if periodic { task.period } else { self.now };
        let head = self.head(slot);
        self.marks.entry(head).or_default().push_back(begins);
    }

    /// The start of the next period, or `None` if it has begun already. A period that was missed
    /// altogether is skipped. A task with a deadline continues with the next whole period after a
    /// late one, like a game that does not draw a frame which cannot be shown.
    fn next_period(&mut self, slot: u32) -> Option<u64> {
        let task = &mut self.tasks[slot as usize];
        let of = &self.workload.groups[task.group as usize];
        let (length, now) = (of.period.draw(&mut task.random).max(1), self.now);
        task.period = match of.deadline {
            Some(_) => {
                task.period + now.saturating_sub(task.period).div_ceil(length).max(1) * length
            }
            None => (task.period + length).max(now.saturating_sub(length)),
        };
        (task.period > now).then_some(task.period)
    }

    fn measure(&mut self, slot: u32) {
        let head = self.head(slot);
        let Some(begun) = self.marks.get_mut(&head).and_then(|row| row.pop_front()) else { return };
        let took = Span::from_nanos(self.now.saturating_sub(begun));
        let group = u32::from(self.tasks[slot as usize].group);
        let deadline = self.workload.groups[group as usize].deadline;
        let missed = deadline.is_some_and(|deadline| took > deadline);
        self.emit(Event::Measured { group, took, missed });
    }

    fn sleep_until(&mut self, slot: u32, cpu: Option<u32>, until: u64) -> Left {
        let task = self.task(slot);
        task.generation += 1;
        let generation = task.generation;
        self.event_queue.add(until, Plan::Timer { task: slot, generation });
        self.sleep(slot, cpu, Where::Timer)
    }

    fn sleep(&mut self, slot: u32, cpu: Option<u32>, place: Where) -> Left {
        if let Some(cpu) = cpu {
            self.release(cpu, slot, Left::Slept);
        }
        self.task(slot).place = place;
        Left::Slept
    }

    fn wake_neighbour(&mut self, slot: u32, offset: i16, by: Option<u32>, sync: bool) {
        let group = self.tasks[slot as usize].group;
        let target = slot.wrapping_add_signed(i32::from(offset));
        let Some(task) = self.tasks.get_mut(target as usize) else { return };
        if task.group != group {
            return;
        }
        if task.place == Where::Blocked {
            self.wake(target, Wake { by, sync, slept: true });
        } else {
            task.pending_wakes = task.pending_wakes.saturating_add(1);
        }
    }

    /// A task's timer fires.
    pub(super) fn timer(&mut self, slot: u32, generation: u32) {
        let task = &self.tasks[slot as usize];
        if task.place == Where::Timer && task.generation == generation {
            let by = Some(u32::from(task.ran_on));
            self.wake(slot, Wake { by, sync: false, slept: true });
        }
    }

    /// A task exits, in whatever state it is. With `again`, a new task may replace it.
    pub(super) fn end(&mut self, slot: u32, again: bool) {
        let (place, pid, group) = {
            let task = &self.tasks[slot as usize];
            (task.place, task.pid, u32::from(task.group))
        };
        match place {
            Where::Vacant => return,
            Where::Cpu(cpu) => self.release(u32::from(cpu), slot, Left::Gone),
            _ if self.tasks[slot as usize].waits() => self.withdraw(slot),
            _ => {}
        }
        self.task(slot).place = Where::Vacant;
        self.task(slot).generation += 1;
        self.by_pid[pid.as_raw() as usize] = NO_SLOT;
        let task = self.id(slot);
        self.emit(Event::Died { task });
        if self.setup.tells_exits && self.is_loaded() {
            self.gone.push(pid);
        }
        self.tell_parent(slot, group, place.cpu());
        let of = &self.workload.groups[group as usize];
        let stopped = of.stop.is_some_and(|stop| self.now >= EPOCH + stop.as_nanos());
        if of.row > 1 {
            return;
        }
        if again && of.again && !stopped {
            self.create_task(slot, group, 0, None, None);
        } else {
            self.vacant.push(slot);
        }
    }

    /// Ends all tasks of a group.
    pub(super) fn end_group(&mut self, group: u32) {
        for slot in 0..self.tasks.len() as u32 {
            let task = &self.tasks[slot as usize];
            if u32::from(task.group) != group || task.place == Where::Vacant {
                continue;
            }
            let cpu = task.place.cpu();
            self.end(slot, false);
            if let Some(cpu) = cpu {
                self.reschedule(cpu, Prev::None);
            }
        }
    }
}

impl Task {
    pub(super) fn vacant(slot: u32) -> Task {
        Task {
            random: Random::new(u64::from(slot)),
            left: 0,
            period: 0,
            stopped: 0,
            run_interval: 0,
            awake: 0,
            cpu_time: 0,
            vtime: 0,
            slice: 0,
            order: 0,
            since: 0,
            woken: 0,
            slept: 0,
            mask: Mask::Bits(0),
            generation: 0,
            pid: Pid::default(),
            tickets: 0,
            wakeups: 0,
            voluntary: 0,
            involuntary: 0,
            place: Where::Vacant,
            group: 0,
            seat: 0,
            step: 0,
            cpu: 0,
            ran_on: 0,
            pending_wakes: 0,
            kicked: -1,
            handed_off: false,
            handoffs: 0,
            nice: 0,
            tier: None,
        }
    }
}
