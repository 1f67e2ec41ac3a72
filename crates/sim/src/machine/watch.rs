// SPDX-License-Identifier: GPL-2.0-only

//! The fast path's timers, one per CPU: `watch.bpf.h`. A timer is armed while a task waits. Its
//! callback ends a slice that expires between two ticks, and kicks again for a task that still
//! waits after earlier kicks.

use super::fast_path::rank;
use super::limits::{AGAIN, AGAIN_MAX, KICK_INTERVAL, SOON, WATCHED};
use super::rules::Need;
use super::state::{Current, Where};
use super::{Machine, Plan};
use crate::observer::Observer;
use pandemonium_engine::task::{Pid, Tier};

/// A waiting task that a CPU watches.
#[derive(Clone, Copy)]
pub(super) struct Waiter {
    pub pid: Pid,
    /// When it became runnable.
    pub since: u64,
    /// When to kick for it.
    pub due: u64,
    pub kicks: u32,
    /// As in [`Need`].
    pub lower_only: bool,
}

/// The timer of a CPU.
#[derive(Clone, Default)]
pub(super) struct Watch {
    /// When it fires; zero if it is not armed.
    armed: u64,
    waiters: [Option<Waiter>; WATCHED],
}

impl<W: Observer> Machine<W> {
    fn arm(&mut self, cpu: u32, at: u64) {
        let watch = &mut self.watches[cpu as usize];
        if watch.armed != 0 && watch.armed <= at {
            return;
        }
        watch.armed = at.max(self.now + SOON);
        let at = watch.armed;
        self.event_queue.add(at, Plan::WatchTimer { cpu });
    }

    /// Watches a task that was queued to user space, and for which no other CPU was kicked.
    pub(super) fn watch_waiter(&mut self, slot: u32, here: u32) {
        let task = &self.tasks[slot as usize];
        let (pid, woken, kicked) = (task.pid, task.woken, task.kicked >= 0);
        let retry_at = self.cpus[here as usize].seen.retry_at;
        let due = if retry_at != 0 && !kicked { retry_at } else { woken + AGAIN };
        self.watch_one(here, Waiter { pid, since: woken, due, kicks: 0, lower_only: false });
    }

    /// Watches a waiting task: at `due`, the timer checks whether it still waits.
    pub(super) fn watch_one(&mut self, here: u32, waiter: Waiter) {
        let place =
            &mut self.watches[here as usize].waiters[waiter.pid.as_raw() as usize % WATCHED];
        let is_known = |one: &Waiter| one.pid == waiter.pid && one.since == waiter.since;
        // An earlier watch without the limit keeps that right.
        let lower_only =
            waiter.lower_only && place.filter(is_known).is_none_or(|one| one.lower_only);
        *place = Some(Waiter { lower_only, ..waiter });
        self.arm(here, waiter.due);
    }

    /// Arms the timer for the end of a short slice, if a task waits and the running task will
    /// probably not sleep before.
    pub(super) fn watch_slice(&mut self, slot: u32, cpu: u32) {
        if !self.has_short_slice(cpu) {
            return;
        }
        let slice = self.cpus[cpu as usize].seen.slice;
        let (end, armed) = (self.now + slice, self.watches[cpu as usize].armed);
        if armed != 0 && armed <= end {
            return;
        }
        let task = &self.tasks[slot as usize];
        let will_sleep = task.woken > task.stopped && task.run_interval < slice / 4;
        if !will_sleep && self.has_urgent_waiter(cpu) {
            self.arm(cpu, end);
        }
    }

    /// Whether the timer ends the occupant's slice: the tick ends slices of about a tick or
    /// more.
    fn has_short_slice(&self, cpu: u32) -> bool {
        let slice = self.cpus[cpu as usize].seen.slice;
        slice > 0 && slice < self.setup.costs.tick.as_nanos() / 4 * 3
    }

    /// Whether a task waits that is at least as urgent as the occupant, as far as the fast path
    /// knows.
    fn has_urgent_waiter(&self, cpu: u32) -> bool {
        let seen = &self.cpus[cpu as usize].seen;
        let (occupant, low_weight) = (self.rank_of(seen.current), seen.low_weight);
        let waiting = self.settings.waiting;
        if !self.queues[cpu as usize].is_empty() || waiting > occupant {
            return true;
        }
        if occupant != rank(Tier::Batch) {
            return waiting == occupant;
        }
        let is_short = self.settings.batch_slice < self.setup.costs.tick.as_nanos() / 4 * 3;
        (is_short || low_weight) && (waiting == occupant || !self.shared.is_empty())
    }

    /// The timer callback: `timer_callback`.
    pub(super) fn watch_timer(&mut self, cpu: u32) {
        if self.watches[cpu as usize].armed != self.now {
            return;
        }
        self.watches[cpu as usize].armed = 0;
        if !self.kicks_are_on() {
            return;
        }
        let waiter = self.kick_for_waiters(cpu);
        let slice = self.enforce_slice(cpu);
        [waiter, slice].into_iter().flatten().for_each(|at| self.arm(cpu, at));
    }

    /// Kicks for the tasks that this CPU watches; returns when to run again.
    fn kick_for_waiters(&mut self, cpu: u32) -> Option<u64> {
        let mut next = None;
        for place in 0..WATCHED {
            let Some(mut one) = self.watches[cpu as usize].waiters[place] else { continue };
            let slot = self.still_waits(one.pid, one.since).filter(|_| one.kicks < AGAIN_MAX);
            let Some(slot) = slot else {
                self.watches[cpu as usize].waiters[place] = None;
                continue;
            };
            if one.due <= self.now {
                self.kick_again(slot, cpu, one.lower_only);
                one.kicks += 1;
                one.due = self.now + AGAIN;
                self.watches[cpu as usize].waiters[place] = Some(one);
            }
            next = Some(next.map_or(one.due, |next: u64| next.min(one.due)));
        }
        next
    }

    /// Kicks a CPU for a task that still waits: the CPU of its DSQ, or any victim.
    fn kick_again(&mut self, slot: u32, here: u32, lower_only: bool) {
        let mut need = Need { overdue: true, lower_only, ..self.need(slot, here) };
        match self.tasks[slot as usize].place {
            Where::Queue(cpu) => {
                let cpu = u32::from(cpu);
                if self.gives_way(cpu, &mut need) && self.may_kick(cpu) {
                    self.interrupt(cpu, Some(slot));
                }
            }
            _ => {
                self.kick_victim(slot, &mut need);
            }
        }
    }

    /// Kicks this CPU if its occupant has used up a short slice; returns when to run again.
    fn enforce_slice(&mut self, cpu: u32) -> Option<u64> {
        let seen = &self.cpus[cpu as usize].seen;
        let ours = self.has_short_slice(cpu) && seen.current != Current::Scheduler;
        if !ours || !self.has_urgent_waiter(cpu) {
            return None;
        }
        if !self.cpu_view(cpu).is_outlived(self.now) {
            return Some(seen.since + seen.slice);
        }
        if !self.may_kick(cpu) {
            return Some(self.now + KICK_INTERVAL);
        }
        self.interrupt(cpu, None);
        None
    }
}
