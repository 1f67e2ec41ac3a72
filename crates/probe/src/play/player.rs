// SPDX-License-Identifier: GPL-2.0-only

//! A task that plays the program of its group, step by step, as the simulator's tasks do.

use super::executed::become_program;
use super::seat::Row;
use super::shared::{Control, Recorder, Work};
use crate::tasks::clock::{now_ns, sleep_until};
use crate::tasks::process::{die_with_parent, stand_still};
use crate::tasks::work;
use pandemonium_sim::random::Random;
use pandemonium_sim::workload::{Draw, Group, Step, Workload};
use pandemonium_statistics::mix::Notice;
use std::sync::atomic::Ordering::Relaxed;

/// Work between two looks at the counters, in microseconds: short against a slice.
const CHUNK_US: u64 = 200;

/// All that the tasks of a play have in common.
pub struct World<'a> {
    pub workload: &'a Workload,
    /// What is measured of each group.
    pub notices: Vec<Option<Notice>>,
    pub control: &'a Control,
    /// One for each group.
    pub recorders: &'a [Recorder],
    /// One for each task, group after group.
    pub work: &'a [Work],
    /// Where the tasks of each group begin in `work`.
    pub first: Vec<usize>,
    pub rounds_per_ms: u64,
    pub seed: u64,
    /// Numbers of the CPUs that may be used.
    pub cpus: &'a [usize],
}

impl World<'_> {
    /// The counter of a task of a group.
    pub fn work_of(&self, group: usize, number: u64) -> &Work {
        let tasks = u64::from(self.workload.groups[group].tasks().max(1));
        &self.work[self.first[group] + (number % tasks) as usize]
    }
}

/// One task.
pub struct Player<'a> {
    world: &'a World<'a>,
    row: &'a Row,
    group: usize,
    place: u32,
    work: &'a Work,
    random: Random,
    /// The start of the current period.
    period: u64,
    /// The next step.
    at: usize,
    /// Forked tasks so far.
    forked: u64,
}

impl<'a> Player<'a> {
    /// The task that is the `index`th of its group to be created, at a place of its row.
    pub fn new(world: &'a World, row: &'a Row, group: usize, place: u32, index: u64) -> Player<'a> {
        // The simulator's tasks draw the same numbers.
        let random = Random::derive(world.seed, (group as u64) << 32 | index);
        let work = world.work_of(group, index);
        let period = now_ns();
        Player { world, row, group, place, work, random, period, at: 0, forked: 0 }
    }

    fn group(&self) -> &'a Group {
        &self.world.workload.groups[self.group]
    }

    /// Plays until the program exits.
    pub fn play(&mut self) {
        let of = self.group();
        let program = of.program(self.place);
        while let Some(step) = program.get(self.at) {
            let next = self.at + 1;
            self.at = if next < program.len() { next } else { usize::from(of.once) };
            match step {
                // Here a fork takes the time that it takes.
                Step::Work(_) if program.get(next) == Some(&Step::Fork) => {}
                Step::Work(draw) => self.work_for(*draw),
                Step::Sleep(draw) => {
                    let until = now_ns() + draw.draw(&mut self.random).max(1);
                    self.sleep(until);
                }
                Step::Period => {
                    if let Some(until) = self.next_period() {
                        self.sleep(until);
                    }
                }
                Step::Wait if self.forked > 0 => self.wait_for_child(),
                Step::Wait => self.row.wait(self.place),
                Step::Wake { offset, .. } => {
                    self.row.wake(self.place.wrapping_add_signed(i32::from(*offset)));
                }
                Step::Begin if of.period.high.as_nanos() > 0 => self.row.begin(self.period),
                Step::Begin => self.row.begin(now_ns()),
                Step::End => self.end(),
                Step::Fork => self.fork(),
                Step::Exec(_) => self.exec(&program[next..]),
                Step::Exit => return,
            }
        }
        stand_still()
    }

    fn rounds(&self, ns: u64) -> u64 {
        (u128::from(ns) * u128::from(self.world.rounds_per_ms) / 1_000_000) as u64
    }

    fn work_for(&mut self, draw: Draw) {
        let chunk = (CHUNK_US * self.world.rounds_per_ms / 1_000).max(1);
        let ns = draw.draw(&mut self.random);
        let mut left = self.rounds(ns).max(1);
        while left > 0 {
            let now = left.min(chunk);
            work::burn(now as u32);
            self.work.0.fetch_add(now, Relaxed);
            left -= now;
        }
    }

    fn sleep(&self, until: u64) {
        sleep_until(until);
        if self.world.notices[self.group] == Some(Notice::Wakeup) {
            let now = now_ns();
            self.record(now, now.saturating_sub(until));
        }
    }

    /// The start of the next period, or `None` if it has begun already. The rules are those of the
    /// simulator's `Machine::next_period`.
    fn next_period(&mut self) -> Option<u64> {
        let (of, now) = (self.group(), now_ns());
        let length = of.period.draw(&mut self.random).max(1);
        self.period = match of.deadline {
            Some(_) => {
                self.period + now.saturating_sub(self.period).div_ceil(length).max(1) * length
            }
            None => (self.period + length).max(now.saturating_sub(length)),
        };
        (self.period > now).then_some(self.period)
    }

    fn end(&self) {
        let now = now_ns();
        if let Some(begun) = self.row.end() {
            self.record(now, now.saturating_sub(begun));
        }
    }

    fn record(&self, now: u64, ns: u64) {
        let noticed = self.world.notices[self.group].is_some_and(|notice| notice != Notice::Work);
        if noticed && self.world.control.measures(now) {
            let late = self.group().deadline.is_some_and(|deadline| ns > deadline.as_nanos());
            self.world.recorders[self.group].record(ns, late);
        }
    }

    /// Forks a task of the next group, which ends the time that this one has begun.
    fn fork(&mut self) {
        let (index, begun) = (self.forked, self.row.end());
        let child = self.group + 1;
        // SAFETY: this process has one thread; the child plays its program and exits.
        match unsafe { libc::fork() } {
            -1 => self.world.control.count_failed(),
            0 => {
                let row = Row::begun(begun);
                let mut player = Player::new(self.world, &row, child, 0, index);
                if player.group().program(0).first() == Some(&Step::End) {
                    player.end();
                    player.at = 1;
                }
                die_with_parent();
                player.play();
                // SAFETY: plain exit.
                unsafe { libc::_exit(0) }
            }
            _ => self.forked += 1,
        }
    }

    fn wait_for_child(&self) {
        // SAFETY: waits for any child; the status is not wanted.
        if unsafe { libc::wait(std::ptr::null_mut()) } < 0 {
            // A fork that failed has no child.
            sleep_until(now_ns() + 1_000_000);
        }
    }

    /// Executes this program again, to play the rest of the steps. Its work counts at once.
    fn exec(&mut self, rest: &[Step]) {
        let mut words = vec![format!("{}", self.group().comm)];
        for step in rest {
            match step {
                Step::Work(draw) => {
                    let ns = draw.draw(&mut self.random);
                    let rounds = self.rounds(ns).max(1);
                    self.work.0.fetch_add(rounds, Relaxed);
                    words.push(format!("w{rounds}"));
                }
                Step::Sleep(draw) => words.push(format!("s{}", draw.draw(&mut self.random))),
                _ => {}
            }
        }
        become_program(&words);
        self.world.control.count_failed();
    }
}
