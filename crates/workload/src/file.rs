// SPDX-License-Identifier: GPL-2.0-only

//! A workload file as a whole: the machine, the duration, and the tables of tasks.

use crate::error::FileError;
use crate::table::{Reader, TaskTable};
use pandemonium_engine::task::CPUS_MAX;
use pandemonium_engine::time::Span;
use pandemonium_sim::topology::Shape;
use pandemonium_sim::workload::Workload;
use serde::Deserialize;
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

#[cfg(test)]
mod tests {
    use super::*;
    use pandemonium_sim::topology::Mask;
    use pandemonium_sim::workload::{Draw, Place, Step};

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
