// SPDX-License-Identifier: GPL-2.0-only

//! Tasks as the scheduler tells of them, in an order and filtered.

use pandemonium_host::print::one_line;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// What the scheduler tells of its tasks, of one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskList {
    /// The name of the policy.
    pub policy: String,
    /// Whether the kernel's records are there. Without them, only tasks that were queued to user
    /// space are listed, and nothing is known of their CPU time.
    pub complete: bool,
    /// The tasks that ran or waited in the interval.
    pub tasks: Vec<Task>,
}

/// A task in an interval. Rates are a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Task {
    /// The thread, by the number that the kernel calls pid.
    pub pid: i32,
    /// The first thread of its process; 0 if that is unknown.
    pub process: i32,
    /// Its name; empty if it has ended.
    pub name: String,
    /// `lat-critical`, `interactive` or `batch`; empty if the policy has not classified it.
    pub tier: String,
    /// The rule by which it mostly got its CPU.
    pub rule: String,
    /// CPU time, in percent of one CPU; negative if unknown.
    pub cpu_pct: f64,
    /// Wakeups.
    pub wakeups: u64,
    /// Decisions in user space.
    pub decisions: u64,
    /// Executed standing orders.
    pub orders: u64,
    /// The longest wait, in microseconds.
    pub wait_us: u64,
}

/// What tasks are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Key {
    /// CPU time, most first.
    #[default]
    Cpu,
    /// The longest wait, longest first.
    Wait,
    /// Wakeups, most first.
    Wakeups,
    /// The tier, most urgent first.
    Tier,
    /// The name.
    Name,
    /// The pid.
    Pid,
}

impl Key {
    /// All keys.
    pub const ALL: [Key; 6] = [Key::Cpu, Key::Wait, Key::Wakeups, Key::Tier, Key::Name, Key::Pid];

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Key::Cpu => "cpu",
            Key::Wait => "wait",
            Key::Wakeups => "wakeups",
            Key::Tier => "tier",
            Key::Name => "name",
            Key::Pid => "pid",
        }
    }

    /// The key of this name.
    pub fn named(name: &str) -> Option<Key> {
        Key::ALL.into_iter().find(|key| key.name() == name)
    }
}

impl TaskList {
    /// The list with texts that cannot control a terminal.
    pub fn cleaned(mut self) -> TaskList {
        let clean = |text: &mut String| *text = one_line(text).into_owned();
        clean(&mut self.policy);
        for task in &mut self.tasks {
            [&mut task.name, &mut task.tier, &mut task.rule].into_iter().for_each(clean);
        }
        self
    }

    /// The tasks that `filter` leaves, sorted. It is compared with the name, the tier, the rule and
    /// the pid of a task, whatever the case; an empty one leaves all.
    pub fn sorted(&self, key: Key, reversed: bool, filter: &str) -> Vec<&Task> {
        let filter = filter.to_lowercase();
        let mut tasks: Vec<&Task> = self.tasks.iter().filter(|task| task.has(&filter)).collect();
        tasks.sort_by_cached_key(|task| task.pid);
        match key {
            Key::Cpu => tasks.sort_by(|a, b| b.cpu_pct.total_cmp(&a.cpu_pct)),
            Key::Wait => tasks.sort_by_key(|task| Reverse(task.wait_us)),
            Key::Wakeups => tasks.sort_by_key(|task| Reverse(task.wakeups)),
            Key::Tier => tasks.sort_by_key(|task| tier_place(&task.tier)),
            Key::Name => tasks.sort_by(|a, b| a.name.cmp(&b.name)),
            Key::Pid => {}
        }
        if reversed {
            tasks.reverse();
        }
        tasks
    }
}

impl Task {
    fn has(&self, filter: &str) -> bool {
        let texts = [&self.name, &self.tier, &self.rule];
        texts.into_iter().any(|text| text.to_lowercase().contains(filter))
            || self.pid.to_string() == filter
    }

    /// The CPU time as text, in percent; `-` if unknown.
    pub fn cpu(&self) -> String {
        if self.cpu_pct < 0.0 { "-".into() } else { format!("{:.1}", self.cpu_pct) }
    }
}

/// The place of a tier, most urgent first; that of an unknown one is behind all.
pub fn tier_place(tier: &str) -> usize {
    ["lat-critical", "interactive", "batch"].iter().position(|it| *it == tier).unwrap_or(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> TaskList {
        let task = |pid, name: &str, tier: &str, cpu_pct, wakeups, wait_us| Task {
            pid,
            name: name.into(),
            tier: tier.into(),
            cpu_pct,
            wakeups,
            wait_us,
            ..Task::default()
        };
        let tasks = vec![
            task(30, "cc1", "batch", 90.0, 1, 7_000),
            task(7, "pipewire", "lat-critical", 2.0, 900, 30),
            task(20, "Firefox", "interactive", 40.0, 300, 200),
            task(9, "gone", "", -1.0, 0, 0),
        ];
        TaskList { tasks, ..TaskList::default() }
    }

    fn pids(key: Key, reversed: bool, filter: &str) -> Vec<i32> {
        list().sorted(key, reversed, filter).iter().map(|task| task.pid).collect()
    }

    #[test]
    fn every_key_has_its_order() {
        assert_eq!(pids(Key::Cpu, false, ""), [30, 20, 7, 9]);
        assert_eq!(pids(Key::Wait, false, ""), [30, 20, 7, 9]);
        assert_eq!(pids(Key::Wakeups, false, ""), [7, 20, 30, 9]);
        assert_eq!(pids(Key::Tier, false, ""), [7, 20, 30, 9]);
        assert_eq!(pids(Key::Name, false, ""), [20, 30, 9, 7]);
        assert_eq!(pids(Key::Pid, true, ""), [30, 20, 9, 7]);
    }

    #[test]
    fn a_filter_finds_names_tiers_and_pids() {
        assert_eq!(pids(Key::Pid, false, "fire"), [20]);
        assert_eq!(pids(Key::Pid, false, "BATCH"), [30]);
        assert_eq!(pids(Key::Pid, false, "9"), [9]);
        assert!(pids(Key::Pid, false, "nothing").is_empty());
    }

    #[test]
    fn every_key_is_found_by_its_name() {
        assert!(Key::ALL.into_iter().all(|key| Key::named(key.name()) == Some(key)));
        assert_eq!(Key::named("age"), None);
    }

    #[test]
    fn no_name_controls_the_terminal() {
        let mut list = list();
        list.tasks[0].name = "a\x1b[2J\n".into();
        assert_eq!(list.cleaned().tasks[0].name, "a?[2J?");
    }
}
