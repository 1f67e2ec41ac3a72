// SPDX-License-Identifier: GPL-2.0-only

//! Standing orders: `src/bpf/backend_patches/orders.h`. The verdict is the engine's.

use super::Machine;
use super::kernel::{LOST_CPU, Wake};
use super::limits::{BATCH_TIME, ORDER_LOOK, ORDER_SCAN, RING};
use super::state::{Cpu, Current, Kick, Where};
use crate::observer::{Event, Observer};
use core::cmp::Ordering;
use pandemonium_engine::orders::{self, Bounds, Event as Cause, Posted, Verdict, View};
use pandemonium_engine::task::{Dispatch, ENQ_WAKEUP, Pid, Tier};
use pandemonium_engine::time::{Span, Stamp, Vtime};

/// What the backend keeps of a task: `struct order_slot`.
#[derive(Clone, Copy, Default)]
pub(super) struct OrderSlot {
    /// The number of the last message, and of the message that the order answers.
    ticket: u32,
    answers: u32,
    /// The nice value at the last message: another one voids the order.
    nice: i8,
    tier: Tier,
    until: u64,
    slice: u32,
    key_offset: u32,
    pub executed: u32,
    executed_max: u32,
    epoch: u32,
    /// The rest of the slice when an order preempted the task; zero if none did.
    rest: u32,
    pub executed_at: u64,
    pub preempted: Option<Pid>,
    /// Whether another order has been asked for.
    asked: bool,
    /// When the task queued its last message or used up a slice.
    noted: u64,
}

impl<W: Observer> Machine<W> {
    /// Executes the task's order, or lets a preempted task go on: `order_execute`. Returns whether
    /// the task is in a DSQ now.
    pub(super) fn execute_order(&mut self, slot: u32, flags: u64) -> bool {
        let Some(bounds) = self.bounds else { return false };
        let rest = core::mem::take(&mut self.order_slot(slot).rest);
        let cpu = u32::from(self.tasks[slot as usize].cpu);
        let (rest, posted) = (Span::from_nanos(rest.into()), self.posted(slot));
        let event = if flags & ENQ_WAKEUP != 0 {
            Cause::Wakeup(posted)
        } else {
            Cause::Requeue { rest, order: posted.filter(|_| flags & LOST_CPU != 0) }
        };
        let verdict = orders::verdict(&self.view_of(slot, cpu, event, &bounds));
        self.cpus[cpu as usize].handed_to = None;
        let order = *self.order_slot(slot);
        match verdict {
            Verdict::Ask => return false,
            Verdict::Resume => {
                let key = self.key_of_rest(slot, &order);
                self.insert(slot, None, rest.as_nanos(), key);
                let task = self.id(slot);
                self.emit(Event::Resumed { task });
                return true;
            }
            Verdict::Preempt => self.preempt_by_order(slot, cpu, &order),
            Verdict::HandOver => {
                self.order_slot(slot).preempted = None;
                self.place_locally(slot, cpu, &order);
            }
            Verdict::Again => {
                let key = self.now + u64::from(order.key_offset);
                let key = self.key_in_crowd(Tier::Batch, order.slice.into(), key);
                self.insert(slot, None, order.slice.into(), key);
            }
            Verdict::Queue | Verdict::QueueHere => {
                self.order_slot(slot).preempted = None;
                let (slice, key) = (order.slice.into(), self.now + u64::from(order.key_offset));
                match verdict {
                    Verdict::QueueHere => self.insert(slot, Some(cpu), slice, key),
                    _ => self.insert(slot, None, slice, self.key_in_crowd(order.tier, slice, key)),
                }
                if self.cpus[cpu as usize].current == Current::Idle {
                    self.kick_cpu(cpu, Kick::Idle);
                }
            }
        }
        let now = self.now;
        let order = self.order_slot(slot);
        order.executed = order.executed.wrapping_add(1);
        order.executed_at = now;
        let passes_batch = u32::from(bounds.batch_due.is_some());
        self.order_deficit = self.order_deficit.wrapping_add(passes_batch);
        self.counters.orders += 1;
        self.task(slot).tickets += 1;
        let (task, at_once) = (self.id(slot), verdict == Verdict::Preempt);
        self.emit(Event::Ordered { task, cpu, at_once });
        if flags & ENQ_WAKEUP != 0
            && posted.is_some_and(|it| it.is_ending(Stamp::from_nanos(now), bounds.epoch))
        {
            self.ask_for_another_order(slot, flags);
        }
        true
    }

    /// Sends a message about a task that is not queued to user space, once for each order. The
    /// decision that answers it has a new order: `order_note_renewal`.
    fn ask_for_another_order(&mut self, slot: u32, flags: u64) {
        let is_free = !self.scheduler.is_stalled && self.up.len() < RING;
        if self.order_slot(slot).asked || !is_free {
            return;
        }
        self.task(slot).tickets += 1;
        let (now, ticket) = (self.now, self.tasks[slot as usize].tickets);
        let order = self.order_slot(slot);
        (order.ticket, order.answers, order.asked) = (ticket, ticket, true);
        order.noted = now;
        self.send_message(slot, flags);
    }

    /// Preempts what the CPU runs, and remembers the rest of its slice.
    fn preempt_by_order(&mut self, slot: u32, cpu: u32, order: &OrderSlot) {
        let preempted = match self.cpus[cpu as usize].current {
            Current::Task(victim) => {
                let started = self.cpus[cpu as usize].started;
                let ran = self.now.saturating_sub(started);
                let task = &self.tasks[victim as usize];
                let rest = task.slice.saturating_sub(u32::try_from(ran).unwrap_or(u32::MAX));
                let pid = task.pid;
                let goes_on = match task.tier {
                    None => false,
                    Some(Tier::Batch) => true,
                    tier => self.bounds.is_some_and(|bounds| bounds.waiting < tier),
                };
                self.order_slot(victim).rest = if goes_on { rest } else { 0 };
                Some(pid)
            }
            Current::Idle | Current::Scheduler => None,
        };
        self.order_slot(slot).preempted = preempted;
        let now = self.now;
        self.cpus[cpu as usize].order_kicks.note(now);
        self.place_locally(slot, cpu, order);
        self.kick_cpu(cpu, Kick::Preempt);
    }

    /// The key of a task that goes on with the rest of its slice: `order_key_of_rest`.
    fn key_of_rest(&self, slot: u32, order: &OrderSlot) -> u64 {
        match order.tier {
            Tier::Batch => self.tasks[slot as usize].vtime,
            _ => self.now + u64::from(order.key_offset),
        }
    }

    /// Puts the task into the CPU's local DSQ.
    fn place_locally(&mut self, slot: u32, cpu: u32, order: &OrderSlot) {
        let now = self.now;
        let task = self.task(slot);
        task.vtime = now + u64::from(order.key_offset);
        task.slice = order.slice;
        task.place = Where::Local(cpu as u16);
        self.cpus[cpu as usize].local = Some(slot);
    }

    /// The task's order, if it answers the last message.
    fn posted(&self, slot: u32) -> Option<Posted> {
        let order = self.order_slots.get(slot as usize)?;
        let left = order.executed_max.wrapping_sub(order.executed) as i32;
        let is_valid = order.answers == order.ticket
            && order.answers != 0
            && order.nice == self.tasks[slot as usize].nice;
        is_valid.then_some(Posted {
            tier: order.tier,
            key_offset: Span::from_nanos(order.key_offset.into()),
            until: Stamp::from_nanos(order.until),
            left: left.max(0) as u32,
            epoch: order.epoch,
        })
    }

    fn view_of(&self, slot: u32, cpu: u32, event: Cause, bounds: &Bounds) -> View {
        let is_wakee = Some(self.tasks[slot as usize].pid);
        let state = &self.cpus[cpu as usize];
        let deficit_left = self.deficit_max.wrapping_sub(self.order_deficit) as i32;
        let key = match state.current {
            Current::Task(slot) => self.tasks[slot as usize].vtime,
            Current::Idle | Current::Scheduler => 0,
        };
        View {
            now: Stamp::from_nanos(self.now),
            event,
            epoch: bounds.epoch,
            waiting: bounds.waiting,
            batch_due: bounds.batch_due,
            deficit_left: deficit_left.max(0) as u32,
            occupant: self.order_occupant(cpu),
            occupant_key: Vtime::from_raw(key),
            occupied: state.local.is_some()
                || state.current == Current::Idle && !self.queues[cpu as usize].is_empty(),
            limited: !state.order_kicks.allow_another(self.now),
            decides: state.current == Current::Scheduler,
            waker_sleeps: state.handed_to == is_wakee,
            looked: self.now.saturating_sub(state.looked) < ORDER_LOOK && self.up.is_empty(),
        }
    }

    fn order_occupant(&self, cpu: u32) -> orders::Occupant {
        let state = &self.cpus[cpu as usize];
        match state.current {
            _ if !state.online => orders::Occupant::Foreign,
            Current::Idle => orders::Occupant::Idle,
            Current::Scheduler => orders::Occupant::Foreign,
            Current::Task(slot) => orders::Occupant::Task(self.tasks[slot as usize].tier()),
        }
    }

    /// The busy CPU on which a wakee is to be enqueued: `order_steer`.
    pub(super) fn steer(&mut self, slot: u32, home: u32, how: Wake) -> Option<u32> {
        self.bounds?;
        let order = self.posted(slot).filter(|order| order.tier > Tier::Batch)?;
        let mask = self.tasks[slot as usize].mask;
        let here = how.by.unwrap_or(home);
        if how.sync && mask.holds(here) && self.cpus[here as usize].local.is_none() {
            self.cpus[here as usize].handed_to = Some(self.tasks[slot as usize].pid);
            return Some(here);
        }
        let runs = |fit| {
            let (order, machine) = (&order, &*self);
            move |cpu: &u32| mask.holds(*cpu) && machine.fit_of(*cpu, order) == Some(fit)
        };
        if runs(Ordering::Greater)(&here) {
            return Some(here);
        }
        let cpus = self.setup.shape.cpus;
        let near = || (0..ORDER_SCAN.min(cpus)).map(|step| (home + step) % cpus);
        let lower = near().find(runs(Ordering::Greater));
        lower.or_else(|| near().find(runs(Ordering::Equal)))
    }

    /// How the order's tier compares with what the CPU runs; equal only if the running task has a
    /// later key. `None` if the CPU does not suit the wakee: `order_fit_of`.
    fn fit_of(&self, cpu: u32, order: &Posted) -> Option<Ordering> {
        let state = &self.cpus[cpu as usize];
        let occupant = self.order_occupant(cpu);
        // A CPU that idles here was just chosen for another wakee.
        if state.local.is_some()
            || occupant == orders::Occupant::Idle
            || !state.order_kicks.allow_another(self.now)
        {
            return None;
        }
        let Current::Task(running) = state.current else { return None };
        let key = self.now + order.key_offset.as_nanos();
        let fit = orders::Occupant::Task(order.tier).cmp(&occupant);
        let is_later = self.tasks[running as usize].vtime > key;
        (fit.is_gt() || fit.is_eq() && is_later).then_some(fit)
    }

    /// Notes a message to user space: `order_note_message`.
    pub(super) fn note_message(&mut self, slot: u32, ticket: u32) {
        let (now, nice) = (self.now, self.tasks[slot as usize].nice);
        let order = self.order_slot(slot);
        (order.ticket, order.answers, order.nice, order.rest) = (ticket, 0, nice, 0);
        (order.asked, order.noted) = (false, now);
    }

    /// Notes a decision, and its order.
    pub(super) fn post(&mut self, dispatch: &Dispatch) {
        let Some(slot) = self.slot_of(dispatch.pid) else { return };
        let (begun, epoch) = (self.begun, self.bounds.map_or(0, |bounds| bounds.epoch));
        let order = self.order_slot(slot);
        if u64::from(order.ticket) != dispatch.ticket.0 {
            return;
        }
        // An order that is renewed was valid until now.
        (order.answers, order.asked) = (0, false);
        if dispatch.order.is_some() && self.injects_lost_order(slot) {
            return;
        }
        let order = self.order_slot(slot);
        order.tier = dispatch.tier;
        let short = |ns: u64| u32::try_from(ns).unwrap_or(u32::MAX);
        order.slice = short(dispatch.slice.as_nanos());
        let offset = dispatch.vtime.as_raw().saturating_sub(begun.as_nanos());
        order.key_offset = short(dispatch.order.map_or(offset, |with| with.key_offset.as_nanos()));
        if let Some(with) = dispatch.order {
            order.executed_max = order.executed.wrapping_add(with.credit);
            order.until = (begun + with.life).as_nanos();
            order.epoch = epoch;
            order.answers = order.ticket;
        }
    }

    /// No other task wants the CPU of a Batch task: `order_renew`. Returns its next slice.
    pub(super) fn renewed_slice(&mut self, slot: u32) -> u64 {
        let order = *self.order_slot(slot);
        let known = self.bounds.is_some() && order.slice > 0 && order.ticket > 0;
        if !known || self.tasks[slot as usize].tier != Some(Tier::Batch) {
            return self.setup.kernel_slice.as_nanos();
        }
        let now = self.now;
        self.order_slot(slot).noted = now;
        self.task(slot).vtime = now + u64::from(order.key_offset);
        order.slice.into()
    }

    /// Whether a wakee goes to a busy CPU if user space finds one: `patch_wakes_none`.
    pub(super) fn wakes_none(&self, slot: u32) -> bool {
        let is_busy = |cpu: &Cpu| matches!(cpu.current, Current::Task(_));
        let Some(order) = self.order_slots.get(slot as usize) else { return false };
        !self.settings.wakes_idle
            && self.tasks[slot as usize].tier == Some(Tier::Batch)
            && self.now - order.noted < BATCH_TIME
            && self.cpus.iter().any(is_busy)
    }

    pub(super) fn order_slot(&mut self, slot: u32) -> &mut OrderSlot {
        let index = slot as usize;
        if index >= self.order_slots.len() {
            self.order_slots.resize(index + 1, OrderSlot::default());
        }
        &mut self.order_slots[index]
    }
}
