// SPDX-License-Identifier: GPL-2.0-only

//! A workload as data: groups of tasks that run the same program.
//!
//! The lab reads workload files and turns them into these types.

use super::random::Random;
use super::topology::Mask;
use alloc::string::String;
use alloc::vec::Vec;
use pandemonium_engine::task::{Comm, User};
use pandemonium_engine::time::Span;

/// A random duration: each draw is uniform from `low` to `high`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// The shortest duration.
    pub low: Span,
    /// The longest duration.
    pub high: Span,
}

impl Draw {
    /// A constant duration.
    pub const fn fixed(span: Span) -> Draw {
        Draw { low: span, high: span }
    }

    /// Uniform from `low` to `high`.
    pub const fn between(low: Span, high: Span) -> Draw {
        Draw { low, high }
    }

    /// Draws a duration, in nanoseconds.
    pub const fn draw(self, random: &mut Random) -> u64 {
        random.between(self.low.as_nanos(), self.high.as_nanos())
    }
}

/// One step of a task's program. After its last step a program starts over, at the step
/// [`Group::once`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Uses the CPU.
    Work(Draw),
    /// Sleeps on a timer.
    Sleep(Draw),
    /// Sleeps until the next multiple of the group's period; continues if that is past already.
    Period,
    /// Blocks until another task wakes it; continues at once if a wakeup is pending.
    Wait,
    /// Wakes another task of its row.
    Wake {
        /// Its distance in places; negative for an earlier place.
        offset: i16,
        /// Whether this is a synchronous wakeup (`WF_SYNC`): the waker is about to sleep.
        sync: bool,
    },
    /// Starts a measured time, for the whole row of tasks.
    Begin,
    /// Ends the measured time.
    End,
    /// Forks a task of the next group, unless that group has all its tasks. The child's
    /// [`Step::End`] ends a measured time that the parent started.
    Fork,
    /// Executes another program, which takes this long in the simulator.
    Exec(Draw),
    /// Exits. If its group has [`Group::again`] set, a new task replaces it.
    Exit,
}

/// The user of a group's tasks, unless it names another: the first person's on many machines.
pub const USER: User = User::new(1_000);

/// Tasks that run the same program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name of each task.
    pub comm: Comm,
    /// Number of rows.
    pub rows: u32,
    /// Tasks per row. The tasks of a row may run different programs and wake each other.
    pub row: u32,
    /// The program of each place in a row; further places run the last program.
    pub programs: Vec<Vec<Step>>,
    /// Number of steps at the beginning of each program that a task takes only once.
    pub once: u8,
    /// Nice value, -20 to 19.
    pub nice: i8,
    /// The user of its tasks; kernel threads are root's.
    pub user: User,
    /// The CPUs on which its tasks may run.
    pub place: Place,
    /// The period of [`Step::Period`], drawn anew for each period: jitter. Zero if the tasks have
    /// no period.
    pub period: Draw,
    /// A measured time longer than this is a miss. With a deadline, [`Step::Period`] skips the
    /// periods that have already begun.
    pub deadline: Option<Span>,
    /// When the tasks start, from the start of the run.
    pub start: Span,
    /// When the tasks end, from the start of the run.
    pub stop: Option<Span>,
    /// Time between the starts of two rows.
    pub spread: Span,
    /// Whether tasks of the preceding group fork these tasks; otherwise they start on their own.
    /// The exit of a forked task wakes its parent, which may [wait](Step::Wait) for it.
    pub forked: bool,
    /// Whether a new task replaces one that exits.
    pub again: bool,
    /// Whether the tasks are `SCHED_IDLE`.
    pub idle_class: bool,
    /// Whether the tasks are `SCHED_BATCH`. The simulator treats them as ordinary tasks.
    pub batch_class: bool,
    /// Whether the tasks are threads of one process, and none of them the first one. Else each is a
    /// process.
    pub threads: bool,
    /// Whether the tasks are kernel threads.
    pub kthread: bool,
    /// Whether their work counts for the workload's throughput.
    pub counts: bool,
}

impl Group {
    /// A group of `rows` tasks that run `program`.
    pub fn new(name: &str, rows: u32, program: Vec<Step>) -> Group {
        Group {
            comm: Comm::from_text(name),
            rows,
            row: 1,
            programs: alloc::vec![program],
            once: 0,
            nice: 0,
            user: USER,
            place: Place::Anywhere,
            period: Draw::fixed(Span::ZERO),
            deadline: None,
            start: Span::ZERO,
            stop: None,
            spread: Span::ZERO,
            forked: false,
            again: false,
            idle_class: false,
            batch_class: false,
            threads: false,
            kthread: false,
            counts: true,
        }
    }

    /// CPU hogs, which never sleep.
    pub fn hogs(name: &str, count: u32) -> Group {
        Group::new(name, count, alloc::vec![Step::Work(Draw::fixed(Span::from_millis(1_000)))])
    }

    /// Tasks that sleep and work in turn.
    pub fn sleepers(name: &str, count: u32, sleep: Draw, work: Draw) -> Group {
        Group::new(name, count, alloc::vec![Step::Sleep(sleep), Step::Work(work)])
    }

    /// Number of tasks in the group.
    pub fn tasks(&self) -> u32 {
        self.rows.saturating_mul(self.row)
    }

    /// The program of the task at `place` in its row.
    pub fn program(&self, place: u32) -> &[Step] {
        let last = self.programs.len().saturating_sub(1);
        self.programs.get((place as usize).min(last)).map_or(&[], Vec::as_slice)
    }

    /// Whether its tasks depend on each other's wakeups.
    pub fn is_linked(&self) -> bool {
        self.row > 1
    }
}

/// The CPUs on which the tasks of a group may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// All CPUs.
    Anywhere,
    /// The CPUs of the mask.
    Within(Mask),
    /// One CPU per task: the first task on CPU 0, the second on CPU 1, and so on, wrapping around.
    OneEach,
}

/// The tasks of a run, and its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Its purpose, in a sentence.
    pub about: String,
    /// Simulated time from start to end.
    pub duration: Span,
    /// Time at the start that the measurements leave out.
    pub warmup: Span,
    /// Its groups of tasks.
    pub groups: Vec<Group>,
}

impl Workload {
    /// The most tasks that can be alive at the same time.
    pub fn tasks(&self) -> u32 {
        self.groups.iter().map(Group::tasks).fold(0, u32::saturating_add)
    }
}

/// The weight of a nice value, as sched_ext derives it from the kernel's `sched_prio_to_weight`:
/// `weight * 100 / 1024`, rounded (`sched_weight_to_cgroup()`).
pub const fn weight_of_nice(nice: i8) -> u32 {
    (kernel_weight(nice) * 100 + 512) / 1024
}

/// The weight of `SCHED_IDLE` in the unit of [`kernel_weight`] (`WEIGHT_IDLEPRIO`).
pub const IDLE_CLASS_WEIGHT: u32 = 3;

/// The kernel's weight of a nice value (`sched_prio_to_weight`); 1024 for nice 0.
pub const fn kernel_weight(nice: i8) -> u32 {
    const KERNEL: [u32; 40] = [
        88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100,
        4904, 3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172,
        137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
    ];
    let index = nice as i32 + 20;
    let index = if index < 0 { 0 } else { index as usize };
    let index = if index > 39 { 39 } else { index };
    KERNEL[index]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_match_the_kernel() {
        assert_eq!(weight_of_nice(0), 100);
        assert_eq!(weight_of_nice(-20), 8668);
        assert_eq!(weight_of_nice(19), 1);
        assert_eq!(weight_of_nice(10), 11);
        assert_eq!(weight_of_nice(i8::MAX), 1);
    }

    #[test]
    fn further_places_run_the_last_program() {
        let mut group = Group::hogs("x", 2);
        group.row = 3;
        group.programs.push(alloc::vec![Step::Wait]);
        assert_eq!(group.program(2), [Step::Wait]);
        assert_eq!(group.tasks(), 6);
    }
}
