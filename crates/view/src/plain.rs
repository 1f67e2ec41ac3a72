// SPDX-License-Identifier: GPL-2.0-only

//! Tasks as text, for a pipe or a file.

use crate::canvas::time;
use crate::tasks::{Key, Task, TaskList};

/// What a column shows, and how wide it is; a negative width aligns to the left.
pub(crate) const COLUMNS: [(&str, i16); 8] = [
    ("PID", 7),
    ("NAME", -15),
    ("TIER", -12),
    ("RULE", -15),
    ("CPU%", 5),
    ("WAKE/S", 6),
    ("WAIT", 6),
    ("DEC/S", 5),
];

/// The cells of a task.
pub(crate) fn cells(task: &Task) -> [String; 8] {
    let or = |text: &str, other: &str| if text.is_empty() { other.into() } else { text.to_owned() };
    [
        task.pid.to_string(),
        or(&task.name, "(ended)"),
        or(&task.tier, "-"),
        or(&task.rule, "-"),
        task.cpu(),
        task.wakeups.to_string(),
        time(task.wait_us),
        task.decisions.to_string(),
    ]
}

/// A line of these cells.
pub(crate) fn line<T: AsRef<str>>(cells: &[T; 8]) -> String {
    let padded = cells.iter().zip(COLUMNS).map(|(cell, (_, width))| {
        let (cell, columns) = (cell.as_ref(), usize::from(width.unsigned_abs()));
        let cut: String = cell.chars().take(columns).collect();
        if width < 0 { format!("{cut:<columns$}") } else { format!("{cut:>columns$}") }
    });
    padded.collect::<Vec<_>>().join(" ")
}

/// The first `rows` of the list, with a line of titles, and one that says how many there are.
pub fn table(list: &TaskList, key: Key, rows: usize) -> String {
    let list = list.clone().cleaned();
    let mut text = line(&COLUMNS.map(|(title, _)| title)) + "\n";
    let sorted = list.sorted(key, false, "");
    for task in sorted.iter().take(rows) {
        text += line(&cells(task)).trim_end();
        text += "\n";
    }
    let kind = if list.complete { "" } else { " (only those that were queued to user space)" };
    text + &format!("{} tasks ran or waited{kind}, sorted by {}", sorted.len(), key.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_task() {
        let task = |pid, name: &str, cpu_pct| Task {
            pid,
            name: name.into(),
            tier: "batch".into(),
            rule: "starvation rescue".into(),
            cpu_pct,
            wakeups: 3,
            wait_us: 7_300,
            decisions: 250,
            ..Task::default()
        };
        let tasks = vec![task(7, "a\nb", 3.25), task(4_194_304, "sixteen-letters!", 99.9)];
        let list = TaskList { tasks, complete: true, ..TaskList::default() };
        let expected =
            "    PID NAME            TIER         RULE             CPU% WAKE/S   WAIT DEC/S
4194304 sixteen-letters batch        starvation resc  99.9      3  7.3ms   250
      7 a?b             batch        starvation resc   3.2      3  7.3ms   250
2 tasks ran or waited, sorted by cpu";
        assert_eq!(table(&list, Key::Cpu, 9), expected);
        let short = table(&TaskList { complete: false, ..list }, Key::Pid, 1);
        assert_eq!(short.lines().count(), 3);
        assert!(short.ends_with("(only those that were queued to user space), sorted by pid"));
    }
}
