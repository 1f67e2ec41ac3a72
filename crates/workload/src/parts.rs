// SPDX-License-Identifier: GPL-2.0-only

//! What is measured of each group of a workload, by the simulator and by the probe alike.

use pandemonium_sim::workload::{Group, IDLE_CLASS_WEIGHT, Place, Step, Workload, kernel_weight};
use pandemonium_statistics::mix::{Notice, Part};

/// The parts of a workload before anything is measured, each with the number of its group. Groups
/// that only fork others have none.
pub fn parts(workload: &Workload) -> Vec<(usize, Part)> {
    let groups = workload.groups.iter().enumerate();
    groups.filter_map(|(number, group)| Some((number, part(group)?))).collect()
}

/// What is measured of the group; `None` for the parents of forked tasks, because their children
/// are measured.
pub(crate) fn notice(group: &Group) -> Option<Notice> {
    let has = |wanted: Step| group.programs.iter().flatten().any(|step| *step == wanted);
    match () {
        () if group.counts => Some(Notice::Work),
        () if group.forked => Some(Notice::Fork),
        () if has(Step::Fork) => None,
        () if has(Step::End) && group.deadline.is_some() => Some(Notice::Frame),
        () if has(Step::End) && group.row > 1 => Some(Notice::Request),
        () => Some(Notice::Wakeup),
    }
}

fn part(group: &Group) -> Option<Part> {
    let notice = notice(group)?;
    let only_works = |program: &Vec<Step>| matches!(program[..], [Step::Work(_)]);
    let whole_time = group.start.as_nanos() == 0 && group.stop.is_none();
    Some(Part {
        name: group.comm.to_string(),
        notice,
        tasks: group.tasks(),
        weight: match group.idle_class {
            true => IDLE_CLASS_WEIGHT,
            false => kernel_weight(group.nice),
        },
        equals: notice == Notice::Work
            && group.place == Place::Anywhere
            && whole_time
            && group.programs.iter().all(only_works),
        count: 0,
        p50_us: 0.0,
        p99_us: 0.0,
        p999_us: 0.0,
        worst_us: 0.0,
        missed: 0,
        work: 0.0,
        least_to_most: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;
    use pandemonium_engine::time::Span;

    #[test]
    fn the_parts_of_a_file_say_what_is_measured_of_its_tables() {
        let source = r#"
name = "x"
duration_ms = 100
[[task]]
name = "hog"
kind = "burn"
idle_class = true
[[task]]
name = "bound"
kind = "burn"
cpus = "each"
[[task]]
name = "sh"
kind = "storm"
sleep_us = 5
pause_us = 5
work_us = 5
counts = false
[[task]]
name = "game"
kind = "team"
length = 3
period_us = 5000
deadline_us = 5000
work_us = 50
counts = false
[[task]]
name = "ring"
kind = "pipe"
length = 4
sleep_us = 50
counts = false
[[task]]
name = "editor"
kind = "change"
sleep_us = 50
work_us = 50
compute_us = 500
pause_us = 500
counts = false
"#;
        let (workload, _) = read(source, None).unwrap();
        let found = parts(&workload);
        let seen: Vec<_> = found.iter().map(|(at, part)| (*at, part.notice, part.tasks)).collect();
        let expected = [
            (0, Notice::Work, 1),
            (1, Notice::Work, 1),
            (3, Notice::Fork, 8),
            (4, Notice::Frame, 3),
            (5, Notice::Request, 4),
            (6, Notice::Wakeup, 1),
        ];
        assert_eq!(seen, expected);
        assert_eq!((found[0].1.weight, found[0].1.equals), (IDLE_CLASS_WEIGHT, true));
        assert_eq!((found[1].1.weight, found[1].1.equals), (1024, false));
    }

    #[test]
    fn what_is_measured_follows_from_the_program() {
        let noticed = |mut group: Group| {
            group.counts = false;
            notice(&group)
        };
        let timed = Group::new("x", 1, vec![Step::Period, Step::Begin, Step::End]);
        assert_eq!(notice(&Group::hogs("x", 1)), Some(Notice::Work));
        assert_eq!(noticed(Group::hogs("x", 1)), Some(Notice::Wakeup));
        assert_eq!(noticed(timed.clone()), Some(Notice::Wakeup));
        assert_eq!(noticed(Group { row: 2, ..timed.clone() }), Some(Notice::Request));
        let deadline = Some(Span::from_millis(5));
        assert_eq!(noticed(Group { deadline, ..timed.clone() }), Some(Notice::Frame));
        assert_eq!(noticed(Group { forked: true, ..timed }), Some(Notice::Fork));
        assert_eq!(noticed(Group::new("x", 1, vec![Step::Fork])), None);
    }

    #[test]
    fn the_tasks_of_a_team_wait_for_each_other() {
        let source = "name = \"x\"\nduration_ms = 100\n[[task]]\nname = \"game\"\nkind = \"team\"\n\
            length = 3\nperiod_us = [4000, 6000]\nwork_us = 50\n";
        let (workload, _) = read(source, None).unwrap();
        let group = &workload.groups[0];
        let to = |offset| Step::Wake { offset, sync: false };
        let work = group.program(0)[4];
        assert!(matches!(work, Step::Work(_)));
        let first =
            [Step::Period, Step::Begin, to(1), to(2), work, Step::Wait, Step::Wait, Step::End];
        assert_eq!(group.program(0), first);
        assert_eq!(group.program(2), [Step::Wait, work, to(-2)]);
        assert_eq!(group.period.high.as_micros(), 6_000);
    }

    #[test]
    fn contradictions_and_programs_that_are_too_long_are_refused() {
        for (fields, why) in [
            ("kind = \"burn\"\nidle_class = true\nbatch_class = true\n", "not both"),
            ("kind = \"burn\"\nexec = true\n", "a job or a storm"),
            ("kind = \"storm\"\nthreads = true\n", "no threads"),
            ("kind = \"pipe\"\nlength = 65\n", "2 to 64 tasks"),
            ("kind = \"chain\"\nwork_us = 1\nperiod_us = [0, 9]\n", "more than 0"),
            ("kind = \"storm\"\nburst = 64\nsleep_us = 1\npause_us = 1\nwork_us = 1\n", "fewer"),
        ] {
            let source = format!("name = \"x\"\nduration_ms = 9\n[[task]]\nname = \"a\"\n{fields}");
            let error = read(&source, None).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
