// SPDX-License-Identifier: GPL-2.0-only

//! Reads workload files (TOML). Errors name line, column and what was expected. docs/simulator.md
//! explains the format.

use crate::formula;
use pandemonium_engine::task::CPUS_MAX;
use pandemonium_engine::time::Span;
use pandemonium_engine::topology::CpuMask;
use pandemonium_sim::topology::{Mask, Shape};
use pandemonium_sim::workload::{Draw, Group, Place, Step, Workload};
use serde::Deserialize;
use std::fmt;
use toml::Spanned;

/// Number of CPUs if neither the file nor the command line has one.
const CPUS_DEFAULT: u32 = 4;
/// Largest number of tasks of a run, so that a typing error does not fill the memory.
const TASKS_MAX: u32 = 200_000;
/// Longest simulated time: a day.
const LONGEST_MS: u64 = 24 * 3_600 * 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default)]
    about: String,
    duration_ms: Spanned<u64>,
    #[serde(default)]
    warmup_ms: u64,
    #[serde(default)]
    machine: MachineTable,
    task: Vec<Spanned<TaskTable>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineTable {
    cpus: Option<Spanned<u32>>,
    smt: Option<u32>,
    l2: Option<u32>,
    l3: Option<u32>,
    node: Option<u32>,
    fast: Option<u32>,
    slow_percent: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Burn,
    Job,
    Sleep,
    Burst,
    Periodic,
    Chain,
    Pipe,
    Storm,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskTable {
    name: String,
    kind: Kind,
    #[serde(default)]
    count: Option<Spanned<Count>>,
    work_us: Option<Spanned<Length>>,
    sleep_us: Option<Spanned<Length>>,
    pause_us: Option<Spanned<Length>>,
    first_wakeups: Option<Spanned<u32>>,
    first_work_us: Option<Spanned<Length>>,
    first_sleep_us: Option<Spanned<Length>>,
    burst: Option<Spanned<u32>>,
    period_us: Option<Spanned<u64>>,
    deadline_us: Option<u64>,
    length: Option<Spanned<Count>>,
    #[serde(default)]
    nice: Option<Spanned<i64>>,
    cpus: Option<Spanned<String>>,
    #[serde(default)]
    start_ms: u64,
    stop_ms: Option<u64>,
    #[serde(default)]
    spread_us: u64,
    #[serde(default)]
    respawn: bool,
    #[serde(default)]
    idle_class: bool,
    #[serde(default)]
    kthread: bool,
    counts: Option<bool>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged, expecting = "a number, or a formula of n in quotes such as \"2n\"")]
enum Count {
    Number(u32),
    Formula(String),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "a number of microseconds, or two: [shortest, longest]")]
enum Length {
    Fixed(u64),
    Between([u64; 2]),
}

/// Why and where a file is refused.
#[derive(Debug)]
pub struct FileError {
    line: usize,
    column: usize,
    why: String,
    text: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = (self.line, self.column);
        write!(f, "line {line}, column {column}: {}\n{line:5} | {}\n", self.why, self.text)?;
        write!(f, "      | {:>column$}", "^")
    }
}

impl std::error::Error for FileError {}

impl FileError {
    fn new(source: &str, at: usize, why: impl Into<String>) -> FileError {
        let at = at.min(source.len());
        let before = source.get(..at).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        FileError {
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
            why: why.into(),
            text: source[start..].lines().next().unwrap_or_default().to_owned(),
        }
    }
}

/// The workload and the machine of a file. `cpus` overrides the file's number of CPUs.
pub fn read(source: &str, cpus: Option<u32>) -> Result<(Workload, Shape), FileError> {
    let file: File = toml::from_str(source).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        FileError::new(source, at, error.message().trim())
    })?;
    let shape = shape(source, &file.machine, cpus)?;
    let duration = *file.duration_ms.get_ref();
    if !(1..=LONGEST_MS).contains(&duration) || file.warmup_ms >= duration {
        let why = format!(
            "expected 1 to {LONGEST_MS} milliseconds, and more than the warm-up's {}",
            file.warmup_ms
        );
        return Err(FileError::new(source, file.duration_ms.span().start, why));
    }
    let mut groups = Vec::new();
    let mut tasks = 0u32;
    for table in &file.task {
        let reader =
            Reader { source, cpus: shape.cpus, table: table.get_ref(), at: table.span().start };
        let group = reader.group()?;
        let children = reader.children(&group)?;
        tasks = [Some(&group), children.as_ref()]
            .into_iter()
            .flatten()
            .fold(tasks, |tasks, group| tasks.saturating_add(group.tasks()));
        if tasks > TASKS_MAX {
            let why = format!("expected at most {TASKS_MAX} tasks together, these make {tasks}");
            return Err(FileError::new(source, table.span().start, why));
        }
        groups.push(group);
        groups.extend(children);
    }
    let workload = Workload {
        name: file.name,
        about: file.about,
        duration: Span::from_millis(duration),
        warmup: Span::from_millis(file.warmup_ms),
        groups,
    };
    Ok((workload, shape))
}

/// The machine of a file.
fn shape(source: &str, machine: &MachineTable, cpus: Option<u32>) -> Result<Shape, FileError> {
    if let Some(given) = &machine.cpus
        && !(1..=CPUS_MAX).contains(given.get_ref())
    {
        let why = format!("expected 1 to {CPUS_MAX} CPUs");
        return Err(FileError::new(source, given.span().start, why));
    }
    let given = machine.cpus.as_ref().map(|cpus| *cpus.get_ref());
    let cpus = cpus.or(given).unwrap_or(CPUS_DEFAULT);
    let flat = Shape::flat(cpus);
    let shape = Shape {
        smt: machine.smt.unwrap_or(flat.smt),
        l2: machine.l2.unwrap_or(flat.l2),
        l3: machine.l3.unwrap_or(flat.l3),
        node: machine.node.unwrap_or(flat.node),
        fast: machine.fast.unwrap_or(flat.fast),
        slow_speed: machine.slow_percent.map_or(flat.slow_speed, |percent| percent * 1024 / 100),
        ..flat
    };
    Ok(shape.sane())
}

/// Converts one task table.
struct Reader<'a> {
    source: &'a str,
    cpus: u32,
    table: &'a TaskTable,
    at: usize,
}

impl Reader<'_> {
    fn group(&self) -> Result<Group, FileError> {
        let table = self.table;
        let mut group = Group::new(&table.name, self.count(&table.count, 1)?, Vec::new());
        self.programs(&mut group)?;
        self.first(&mut group)?;
        group.nice = match &table.nice {
            None => 0,
            Some(nice) => i8::try_from(*nice.get_ref())
                .ok()
                .filter(|nice| (-20..=19).contains(nice))
                .ok_or_else(|| self.error(nice.span().start, "expected -20 to 19"))?,
        };
        group.place = self.place()?;
        group.start = Span::from_millis(table.start_ms);
        group.stop = table.stop_ms.map(Span::from_millis);
        group.spread = Span::from_micros(table.spread_us);
        group.again = table.respawn;
        group.idle_class = table.idle_class;
        group.kthread = table.kthread;
        group.counts = table.counts.unwrap_or(true);
        group.deadline = table.deadline_us.map(Span::from_micros);
        Ok(group)
    }

    /// Sets the programs of the group's tasks, and what belongs to them.
    fn programs(&self, group: &mut Group) -> Result<(), FileError> {
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
                group.row = self.count(&table.length, 2)?.max(2);
                let work = Step::Work(work(None)?);
                let next = Step::Wake { offset: 1, sync: false };
                let mut programs = vec![vec![Step::Period, Step::Begin, work, next]];
                programs.resize(group.row as usize - 1, vec![Step::Wait, work, next]);
                programs.push(vec![Step::Wait, work, Step::End]);
                programs
            }
            Kind::Storm => vec![self.storm()?],
            Kind::Pipe => {
                group.row = 2;
                let work = Step::Work(work(Some(2))?);
                let to = |offset| Step::Wake { offset, sync: true };
                vec![
                    vec![Step::Begin, work, to(1), Step::Wait, Step::End],
                    vec![Step::Wait, work, to(-1)],
                ]
            }
        };
        Ok(())
    }

    /// What a task does once, before its program: the program for `first_wakeups` times, then the
    /// work and the sleep of `first_work_us` and `first_sleep_us`.
    fn first(&self, group: &mut Group) -> Result<(), FileError> {
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
        // A task counts its steps in eight bits.
        if program.len() > usize::from(u8::MAX) {
            return Err(self.error(self.at, "expected fewer wakeups before first_work_us"));
        }
        Ok(())
    }

    /// A task that works and exits, with a sleep in between if `sleep_us` is given.
    fn job(&self, work: Draw) -> Result<Vec<Step>, FileError> {
        let Some(_) = self.table.sleep_us else { return Ok(vec![Step::Work(work), Step::Exit]) };
        let sleep = self.length("sleep_us", &self.table.sleep_us, None)?;
        Ok(vec![Step::Work(work), Step::Sleep(sleep), Step::Work(work), Step::Exit])
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
    fn children(&self, storm: &Group) -> Result<Option<Group>, FileError> {
        if self.table.kind != Kind::Storm {
            return Ok(None);
        }
        let work = self.length("work_us", &self.table.work_us, None)?;
        let rows = storm.rows.saturating_mul(self.times()?);
        let programs = vec![vec![Step::End, Step::Work(work), Step::Exit]];
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

    fn period(&self) -> Result<Span, FileError> {
        match &self.table.period_us {
            Some(period) if *period.get_ref() > 0 => Ok(Span::from_micros(*period.get_ref())),
            Some(period) => Err(self.error(period.span().start, "expected more than 0")),
            None => Err(self.missing("period_us")),
        }
    }

    fn place(&self) -> Result<Place, FileError> {
        let Some(cpus) = &self.table.cpus else { return Ok(Place::Anywhere) };
        if cpus.get_ref() == "each" {
            return Ok(Place::OneEach);
        }
        let mask = CpuMask::parse(cpus.get_ref()).map_err(|error| {
            self.error(cpus.span().start, format!("{error}; or \"each\", for one CPU each"))
        })?;
        let within: Vec<u32> =
            mask.iter().map(|cpu| cpu.as_raw() as u32).filter(|&cpu| cpu < self.cpus).collect();
        match (within.first(), within.last()) {
            (Some(&first), Some(&last)) if last - first + 1 == within.len() as u32 => {
                Ok(Place::Within(Mask::Range(first as u16, last as u16 + 1)))
            }
            (Some(_), Some(&last)) if last < 64 => {
                Ok(Place::Within(Mask::Bits(within.iter().map(|cpu| 1 << cpu).sum())))
            }
            (None, _) => {
                let why = format!("expected a CPU below {}", self.cpus);
                Err(self.error(cpus.span().start, why))
            }
            _ => Err(self.error(cpus.span().start, "expected one range, or CPUs below 64")),
        }
    }

    fn count(&self, count: &Option<Spanned<Count>>, default: u32) -> Result<u32, FileError> {
        let Some(spanned) = count else { return Ok(default) };
        let value = match spanned.get_ref() {
            Count::Number(number) => Some(*number),
            Count::Formula(text) => formula::evaluate(text, self.cpus),
        };
        let why = "expected a number, or a formula of n such as \"2n\", \"n/2\", \"max(8, 4n)\"";
        value.ok_or_else(|| self.error(spanned.span().start, why))
    }

    fn length(
        &self,
        name: &str,
        length: &Option<Spanned<Length>>,
        default: Option<u64>,
    ) -> Result<Draw, FileError> {
        let us = |us: u64| Span::from_micros(us);
        match (length, default) {
            (None, Some(default)) => Ok(Draw::fixed(us(default))),
            (None, None) => Err(self.missing(name)),
            (Some(given), _) => match *given.get_ref() {
                Length::Fixed(length) => Ok(Draw::fixed(us(length))),
                Length::Between([low, high]) if low <= high => Ok(Draw::between(us(low), us(high))),
                Length::Between(_) => {
                    Err(self.error(given.span().start, "expected the shorter length first"))
                }
            },
        }
    }

    fn missing(&self, field: &str) -> FileError {
        let kind = format!("{:?}", self.table.kind).to_lowercase();
        self.error(self.at, format!("expected {field}, which the kind \"{kind}\" needs"))
    }

    fn error(&self, at: usize, why: impl Into<String>) -> FileError {
        FileError::new(self.source, at, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_may_do_something_else_first() {
        let first = "first_wakeups = 3\nfirst_work_us = 7\nfirst_sleep_us = 9\n";
        let sleeps = "kind = \"sleep\"\nsleep_us = 1\nwork_us = 2\n";
        let (workload, _) = read(&format!("{GOOD}{sleeps}{first}"), None).unwrap();
        let group = &workload.groups[0];
        assert_eq!((group.once, group.programs[0].len()), (8, 10));
        assert_eq!(group.programs[0][6], Step::Work(Draw::fixed(Span::from_micros(7))));
        assert_eq!(group.programs[0][8..], group.programs[0][..2]);
        let pipe = format!("{GOOD}kind = \"pipe\"\n{first}");
        assert!(read(&pipe, None).unwrap_err().to_string().contains("a kind of one task"));
        let many = format!("{GOOD}{sleeps}{first}").replace("wakeups = 3", "wakeups = 21");
        assert!(read(&many, None).unwrap_err().to_string().contains("expected 1 to 20"));
    }

    const GOOD: &str = "name = \"x\"\nduration_ms = 100\n[[task]]\nname = \"hog\"\n";

    fn violation(source: &str) -> String {
        match read(source, None) {
            Ok(_) => panic!("accepted:\n{source}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_valid_file_is_read_for_the_given_number_of_cpus() {
        let source = format!("{GOOD}kind = \"burn\"\ncount = \"2n\"\ncpus = \"1-2\"\nnice = 5\n");
        let (workload, shape) = read(&source, Some(8)).unwrap();
        assert_eq!(shape.cpus, 8);
        assert_eq!(workload.groups[0].rows, 16);
        assert_eq!(workload.groups[0].nice, 5);
        assert_eq!(workload.groups[0].place, Place::Within(Mask::Range(1, 3)));
        assert_eq!(read(&source, None).unwrap().1.cpus, CPUS_DEFAULT);
    }

    #[test]
    fn an_error_has_line_column_and_what_was_expected() {
        for (tail, place, expected) in [
            ("kind = \"brun\"\n", "line 5, column 8", "`burn`"),
            ("kind = \"burn\"\ncolour = 3\n", "line 6, column 1", "expected one of"),
            ("kind = \"burn\"\ncount = \"two\"\n", "line 6, column 9", "formula of n"),
            ("kind = \"burn\"\nnice = 40\n", "line 6, column 8", "-20 to 19"),
            ("kind = \"sleep\"\nwork_us = 5\n", "line 3, column 1", "expected sleep_us"),
            ("kind = \"burn\"\nwork_us = \"x\"\n", "line 6, column 11", "microseconds"),
            ("kind = \"burn\"\nwork_us = [5, 4]\n", "line 6, column 11", "shorter"),
            ("kind = \"burn\"\ncpus = \"9\"\n", "line 6, column 8", "below 4"),
            ("kind = \"burn\"\ncpus = \"a\"\n", "line 6, column 8", "each"),
            ("kind = \"burn\"\ncount = 300000\n", "line 3, column 1", "at most 200000"),
            ("kind = \"burn\n", "line 5", ""),
        ] {
            let said = violation(&format!("{GOOD}{tail}"));
            assert!(said.contains(place), "{said}");
            assert!(said.contains(expected), "{said}");
        }
        assert!(
            violation("name = \"x\"\nduration_ms = 0\ntask = []\n").contains("line 2, column 15")
        );
        assert!(violation("").contains("line 1"));
    }
}
