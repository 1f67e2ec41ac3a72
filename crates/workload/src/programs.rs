// SPDX-License-Identifier: GPL-2.0-only

//! The kinds: what the tasks of a table do, as programs.

use crate::error::FileError;
use crate::table::{Kind, Reader};
use pandemonium_engine::time::Span;
use pandemonium_sim::workload::{Draw, Group, Step};

/// How long the simulator's tasks take to execute another program: the kernel's part, and the
/// dynamic linker's.
const EXEC: Draw = Draw::fixed(Span::from_micros(600));
/// Tasks in a row. The first task of a team takes two steps for each of the others.
const ROW: std::ops::RangeInclusive<u32> = 2..=64;

impl Reader<'_> {
    /// Sets the programs of the group's tasks, and what belongs to them.
    pub(crate) fn programs(&self, group: &mut Group) -> Result<(), FileError> {
        let table = self.table;
        let work = |default: Option<u64>| self.length("work_us", &table.work_us, default);
        group.programs = match table.kind {
            Kind::Burn => vec![vec![Step::Work(work(Some(1_000_000))?)]],
            Kind::Job => vec![self.job(work(None)?)?],
            Kind::Sleep => {
                let sleep = self.length("sleep_us", &table.sleep_us, None)?;
                vec![vec![Step::Sleep(sleep), Step::Work(work(None)?)]]
            }
            Kind::Burst => vec![self.burst(work(None)?)?],
            Kind::Periodic => {
                group.period = self.period()?;
                vec![vec![Step::Period, Step::Begin, Step::Work(work(None)?), Step::End]]
            }
            Kind::Chain => {
                group.period = self.period()?;
                group.row = self.row()?;
                self.chain(group.row, work(None)?)
            }
            Kind::Team => {
                group.row = self.row()?;
                if self.table.period_us.is_some() {
                    group.period = self.period()?;
                }
                self.team(group.row, work(None)?)?
            }
            Kind::Change => vec![self.change(work(None)?)?],
            Kind::Storm => vec![self.storm()?],
            Kind::Pipe => {
                group.row = self.row()?;
                self.pipe(group.row, work(Some(2))?)?
            }
        };
        Ok(())
    }

    /// What a task does once, before its program: the program for `first_wakeups` times, then the
    /// work and the sleep of `first_work_us` and `first_sleep_us`.
    pub(crate) fn first(&self, group: &mut Group) -> Result<(), FileError> {
        let (work, sleep) = (&self.table.first_work_us, &self.table.first_sleep_us);
        if work.is_none() && sleep.is_none() {
            return Ok(());
        }
        let first = [
            Step::Work(self.length("first_work_us", work, Some(0))?),
            Step::Sleep(self.length("first_sleep_us", sleep, Some(0))?),
        ];
        let times = match &self.table.first_wakeups {
            Some(times) if !(1..=20).contains(times.get_ref()) => {
                return Err(self.error(times.span().start, "expected 1 to 20"));
            }
            times => times.as_ref().map_or(0, |times| *times.get_ref() as usize),
        };
        let [program] = &mut group.programs[..] else {
            return Err(self.error(self.at, "first_work_us needs a kind of one task"));
        };
        let before = [program.repeat(times), first.to_vec()].concat();
        group.once = before.len() as u8;
        program.splice(0..0, before);
        Ok(())
    }

    /// Tasks that wake each other one after the other, once in each period.
    fn chain(&self, length: u32, work: Draw) -> Vec<Vec<Step>> {
        let (work, next) = (Step::Work(work), self.wake(1, false));
        let mut programs = vec![vec![Step::Period, Step::Begin, work, next]];
        programs.resize(length as usize - 1, vec![Step::Wait, work, next]);
        programs.push(vec![Step::Wait, work, Step::End]);
        programs
    }

    /// Tasks that work side by side, once in each period or again and again: the first one wakes
    /// the others, works too, and waits for all of them.
    fn team(&self, length: u32, work: Draw) -> Result<Vec<Vec<Step>>, FileError> {
        let others = 1..length as i16;
        let mut first = match (&self.table.period_us, &self.table.sleep_us) {
            (Some(_), _) => vec![Step::Period],
            (None, Some(_)) => {
                vec![Step::Sleep(self.length("sleep_us", &self.table.sleep_us, None)?)]
            }
            (None, None) => Vec::new(),
        };
        first.push(Step::Begin);
        first.extend(others.clone().map(|offset| self.wake(offset, false)));
        first.push(Step::Work(work));
        first.extend(others.clone().map(|_| Step::Wait));
        first.push(Step::End);
        let other = |offset: i16| vec![Step::Wait, Step::Work(work), self.wake(-offset, false)];
        Ok(std::iter::once(first).chain(others.map(other)).collect())
    }

    /// Tasks that hand a token around, with a pause before each round if `sleep_us` is given.
    fn pipe(&self, length: u32, work: Draw) -> Result<Vec<Vec<Step>>, FileError> {
        let work = Step::Work(work);
        let mut first = match &self.table.sleep_us {
            Some(_) => vec![Step::Sleep(self.length("sleep_us", &self.table.sleep_us, None)?)],
            None => Vec::new(),
        };
        first.extend([Step::Begin, work, self.wake(1, true), Step::Wait, Step::End]);
        let mut programs = vec![first];
        programs.resize(length as usize - 1, vec![Step::Wait, work, self.wake(1, true)]);
        programs.push(vec![Step::Wait, work, self.wake(1 - length as i16, true)]);
        Ok(programs)
    }

    /// A wakeup of another task of the row, as the kind or the file has it.
    fn wake(&self, offset: i16, usual: bool) -> Step {
        Step::Wake { offset, sync: self.table.sync.unwrap_or(usual) }
    }

    /// The number of tasks in a row.
    fn row(&self) -> Result<u32, FileError> {
        match (self.count(&self.table.length, 2)?, &self.table.length) {
            (length, Some(given)) if !ROW.contains(&length) => {
                let why = format!("expected {} to {} tasks", ROW.start(), ROW.end());
                Err(self.error(given.span().start, why))
            }
            (length, _) => Ok(length),
        }
    }

    /// A task that wakes up `burst` times, computes, and pauses.
    fn change(&self, work: Draw) -> Result<Vec<Step>, FileError> {
        let sleep = self.length("sleep_us", &self.table.sleep_us, None)?;
        let compute = self.length("compute_us", &self.table.compute_us, None)?;
        let pause = self.length("pause_us", &self.table.pause_us, None)?;
        let mut steps = [Step::Sleep(sleep), Step::Work(work)].repeat(self.times()? as usize);
        steps.extend([Step::Work(compute), Step::Sleep(pause)]);
        Ok(steps)
    }

    /// A task that works and exits, with a sleep in between if `sleep_us` is given.
    fn job(&self, work: Draw) -> Result<Vec<Step>, FileError> {
        let mut steps: Vec<Step> = self.exec().collect();
        steps.push(Step::Work(work));
        if self.table.sleep_us.is_some() {
            let sleep = self.length("sleep_us", &self.table.sleep_us, None)?;
            steps.extend([Step::Sleep(sleep), Step::Work(work)]);
        }
        steps.push(Step::Exit);
        Ok(steps)
    }

    /// The step that executes another program, if the file says so.
    fn exec(&self) -> impl Iterator<Item = Step> {
        self.table.exec.then_some(Step::Exec(EXEC)).into_iter()
    }

    /// The number of repetitions of a burst or a fork loop.
    fn times(&self) -> Result<u32, FileError> {
        match &self.table.burst {
            Some(burst) if (1..=64).contains(burst.get_ref()) => Ok(*burst.get_ref()),
            Some(burst) => Err(self.error(burst.span().start, "expected 1 to 64")),
            None => Ok(8),
        }
    }

    /// A task that sleeps, forks one child after the other, and waits for all. The measured latency
    /// is the time from the start of a fork to the child's first instruction.
    fn storm(&self) -> Result<Vec<Step>, FileError> {
        let sleep = self.length("sleep_us", &self.table.sleep_us, None)?;
        let fork = self.length("pause_us", &self.table.pause_us, None)?;
        let times = self.times()? as usize;
        let mut steps = vec![Step::Sleep(sleep)];
        steps.extend([Step::Begin, Step::Work(fork), Step::Fork].repeat(times));
        steps.extend(vec![Step::Wait; times]);
        Ok(steps)
    }

    /// The children of a storm. They have its name, and they do the work.
    pub(crate) fn children(&self, storm: &Group) -> Result<Option<Group>, FileError> {
        if self.table.kind != Kind::Storm {
            return Ok(None);
        }
        let work = self.length("work_us", &self.table.work_us, None)?;
        let rows = storm.rows.saturating_mul(self.times()?);
        let mut program = vec![Step::End];
        program.extend(self.exec());
        program.extend([Step::Work(work), Step::Exit]);
        let programs = vec![program];
        Ok(Some(Group { rows, programs, forked: true, ..storm.clone() }))
    }

    /// A task that sleeps, and then works several times with short pauses.
    fn burst(&self, work: Draw) -> Result<Vec<Step>, FileError> {
        let sleep = self.length("sleep_us", &self.table.sleep_us, None)?;
        let pause = self.length("pause_us", &self.table.pause_us, None)?;
        let times = self.times()?;
        let mut steps = vec![Step::Sleep(sleep), Step::Work(work)];
        for _ in 1..times {
            steps.extend([Step::Sleep(pause), Step::Work(work)]);
        }
        Ok(steps)
    }

    /// The period, or its range.
    fn period(&self) -> Result<Draw, FileError> {
        let period = self.length("period_us", &self.table.period_us, None)?;
        match &self.table.period_us {
            Some(given) if period.low == Span::ZERO => {
                Err(self.error(given.span().start, "expected more than 0"))
            }
            _ => Ok(period),
        }
    }
}
