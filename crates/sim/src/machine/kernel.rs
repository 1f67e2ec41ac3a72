// SPDX-License-Identifier: GPL-2.0-only

//! The backend's BPF program: what it does with tasks that wake up, wait, and are dispatched by the
//! policy.

use super::Machine;
use super::cpu::{Next, Prev};
use super::limits::{DRAIN, OWN_TASKS, OWN_TURN, RING};
use super::rules::{crowd_key, crowd_passing_key};
use super::state::{Current, Down, Kick, Stage, Where};
use crate::observer::{Event, Observer};
use crate::topology::Mask;
use crate::workload::weight_of_nice;
use pandemonium_engine::orders::Bounds;
use pandemonium_engine::task::{ENQ_WAKEUP, RawArrival, Tier};

/// The flag of an enqueue for a task that ran until then. No flag of the kernel says so.
pub(super) const LOST_CPU: u64 = 1 << 63;

/// A wakeup's properties.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wake {
    /// The waker's CPU, if there is one.
    pub by: Option<u32>,
    /// Whether the waker is about to sleep (`WF_SYNC`).
    pub sync: bool,
    /// Whether the wakee slept: a new task did not.
    pub slept: bool,
}

impl<W: Observer> Machine<W> {
    /// `ops.dispatch`: the CPU takes some decisions from the ring. Then it runs the scheduler
    /// process if anything is pending, else the first task of its own DSQ, else of the shared
    /// DSQ.
    pub(super) fn dispatch(&mut self, cpu: u32, prev: Prev) -> Next {
        // The kernel looks into the local DSQ before it calls `ops.dispatch`.
        if let Some(slot) = self.cpus[cpu as usize].local.take() {
            return Next::Task(slot);
        }
        self.cpus[cpu as usize].looked = self.now;
        let drained = self.down.len().min(DRAIN);
        for _ in 0..drained {
            if let Some(down) = self.down.pop_front() {
                let named = down.cpu;
                self.apply(down);
                // `patch_kick_named`: whatever became of the decision.
                named.iter().for_each(|&cpu| self.kick_cpu(cpu, Kick::Idle));
            }
        }
        let pending = self.is_pending();
        if pending && self.scheduler.stage == Stage::Queued {
            return Next::Scheduler;
        }
        let taken = match self.owes_shared(cpu) {
            true => self.take_shared(cpu).or_else(|| self.take_own(cpu)),
            false => self.take_own(cpu).or_else(|| self.take_shared(cpu)),
        };
        if let Some(slot) = taken {
            return Next::Task(slot);
        }
        // No decided task may use this CPU.
        if self.scheduler.pending > 0 && self.scheduler.stage == Stage::Queued {
            return Next::Scheduler;
        }
        match prev {
            Prev::Task(_) => Next::Keep,
            Prev::Scheduler if self.scheduler.pending > 0 || self.is_pending() => Next::Keep,
            _ => Next::Nothing { again: drained > 0 },
        }
    }

    /// `patch_owes_shared`: whether the shared DSQ comes before the CPU's own.
    fn owes_shared(&mut self, cpu: u32) -> bool {
        let state = &mut self.cpus[cpu as usize];
        state.looked_own += 1;
        state.looked_own > OWN_TASKS && self.now - state.looked_shared > OWN_TURN
    }

    fn take_own(&mut self, cpu: u32) -> Option<u32> {
        let queue = &mut self.queues[cpu as usize];
        let (key, slot) = Self::first_allowed(&self.tasks, queue, cpu)?;
        queue.remove(&key);
        Some(slot)
    }

    fn take_shared(&mut self, cpu: u32) -> Option<u32> {
        let state = &mut self.cpus[cpu as usize];
        (state.looked_shared, state.looked_own) = (self.now, 0);
        let (key, slot) = Self::first_allowed(&self.tasks, &self.shared, cpu)?;
        self.shared.remove(&key);
        Some(slot)
    }

    /// How many decided tasks wait in the shared DSQ; 0 if none of them may use this CPU.
    pub(super) fn queued_for(&self, cpu: u32) -> u32 {
        let fits = Self::first_allowed(&self.tasks, &self.shared, cpu).is_some();
        if fits { self.shared.len() as u32 } else { 0 }
    }

    fn first_allowed(
        tasks: &[super::Task],
        queue: &super::Queue,
        cpu: u32,
    ) -> Option<((u64, u64, u32), u32)> {
        let fits = |entry: &&(u64, u64, u32)| tasks[entry.2 as usize].mask.holds(cpu);
        queue.iter().find(fits).map(|&key| (key, key.2))
    }

    /// Whether the scheduler process has work.
    fn is_pending(&mut self) -> bool {
        core::mem::take(&mut self.scheduler.needed) || self.waits_for_round() || !self.up.is_empty()
    }

    /// Whether tasks that the policy holds need a round: `order_is_pending`. While only Batch tasks
    /// do, the CPU first runs those that are decided.
    fn waits_for_round(&self) -> bool {
        let due = |bounds: &Bounds| {
            bounds.batch_due.is_some_and(|due| self.now >= due.as_nanos()) || self.shared.is_empty()
        };
        self.scheduler.pending > 0
            && (self.scheduler.urgent || self.bounds.as_ref().is_none_or(due))
    }

    /// `dispatch_task`: puts the task of a decision into the DSQ that the decision names.
    fn apply(&mut self, down: Down) {
        let Some(slot) = self.slot_of(down.dispatch.pid) else {
            return self.emit(Event::Void(down.dispatch));
        };
        self.injects_lost_decision(slot);
        let task = &self.tasks[slot as usize];
        let (mask, home, is_queued) =
            (task.mask, u32::from(task.cpu), task.place == Where::UserSpace);
        let outdated = u64::from(task.tickets) > down.dispatch.ticket.0;
        let (slice, vtime) = (down.dispatch.slice.as_nanos(), down.dispatch.vtime.as_raw());
        let Some(cpu) = down.cpu else {
            // The backend does not check the ticket of a decision without a CPU.
            if is_queued {
                let vtime = self.key_in_crowd(down.dispatch.tier, slice, vtime);
                self.place(slot, None, slice, vtime);
            } else {
                self.emit(Event::Void(down.dispatch));
            }
            return self.kick_home(mask, home);
        };
        let may_use = mask.holds(cpu) && !self.injects_bounce(&down.dispatch, slot);
        let target = if may_use { cpu } else { home };
        self.counters.bounced += u64::from(!may_use);
        if outdated || !is_queued {
            self.counters.cancelled += u64::from(outdated);
            return self.emit(Event::Void(down.dispatch));
        }
        self.place(slot, Some(target), slice, vtime);
        self.kick_cpu(target, Kick::Idle);
    }

    /// The key of a task of this tier that is queued to the shared DSQ with this slice and key.
    pub(super) fn key_in_crowd(&self, tier: Tier, slice: u64, key: u64) -> u64 {
        let (queued, cpus) = (self.shared.len() as u32, self.online);
        match tier {
            Tier::Batch => crowd_key(key, self.now, slice, queued, cpus),
            Tier::Interactive => key,
            Tier::LatCritical => crowd_passing_key(key, queued, cpus),
        }
    }

    /// Puts the task of a decision into a DSQ.
    fn place(&mut self, slot: u32, cpu: Option<u32>, slice: u64, vtime: u64) {
        self.insert(slot, cpu, slice, vtime);
        let task = self.id(slot);
        self.emit(Event::Placed { task });
    }

    /// `kick_task_cpu`: kicks the task's last CPU, and an idle one if that is outside the mask.
    fn kick_home(&mut self, mask: Mask, home: u32) {
        self.kick_cpu(home, Kick::Idle);
        if !mask.holds(home)
            && let Some(other) = self.idle.find(0, |cpu| mask.holds(cpu))
        {
            self.idle.remove(other);
            self.kick_cpu(other, Kick::Idle);
        }
    }

    /// Puts a task into a DSQ: that of a CPU if it has not gone offline, or the shared one.
    pub(super) fn insert(&mut self, slot: u32, cpu: Option<u32>, slice: u64, vtime: u64) {
        self.order += 1;
        let order = self.order;
        let slice = u32::try_from(slice.max(1)).unwrap_or(u32::MAX);
        let cpu = cpu.filter(|cpu| !self.cpus[*cpu as usize].left);
        let task = self.task(slot);
        (task.slice, task.vtime, task.order) = (slice, vtime, order);
        let queue = match cpu {
            Some(cpu) => {
                task.place = Where::Queue(cpu as u16);
                &mut self.queues[cpu as usize]
            }
            None => {
                task.place = Where::Shared;
                &mut self.shared
            }
        };
        queue.insert((vtime, order, slot));
    }

    /// Dequeues a waiting task from wherever it waits.
    pub(super) fn withdraw(&mut self, slot: u32) {
        let task = &self.tasks[slot as usize];
        let key = (task.vtime, task.order, slot);
        match task.place {
            Where::Queue(cpu) => drop(self.queues[cpu as usize].remove(&key)),
            Where::Shared => drop(self.shared.remove(&key)),
            Where::Local(cpu) => self.cpus[cpu as usize].local = None,
            _ => {}
        }
        let task = self.id(slot);
        self.emit(Event::Withdrawn { task });
    }

    /// `can_direct_dispatch`: only if the task overtakes no queued one.
    fn is_free(&self, cpu: u32) -> bool {
        self.shared.is_empty() && self.queues[cpu as usize].is_empty()
    }

    /// A task becomes runnable: `try_to_wake_up`, with the backend's `select_cpu` and `enqueue`.
    pub(super) fn wake(&mut self, slot: u32, how: Wake) {
        let now = self.now;
        let task = self.task(slot);
        (task.awake, task.since) = (0, now);
        let (mask, home) = (task.mask, u32::from(task.cpu));
        let id = self.id(slot);
        self.emit(Event::Woke { task: id });
        if !self.is_loaded() {
            self.queue_without_us(slot);
            return;
        }
        let chosen = if mask.count() > 1 { self.select_cpu(slot, how) } else { (home, false) };
        self.task(slot).cpu = chosen.0 as u16;
        let direct = chosen.1 || mask.count() == 1 && self.enqueue_unselected(slot);
        if !direct {
            let flags = if how.slept { ENQ_WAKEUP } else { 0 };
            self.queue_up(slot, flags);
        }
        let cpu = u32::from(self.tasks[slot as usize].cpu);
        if self.cpus[cpu as usize].current == Current::Idle {
            self.kick_cpu(cpu, Kick::Idle);
        }
        self.fast_path_sees_wakeup(slot, how);
    }

    /// `rustland_select_cpu`: the CPU, and whether the task was dispatched there directly.
    fn select_cpu(&mut self, slot: u32, how: Wake) -> (u32, bool) {
        let task = &self.tasks[slot as usize];
        let (mask, mut home) = (task.mask, u32::from(task.cpu));
        if !mask.holds(home) {
            let near = how.by.filter(|&cpu| mask.holds(cpu));
            home = near.or(mask.first()).unwrap_or(home);
        }
        if !self.setup.builtin_idle || mask.count() > 1 && self.wakes_none(slot) {
            return (home, false);
        }
        let Some(cpu) = self.pick_idle(mask, home, how.by, how.sync) else {
            return (self.steer(slot, home, how).unwrap_or(home), false);
        };
        let direct = self.is_free(cpu);
        if direct {
            self.place_directly(slot, cpu);
        }
        (cpu, direct)
    }

    fn place_directly(&mut self, slot: u32, cpu: u32) {
        let (slice, vtime) = (self.setup.kernel_slice.as_nanos(), self.tasks[slot as usize].vtime);
        self.insert(slot, Some(cpu), slice, vtime);
        self.counters.direct += 1;
        let task = self.id(slot);
        self.emit(Event::Direct { task, cpu });
    }

    /// `rustland_enqueue` for a wakeup without `select_cpu`: the task is bound to one CPU. Returns
    /// whether it was dispatched directly.
    fn enqueue_unselected(&mut self, slot: u32) -> bool {
        let task = &self.tasks[slot as usize];
        let cpu = u32::from(task.cpu);
        let bound_kthread = self.workload.groups[task.group as usize].kthread;
        let idle = !bound_kthread && self.setup.builtin_idle && self.idle.remove(cpu);
        if bound_kthread || idle && self.is_free(cpu) {
            self.place_directly(slot, cpu);
            self.kick_cpu(cpu, Kick::Idle);
            return true;
        }
        if idle {
            self.kick_cpu(cpu, Kick::Idle);
        }
        false
    }

    /// `rustland_enqueue` for a task that has not slept: it lost its CPU, or was moved.
    pub(super) fn enqueue_requeued(&mut self, slot: u32, lost_cpu: bool) {
        let task = &self.tasks[slot as usize];
        if !self.is_loaded() {
            self.queue_without_us(slot);
        } else if self.workload.groups[task.group as usize].kthread && task.mask.count() == 1 {
            let cpu = u32::from(task.cpu);
            self.place_directly(slot, cpu);
        } else {
            self.queue_up(slot, if lost_cpu { LOST_CPU } else { 0 });
        }
    }

    /// `queue_task_to_userspace`.
    pub(super) fn queue_up(&mut self, slot: u32, flags: u64) {
        if self.execute_order(slot, flags) {
            return;
        }
        let task = self.task(slot);
        task.tickets += 1;
        let (ticket, ran) = (task.tickets, task.run_interval);
        if self.scheduler.is_stalled {
            return self.queue_by_time(slot, ran, flags);
        }
        self.note_message(slot, ticket);
        if self.up.len() >= RING || self.injects_full_ring(slot) {
            self.counters.congested += 1;
            return self.queue_by_time(slot, ran, flags);
        }
        self.task(slot).place = Where::UserSpace;
        self.send_message(slot, flags);
        let (task, ticket) = (self.id(slot), u64::from(ticket));
        self.emit(Event::Queued { task, ticket });
    }

    /// Puts a message about the task into the ring to user space.
    pub(super) fn send_message(&mut self, slot: u32, flags: u64) {
        let task = &self.tasks[slot as usize];
        let raw = RawArrival {
            pid: task.pid.as_raw(),
            cpu: i32::from(task.cpu),
            nr_cpus_allowed: u64::from(task.mask.count()),
            flags: flags & !LOST_CPU,
            start_ts: task.stopped.saturating_sub(task.run_interval),
            stop_ts: task.stopped,
            exec_runtime: task.awake,
            weight: u64::from(weight_of_nice(task.nice)),
            enq_cnt: task.tickets.into(),
            comm: [0; pandemonium_engine::task::COMM_LEN],
        };
        let group = task.group;
        if let Ok(mut arrival) = raw.decode() {
            arrival.comm = self.workload.groups[group as usize].comm;
            self.up.push_back(arrival);
        }
    }

    /// `pick_idle_cpu`: the idle CPU nearest to `home`, which loses its idle mark.
    pub(super) fn pick_idle(
        &mut self,
        mask: Mask,
        home: u32,
        by: Option<u32>,
        sync: bool,
    ) -> Option<u32> {
        if mask.count() == 1 {
            return self.idle.remove(home).then_some(home);
        }
        let shape = self.setup.shape;
        let waker = by.filter(|&cpu| mask.holds(cpu));
        let faster = waker.filter(|&cpu| shape.speed(cpu) > shape.speed(home));
        let home = match faster {
            Some(cpu) => {
                let keep = shape.share_l3(cpu, home) && self.core_is_idle(home);
                if keep && mask.holds(home) && self.idle.remove(home) {
                    return Some(home);
                }
                cpu
            }
            None => home,
        };
        if let (true, Some(waker)) = (sync, waker) {
            if shape.share_l3(waker, home) && self.idle.remove(home) {
                return Some(home);
            }
            if !self.idle.is_empty() {
                return Some(waker);
            }
        }
        let found = self.nearest_idle(mask, home)?;
        self.idle.remove(found);
        Some(found)
    }

    fn core_is_idle(&self, cpu: u32) -> bool {
        self.setup.shape.core_of(cpu).all(|other| self.idle.holds(other))
    }

    /// Idle cores first, then idle threads; each time the nearest one.
    fn nearest_idle(&self, mask: Mask, home: u32) -> Option<u32> {
        let shape = &self.setup.shape;
        let fits = |cpu: u32| mask.holds(cpu);
        let passes: &[bool] = if shape.smt > 1 { &[true, false] } else { &[false] };
        for &whole_core in passes {
            let good = |cpu: u32| fits(cpu) && (!whole_core || self.core_is_idle(cpu));
            if self.idle.holds(home) && good(home) {
                return Some(home);
            }
            let found = self
                .idle
                .find(home, |cpu| shape.share_l3(cpu, home) && good(cpu))
                .or_else(|| self.idle.find(home, |cpu| shape.share_node(cpu, home) && good(cpu)))
                .or_else(|| self.idle.find(home, good));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// While no scheduler is loaded, the modelled kernel runs tasks in the order of arrival.
    pub(super) fn queue_without_us(&mut self, slot: u32) {
        let slice = self.setup.costs.tick.as_nanos();
        let vtime = self.now;
        self.insert(slot, None, slice, vtime);
        let (mask, home) = {
            let task = &self.tasks[slot as usize];
            (task.mask, u32::from(task.cpu))
        };
        if let Some(cpu) = self.idle.find(home, |cpu| mask.holds(cpu)) {
            self.idle.remove(cpu);
            self.kick_cpu(cpu, Kick::Idle);
        }
    }

    /// Whether the scheduler is loaded.
    pub(super) fn is_loaded(&self) -> bool {
        self.scheduler.stage != Stage::Unloaded
    }
}
