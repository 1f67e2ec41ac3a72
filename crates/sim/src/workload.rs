// SPDX-License-Identifier: GPL-2.0-only

//! What the tasks of a simulated machine do, as data: groups of tasks that run the same program.
//!
//! The types here are what the machine runs. What a person writes are files, which the lab reads
//! and turns into these.

use super::random::Random;
use super::topology::Mask;
use alloc::string::String;
use alloc::vec::Vec;
use pandemonium_engine::task::Comm;
use pandemonium_engine::time::Span;

/// A length of time, drawn anew each time: uniform from `low` to `high`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// The shortest.
    pub low: Span,
    /// The longest.
    pub high: Span,
}

impl Draw {
    /// Always the same.
    pub const fn fixed(span: Span) -> Draw {
        Draw { low: span, high: span }
    }

    /// From `low` to `high`.
    pub const fn between(low: Span, high: Span) -> Draw {
        Draw { low, high }
    }

    /// One of them, in nanoseconds.
    pub const fn draw(self, random: &mut Random) -> u64 {
        random.between(self.low.as_nanos(), self.high.as_nanos())
    }
}

/// What a task does next. At the end of its program it begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Uses the CPU.
    Work(Draw),
    /// Sleeps on a timer.
    Sleep(Draw),
    /// Sleeps until the next multiple of the group's period; if that is past already, goes on.
    Period,
    /// Sleeps until another task wakes it; goes on at once if one has done so already.
    Wait,
    /// Wakes the task so many places further in the group's row (or back, if negative).
    Wake {
        /// How many places further.
        offset: i16,
        /// Whether the waker says that it is about to sleep.
        sync: bool,
    },
    /// A time that is measured begins here, for the whole row of tasks.
    Begin,
    /// The measured time ends here.
    End,
    /// A task of the next group is born, if that has not as many already. A measured time that the
    /// parent began ends with the child's [`Step::End`].
    Fork,
    /// The task ends. If its group keeps its number, another begins.
    Exit,
}

/// Tasks that run the same program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name of each.
    pub comm: Comm,
    /// How many rows there are.
    pub rows: u32,
    /// How many tasks make a row; each may have a program of its own, and they wake each other.
    pub row: u32,
    /// The program of each place in a row; the last one serves all further places.
    pub programs: Vec<Vec<Step>>,
    /// Nice value, -20 to 19.
    pub nice: i8,
    /// Where they may run.
    pub place: Place,
    /// What [`Step::Period`] counts in.
    pub period: Span,
    /// A measured time that is longer, or a start later than this after its period, is a miss.
    pub deadline: Option<Span>,
    /// When they begin, after the start of the run.
    pub start: Span,
    /// When they are ended, after the start of the run.
    pub stop: Option<Span>,
    /// How far apart the tasks of the group begin.
    pub spread: Span,
    /// Whether tasks of the group before this one fork them; else they begin by themselves. Such a
    /// task tells its parent when it ends, who may [wait](Step::Wait) for that.
    pub forked: bool,
    /// Whether another task is born in place of one that ends.
    pub again: bool,
    /// Whether they belong to the class that runs only when nobody else wants to.
    pub idle_class: bool,
    /// Whether they are kernel threads.
    pub kthread: bool,
    /// Whether they take part in what is measured as the workload's throughput.
    pub counts: bool,
}

impl Group {
    /// So many tasks that run `program`.
    pub fn new(name: &str, rows: u32, program: Vec<Step>) -> Group {
        Group {
            comm: Comm::from_text(name),
            rows,
            row: 1,
            programs: alloc::vec![program],
            nice: 0,
            place: Place::Anywhere,
            period: Span::ZERO,
            deadline: None,
            start: Span::ZERO,
            stop: None,
            spread: Span::ZERO,
            forked: false,
            again: false,
            idle_class: false,
            kthread: false,
            counts: true,
        }
    }

    /// Tasks that only use the CPU.
    pub fn hogs(name: &str, count: u32) -> Group {
        Group::new(name, count, alloc::vec![Step::Work(Draw::fixed(Span::from_millis(1_000)))])
    }

    /// Tasks that sleep and work a little.
    pub fn sleepers(name: &str, count: u32, sleep: Draw, work: Draw) -> Group {
        Group::new(name, count, alloc::vec![Step::Sleep(sleep), Step::Work(work)])
    }

    /// Tasks of the group.
    pub fn tasks(&self) -> u32 {
        self.rows.saturating_mul(self.row)
    }

    /// The program of the task at `place` in its row.
    pub fn program(&self, place: u32) -> &[Step] {
        let last = self.programs.len().saturating_sub(1);
        self.programs.get((place as usize).min(last)).map_or(&[], Vec::as_slice)
    }

    /// Whether its tasks depend on each other.
    pub fn is_linked(&self) -> bool {
        self.row > 1
    }
}

/// Where the tasks of a group may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Everywhere.
    Anywhere,
    /// Only there.
    Within(Mask),
    /// Each on one CPU: the first on the first, the second on the second, and around.
    OneEach,
}

/// A run: who takes part, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// What it is called.
    pub name: String,
    /// What it is for, in a sentence.
    pub about: String,
    /// Simulated time.
    pub duration: Span,
    /// Time at the start that is not measured.
    pub warmup: Span,
    /// Who takes part.
    pub groups: Vec<Group>,
}

impl Workload {
    /// Most tasks that can live at the same time.
    pub fn tasks(&self) -> u32 {
        self.groups.iter().map(Group::tasks).fold(0, u32::saturating_add)
    }
}

/// The weight of a nice value, as sched_ext derives it from the kernel's `sched_prio_to_weight`:
/// `weight * 100 / 1024`, rounded.
pub const fn weight_of_nice(nice: i8) -> u32 {
    const KERNEL: [u32; 40] = [
        88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100,
        4904, 3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172,
        137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
    ];
    let index = nice as i32 + 20;
    let index = if index < 0 { 0 } else { index as usize };
    let index = if index > 39 { 39 } else { index };
    (KERNEL[index] * 100 + 512) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_those_of_the_kernel() {
        assert_eq!(weight_of_nice(0), 100);
        assert_eq!(weight_of_nice(-20), 8668);
        assert_eq!(weight_of_nice(19), 1);
        assert_eq!(weight_of_nice(10), 11);
        assert_eq!(weight_of_nice(i8::MAX), 1);
    }

    #[test]
    fn the_last_program_serves_all_further_places() {
        let mut group = Group::hogs("x", 2);
        group.row = 3;
        group.programs.push(alloc::vec![Step::Wait]);
        assert_eq!(group.program(2), [Step::Wait]);
        assert_eq!(group.tasks(), 6);
    }
}
