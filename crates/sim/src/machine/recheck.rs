// SPDX-License-Identifier: GPL-2.0-only

//! The fast path's timers, one per CPU: `src/bpf/recheck.bpf.h`. A timer is armed while a task
//! waits. Its callback kicks a CPU for a task that still waits, and ends a slice that expires
//! between two ticks.

use super::fast_path::rank;
use super::limits::{KICK_INTERVAL, RECHECKS, SOON, TURN, TURN_BITS, WAITERS};
use super::rules::Need;
use super::state::{Current, Where};
use super::{Machine, Plan};
use crate::observer::Observer;
use pandemonium_engine::task::{Pid, Tier};

/// A waiting task.
#[derive(Clone, Copy)]
pub(super) struct Waiter {
    pub pid: Pid,
    /// When it became runnable.
    pub since: u64,
    /// When to check it.
    pub due: u64,
    /// Time between two checks while it waits for a decision, and checks that found it waiting.
    pub interval: u64,
    pub checks: u32,
}

/// The timer of a CPU.
#[derive(Clone, Default)]
pub(super) struct Recheck {
    /// When it fires; zero if it is not armed.
    armed: u64,
    waiters: [Option<Waiter>; WAITERS],
}

/// When to check a decided task next. One call of the timer checks all of a CPU.
fn next_turn(now: u64) -> u64 {
    (now + 2 * TURN) >> TURN_BITS << TURN_BITS
}

impl<W: Observer> Machine<W> {
    fn arm(&mut self, cpu: u32, at: u64) {
        let recheck = &mut self.rechecks[cpu as usize];
        if recheck.armed != 0 && recheck.armed <= at {
            return;
        }
        recheck.armed = at.max(self.now + SOON);
        let at = recheck.armed;
        self.event_queue.add(at, Plan::Recheck { cpu });
    }

    /// Checks after `interval` whether the task, which waits from now on, still does.
    pub(super) fn check_later(&mut self, slot: u32, here: u32, interval: u64) {
        let pid = self.tasks[slot as usize].pid;
        let (since, due) = (self.now, self.now + interval);
        let place = pid.as_raw() as usize % WAITERS;
        let recheck = &mut self.rechecks[here as usize];
        recheck.waiters[place] = Some(Waiter { pid, since, due, interval, checks: 0 });
        self.arm(here, due);
    }

    /// Arms the timer for the end of a short slice, if a task waits and the running task will
    /// probably not sleep before.
    pub(super) fn end_slice(&mut self, slot: u32, cpu: u32) {
        if !self.has_short_slice(cpu) {
            return;
        }
        let slice = self.cpus[cpu as usize].seen.slice;
        let (end, armed) = (self.now + slice, self.rechecks[cpu as usize].armed);
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
        if seen.crowded || !self.queues[cpu as usize].is_empty() || waiting > occupant {
            return true;
        }
        if occupant != rank(Tier::Batch) {
            return waiting == occupant;
        }
        let is_short = self.settings.batch_slice < self.setup.costs.tick.as_nanos() / 4 * 3;
        (is_short || low_weight) && (waiting == occupant || !self.shared.is_empty())
    }

    /// The timer callback: `timer_callback`.
    pub(super) fn recheck(&mut self, cpu: u32) {
        if self.rechecks[cpu as usize].armed != self.now {
            return;
        }
        self.rechecks[cpu as usize].armed = 0;
        if !self.kicks_are_on() {
            return;
        }
        let waiter = self.check_waiters(cpu);
        let slice = self.check_slice(cpu);
        [waiter, slice].into_iter().flatten().for_each(|at| self.arm(cpu, at));
    }

    /// Checks the waiting tasks of this timer; returns when to check again.
    fn check_waiters(&mut self, cpu: u32) -> Option<u64> {
        let mut next = None;
        for place in 0..WAITERS {
            let Some(mut one) = self.rechecks[cpu as usize].waiters[place] else { continue };
            let slot = self.still_waits(one.pid, one.since).filter(|_| one.checks < RECHECKS);
            let Some(slot) = slot else {
                self.rechecks[cpu as usize].waiters[place] = None;
                continue;
            };
            if one.due <= self.now {
                let is_decided = self.tasks[slot as usize].place != Where::UserSpace;
                self.kick_for_waiter(slot, cpu);
                one.checks += 1;
                one.due = if is_decided { next_turn(self.now) } else { self.now + one.interval };
                self.rechecks[cpu as usize].waiters[place] = Some(one);
            }
            next = Some(next.map_or(one.due, |next: u64| next.min(one.due)));
        }
        next
    }

    /// Kicks a CPU for a task that still waits: the CPU of its DSQ, or any victim.
    fn kick_for_waiter(&mut self, slot: u32, here: u32) {
        let need = Need { overdue: true, ..self.need(slot, here) };
        match self.tasks[slot as usize].place {
            Where::Queue(cpu) => {
                let cpu = u32::from(cpu);
                if self.gives_way(cpu, &need) && self.may_kick(cpu) {
                    self.interrupt(cpu, Some(slot));
                }
            }
            _ => {
                self.kick_victim(slot, &need);
            }
        }
    }

    /// Kicks this CPU if its occupant has used up a short slice; returns when to check again.
    fn check_slice(&mut self, cpu: u32) -> Option<u64> {
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
        let again = seen.crowded.then_some(self.now + seen.slice + KICK_INTERVAL);
        self.interrupt(cpu, None);
        again
    }
}
