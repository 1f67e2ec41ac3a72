// SPDX-License-Identifier: GPL-2.0-only

//! A row of tasks: how they wake each other, and the times that are being measured.

use crate::tasks::futex::futex;
use crate::tasks::load::pipe;
use crate::tasks::process::stand_still;
use anyhow::Result;
use pandemonium_sim::workload::{Group, Step};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Measured times that may be under way at once in a row; further ones are not measured.
const MARKS: usize = 256;

/// The tasks of a row.
pub struct Row {
    seats: Vec<Seat>,
    marks: Marks,
}

impl Row {
    /// A row of this group. Tasks that wake each other synchronously do so through pipes, whose
    /// writers wake readers that way; the others through futexes.
    pub fn new(group: &Group) -> Result<Row> {
        let sync = |step: &Step| matches!(step, Step::Wake { sync: true, .. });
        let over_pipes = group.programs.iter().flatten().any(sync);
        let seat = |_| match over_pipes {
            true => pipe().map(|(out, into)| Seat::Pipe { out, into }),
            false => Ok(Seat::Futex(AtomicU32::new(0))),
        };
        let seats = if group.is_linked() { group.row } else { 0 };
        Ok(Row { seats: (0..seats).map(seat).collect::<Result<_>>()?, marks: Marks::default() })
    }

    /// A row of one task with a time that another task has begun to measure.
    pub fn begun(ns: Option<u64>) -> Row {
        let row = Row { seats: Vec::new(), marks: Marks::default() };
        ns.into_iter().for_each(|ns| row.begin(ns));
        row
    }

    /// Waits for a wakeup of this place; returns at once if one is pending.
    pub fn wait(&self, place: u32) {
        match self.seats.get(place as usize) {
            Some(seat) => seat.wait(),
            None => stand_still(),
        }
    }

    /// Wakes the task at this place.
    pub fn wake(&self, place: u32) {
        if let Some(seat) = self.seats.get(place as usize) {
            seat.wake();
        }
    }

    /// Begins a measured time. Only one task of a row does so.
    pub fn begin(&self, ns: u64) {
        self.marks.push(ns);
    }

    /// Ends the oldest measured time, and returns its begin. Only one task of a row does so.
    pub fn end(&self) -> Option<u64> {
        self.marks.pop()
    }
}

/// Counts wakeups that are not yet taken.
enum Seat {
    Pipe { out: RawFd, into: RawFd },
    Futex(AtomicU32),
}

impl Seat {
    fn wait(&self) {
        match self {
            Seat::Pipe { out, .. } => {
                let mut byte = [0_u8];
                // SAFETY: one byte into a buffer of one byte.
                unsafe { libc::read(*out, byte.as_mut_ptr().cast(), 1) };
            }
            Seat::Futex(count) => {
                let take = |count: u32| count.checked_sub(1);
                while count.fetch_update(Acquire, Relaxed, take).is_err() {
                    futex(count, libc::FUTEX_WAIT, 0);
                }
            }
        }
    }

    fn wake(&self) {
        match self {
            Seat::Pipe { into, .. } => {
                // SAFETY: one byte out of a buffer of one byte.
                unsafe { libc::write(*into, [1_u8].as_ptr().cast(), 1) };
            }
            Seat::Futex(count) => {
                count.fetch_add(1, Release);
                futex(count, libc::FUTEX_WAKE, 1);
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Seat::Pipe { out, into } = self {
            // SAFETY: both ends were made with the seat.
            unsafe {
                libc::close(*out);
                libc::close(*into);
            }
        }
    }
}

/// A queue from one task to another that needs no lock, so that neither waits for the other.
struct Marks {
    begins: [AtomicU64; MARKS],
    pushed: AtomicU64,
    popped: AtomicU64,
}

impl Default for Marks {
    fn default() -> Marks {
        Marks {
            begins: std::array::from_fn(|_| AtomicU64::new(0)),
            pushed: AtomicU64::new(0),
            popped: AtomicU64::new(0),
        }
    }
}

impl Marks {
    fn push(&self, ns: u64) {
        let pushed = self.pushed.load(Relaxed);
        if pushed - self.popped.load(Acquire) < MARKS as u64 {
            self.begins[pushed as usize % MARKS].store(ns, Relaxed);
            self.pushed.store(pushed + 1, Release);
        }
    }

    fn pop(&self) -> Option<u64> {
        let popped = self.popped.load(Relaxed);
        if popped == self.pushed.load(Acquire) {
            return None;
        }
        let ns = self.begins[popped as usize % MARKS].load(Relaxed);
        self.popped.store(popped + 1, Release);
        Some(ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn ring(sync: bool) -> Group {
        let wake = |offset| Step::Wake { offset, sync };
        let mut group = Group::new("x", 1, vec![wake(1), Step::Wait]);
        group.row = 2;
        group
    }

    #[test]
    fn a_wakeup_is_kept_until_the_task_waits_and_wakes_one_that_does() {
        for sync in [false, true] {
            let row = Row::new(&ring(sync)).unwrap();
            row.wake(1);
            row.wake(1);
            row.wait(1);
            row.wait(1);
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| row.wait(0));
                std::thread::sleep(Duration::from_millis(20));
                assert!(!waits.is_finished());
                row.wake(0);
            });
        }
    }

    #[test]
    fn times_end_in_the_order_in_which_they_began_and_too_many_are_left_out() {
        let row = Row::begun(Some(7));
        (8..1_000).for_each(|ns| row.begin(ns));
        let ended: Vec<u64> = std::iter::from_fn(|| row.end()).collect();
        assert_eq!(ended, (7..7 + MARKS as u64).collect::<Vec<_>>());
    }
}
