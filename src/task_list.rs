// SPDX-License-Identifier: GPL-2.0-only

//! The tasks that ran or waited since a client's last request: the server's side of `top`.
//!
//! What the kernel has recorded and what the worker has decided are both read from memory, so that
//! neither the worker nor a task waits for this. The target `tasks` of the `scx_stats` protocol has
//! no arguments. The first response of a connection has no interval, and so no tasks.
//!
//! A connection keeps the tasks of its last request. There may be 65,536, and the supervisor has an
//! arena of 64 MiB, so a list has a largest length.

use super::clock;
use super::fast_path::{Observed, TaskRecords};
use super::procdb_file::text::tier_name;
use super::shared::Shared;
use super::shared::task_cells::Decided;
use pandemonium_engine::task::Reason;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_view::tasks::{Task, TaskList};
use std::cmp::Reverse;
use std::sync::Arc;

/// The name of the request's target.
pub const TARGET: &str = "tasks";
/// The worker notes decisions for so much longer than until the next request is due.
const MARGIN: Span = Span::from_millis(2_000);
const MARGIN_MAX: Span = Span::from_millis(60_000);
/// A name is read again after so many requests, because a program may change it.
const NAME_REQUESTS: u64 = 8;
/// The most tasks that a list has, of those that run, wait, or did so last. To make one takes some
/// 12 MiB for the scheduler's user, and an eighth of that for a group; half a MiB of it stays for
/// each client of a group.
pub const MOST_FOR_USER: usize = 8_192;
pub const MOST_FOR_GROUP: usize = 1_024;

/// Lists tasks for one client.
pub struct TaskLister {
    shared: Arc<Shared>,
    policy: &'static str,
    /// The most tasks of a list.
    most: usize,
    /// The kernel's records, and the numbers by which they were opened.
    records: Option<([u32; 2], TaskRecords)>,
    /// The tasks at the last request, in the order of their records.
    before: Vec<Known>,
    /// When that was.
    at: Option<Stamp>,
    requests: u64,
}

/// A task at one time.
#[derive(Clone, Debug, Default)]
struct Known {
    observed: Observed,
    decided: Decided,
    name: String,
}

impl TaskLister {
    /// A lister for the worker that has this memory.
    pub fn of(shared: Arc<Shared>, policy: &'static str, most: usize) -> TaskLister {
        let before = Vec::new();
        TaskLister { shared, policy, most, records: None, before, at: None, requests: 0 }
    }

    /// The tasks that ran or waited since the last call.
    pub fn list(&mut self) -> TaskList {
        self.list_at(clock::now(), &name_of)
    }

    fn list_at(&mut self, now: Stamp, name_of: &dyn Fn(i32) -> Option<String>) -> TaskList {
        let elapsed = self.at.map_or(Span::ZERO, |at| now.since(at));
        let margin = (elapsed.scale(2, 1) + MARGIN).min(MARGIN_MAX);
        self.shared.tasks.want(now + margin);
        self.open_records();
        let complete = self.records.is_some();
        let mut known = self.known(now);
        let interval = self.at.map(|at| Interval { since: at, elapsed, complete });
        let mut tasks = Vec::new();
        for task in &mut known {
            let before = self.before_of(task);
            if let Some(before) = before {
                task.name.clone_from(&before.name);
            }
            let Some(interval) = interval.filter(|it| it.has(task, before)) else { continue };
            let turn = self.requests.wrapping_add(task.observed.pid as u64);
            if task.name.is_empty() || turn.is_multiple_of(NAME_REQUESTS) {
                task.name = name_of(task.observed.pid).unwrap_or_default();
            }
            tasks.push(interval.row(task, before));
        }
        (self.before, self.at, self.requests) = (known, Some(now), self.requests + 1);
        TaskList { policy: self.policy.into(), complete, tasks }
    }

    /// Opens the records of the worker that runs, unless they are open.
    fn open_records(&mut self) {
        let ids = self.shared.tasks.maps();
        if self.records.as_ref().map(|(ids, _)| *ids) != ids {
            self.before.clear();
            self.records = ids.and_then(|ids| Some((ids, TaskRecords::open(ids).ok()?)));
        }
    }

    fn known(&self, now: Stamp) -> Vec<Known> {
        let cells = &self.shared.tasks;
        let Some((_, records)) = &self.records else {
            let all = cells.all(now).enumerate().map(|(at, decided)| queued(at, decided));
            return last_busy(all, self.most);
        };
        let known = |observed: Observed| {
            let decided = cells.of(observed.pid, now).unwrap_or_default();
            Known { observed, decided, name: String::new() }
        };
        last_busy(records.all(now).map(known), self.most)
    }

    /// The same task at the last request.
    fn before_of(&self, task: &Known) -> Option<&Known> {
        let (pid, start) = (task.observed.pid, task.observed.start_time);
        let is_same =
            |known: &&Known| known.observed.pid == pid && known.observed.start_time == start;
        if self.records.is_none() {
            // Without the kernel's records, tasks come and go between the others.
            return self.before.iter().find(is_same);
        }
        let index = task.observed.index;
        let place = self.before.binary_search_by_key(&index, |known| known.observed.index);
        self.before.get(place.ok()?).filter(is_same)
    }
}

/// The `most` tasks that run, wait, or did so last, in the order of their records. Meanwhile it has
/// twice as many at most.
fn last_busy(all: impl Iterator<Item = Known>, most: usize) -> Vec<Known> {
    let mut kept = Vec::new();
    for known in all {
        if kept.len() == 2 * most {
            keep_last_busy(&mut kept, most);
        }
        kept.push(known);
    }
    keep_last_busy(&mut kept, most);
    kept.shrink_to(most);
    kept
}

fn keep_last_busy(known: &mut Vec<Known>, most: usize) {
    if known.len() > most {
        let latest = |it: &Known| Reverse((it.observed.is_busy, it.observed.last_event));
        known.select_nth_unstable_by_key(most, latest);
        known.truncate(most);
        known.sort_unstable_by_key(|it| it.observed.index);
    }
}

/// A task of which only the worker knows.
fn queued(index: usize, decided: Decided) -> Known {
    let Decided { pid, wakeups, .. } = decided;
    let observed = Observed { index, pid, wakeups, ..Observed::default() };
    Known { observed, decided, name: String::new() }
}

/// The time between two requests.
#[derive(Clone, Copy)]
struct Interval {
    since: Stamp,
    elapsed: Span,
    /// Whether the kernel's records are there.
    complete: bool,
}

impl Interval {
    /// Whether the task ran or waited.
    fn has(&self, task: &Known, before: Option<&Known>) -> bool {
        let decisions = before.map_or(0, |before| before.decided.decisions);
        let is_new = task.observed.last_event >= self.since;
        task.observed.is_busy || is_new || task.decided.decisions != decisions
    }

    fn row(&self, task: &Known, before: Option<&Known>) -> Task {
        let (observed, decided) = (&task.observed, &task.decided);
        let more = |of: fn(&Known) -> u64| of(task).saturating_sub(before.map_or(0, of));
        let decisions = more(|it| it.decided.decisions);
        let orders = more(|it| it.decided.orders);
        let wakeups = more(|it| it.observed.wakeups);
        let asked = more(|it| it.decided.wakeups);
        let counts = Counts { decisions, orders, idle: wakeups.saturating_sub(asked + orders) };
        let tier = decided.last.map(|(tier, _)| tier).or(observed.tier);
        let is_fresh = observed.woken >= self.since || observed.is_busy;
        let last_wait = if is_fresh { observed.last_wait } else { Span::ZERO };
        Task {
            pid: observed.pid,
            process: observed.process,
            name: task.name.clone(),
            tier: tier.map_or("", tier_name).into(),
            rule: counts.rule(decided.last.map(|(_, reason)| reason)).into(),
            cpu_pct: self.cpu_pct(observed, before),
            wakeups: self.per_second(wakeups),
            decisions: self.per_second(decisions),
            orders: self.per_second(orders),
            wait_us: decided.longest.max(last_wait).as_micros(),
        }
    }

    /// CPU time in percent of one CPU, to a tenth; -1 if unknown: without the kernel's records, and
    /// for a task that is older than its record, which then says how much it used in all its life.
    fn cpu_pct(&self, task: &Observed, before: Option<&Known>) -> f64 {
        let is_new = Stamp::from_nanos(task.start_time) >= self.since;
        let used_before = match before {
            _ if !self.complete => return -1.0,
            Some(before) => before.observed.cpu_time,
            None if is_new => Span::ZERO,
            None => return -1.0,
        };
        let used = task.cpu_time.as_nanos().saturating_sub(used_before.as_nanos());
        let permille = u128::from(used) * 1_000 / u128::from(self.elapsed.as_nanos().max(1));
        permille.min(1_000) as f64 / 10.0
    }

    fn per_second(&self, count: u64) -> u64 {
        let elapsed = u128::from(self.elapsed.as_nanos().max(1));
        ((u128::from(count) * 1_000_000_000 + elapsed / 2) / elapsed) as u64
    }
}

/// How often a task got its CPU in which way.
struct Counts {
    decisions: u64,
    orders: u64,
    idle: u64,
}

impl Counts {
    /// The rule that gave the task its CPU most often; empty if it kept one.
    fn rule(&self, last: Option<Reason>) -> &'static str {
        let Counts { decisions, orders, idle } = *self;
        match last {
            _ if decisions + orders + idle == 0 => "",
            _ if orders >= decisions && orders >= idle => "standing order",
            Some(reason) if decisions >= idle => short_rule(reason),
            _ => "idle CPU",
        }
    }
}

/// The name of a rule, in a word.
fn short_rule(reason: Reason) -> &'static str {
    match reason {
        Reason::Order => "order",
        Reason::OverflowRescue => "overflow",
        Reason::Deficit => "deficit",
        Reason::StarvationRescue => "starvation",
        Reason::CodelRescue => "sojourn",
        Reason::Fifo => "arrival",
    }
}

/// The name of a task, if it exists.
fn name_of(pid: i32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pandemonium_engine::task::{Pid, Tier};

    const SECOND: Span = Span::from_millis(1_000);

    fn at(ms: u64) -> Stamp {
        Stamp::from_nanos(1 << 40) + Span::from_millis(ms)
    }

    fn interval() -> Interval {
        Interval { since: at(0), elapsed: SECOND, complete: true }
    }

    fn known(cpu_ms: u64, wakeups: u64, decisions: u64) -> Known {
        let last = (decisions > 0).then_some((Tier::Batch, Reason::Deficit));
        Known {
            observed: Observed {
                pid: 7,
                cpu_time: Span::from_millis(cpu_ms),
                wakeups,
                ..Observed::default()
            },
            decided: Decided { pid: 7, last, decisions, ..Decided::default() },
            name: "cc1".into(),
        }
    }

    #[test]
    fn a_row_has_the_difference_to_the_last_request() {
        let (before, mut after) = (known(500, 10, 3), known(750, 30, 90));
        after.decided.longest = Span::from_millis(4);
        let row = interval().row(&after, Some(&before));
        assert_eq!((row.cpu_pct, row.wakeups, row.decisions, row.wait_us), (25.0, 20, 87, 4_000));
        assert_eq!((row.tier.as_str(), row.rule.as_str()), ("batch", "deficit"));
        let half = Interval { elapsed: Span::from_millis(500), ..interval() };
        assert_eq!(half.row(&after, Some(&before)).wakeups, 40, "a second");
    }

    #[test]
    fn cpu_time_from_before_the_record_is_not_of_the_interval() {
        assert_eq!(interval().row(&known(9_000, 1, 0), None).cpu_pct, -1.0);
        let mut new = known(300, 1, 0);
        new.observed.start_time = at(100).as_nanos();
        assert_eq!(interval().row(&new, None).cpu_pct, 30.0);
        let incomplete = Interval { complete: false, ..interval() };
        assert_eq!(incomplete.row(&new, None).cpu_pct, -1.0);
    }

    #[test]
    fn the_rule_is_that_of_most_times() {
        let rule = |decisions, orders, idle| {
            Counts { decisions, orders, idle }.rule(Some(Reason::CodelRescue))
        };
        assert_eq!(rule(0, 0, 0), "", "it kept its CPU");
        assert_eq!(rule(5, 1, 4), "sojourn");
        assert_eq!(rule(5, 9, 4), "standing order");
        assert_eq!(rule(1, 0, 4), "idle CPU");
        assert_eq!(Counts { decisions: 0, orders: 0, idle: 1 }.rule(None), "idle CPU");
    }

    #[test]
    fn an_old_wait_is_not_of_the_interval() {
        let mut task = known(0, 1, 0);
        task.observed.last_wait = Span::from_millis(70);
        assert_eq!(interval().row(&task, None).wait_us, 0);
        task.observed.woken = at(5);
        assert_eq!(interval().row(&task, None).wait_us, 70_000);
    }

    #[test]
    fn without_the_kernel_s_records_the_queued_tasks_are_listed() {
        let shared = Arc::new(Shared::create().unwrap());
        let mut lister = TaskLister::of(Arc::clone(&shared), "fifo", MOST_FOR_USER);
        let name = |pid: i32| (pid == 7).then(|| "hog".to_owned());
        assert!(lister.list_at(at(0), &name).tasks.is_empty(), "the first has no interval");
        assert!(shared.tasks.are_wanted(at(1_999)), "until the next request is overdue");
        let pid = Pid::new(7).unwrap();
        for ms in 0..10 {
            shared.tasks.received(pid, at(ms * 100), at(0), ms % 2 == 0, None);
            shared.tasks.sent(pid, at(ms * 100 + 3), at(0), Tier::Batch, Reason::Order);
        }
        let list = lister.list_at(at(1_000), &name);
        let expected = Task {
            pid: 7,
            name: "hog".into(),
            tier: "batch".into(),
            rule: "order".into(),
            cpu_pct: -1.0,
            wakeups: 5,
            decisions: 10,
            wait_us: 3_000,
            ..Task::default()
        };
        assert_eq!((list.complete, list.tasks), (false, vec![expected]));
        assert!(lister.list_at(at(2_000), &name).tasks.is_empty(), "it slept");
    }

    #[test]
    fn a_long_list_has_the_tasks_that_were_busy_last() {
        let task = |index: usize| {
            let (last_event, is_busy) = (at(index as u64 * 7 % 100), index.is_multiple_of(50));
            let observed = Observed { index, last_event, is_busy, ..Observed::default() };
            Known { observed, ..Known::default() }
        };
        let kept = last_busy((0..100).map(task), 10);
        let indices: Vec<usize> = kept.iter().map(|known| known.observed.index).collect();
        let is_kept = |index: &usize| index * 7 % 100 >= 92 || index.is_multiple_of(50);
        assert_eq!(indices, (0..100).filter(is_kept).collect::<Vec<_>>());
        assert!(kept.capacity() < 20, "memory for more is given back");
        assert_eq!(last_busy((0..9).map(task), 10).len(), 9);
    }

    #[test]
    fn of_many_tasks_a_connection_keeps_only_so_many() {
        let shared = Arc::new(Shared::create().unwrap());
        let mut lister = TaskLister::of(Arc::clone(&shared), "fifo", MOST_FOR_GROUP);
        lister.list_at(at(0), &|_| None);
        for number in 1..4_000 {
            let pid = Pid::new(number).unwrap();
            shared.tasks.received(pid, at(1), at(0), true, None);
            shared.tasks.sent(pid, at(2), at(0), Tier::Batch, Reason::Order);
        }
        let list = lister.list_at(at(1_000), &|_| None);
        assert_eq!((list.tasks.len(), lister.before.len()), (MOST_FOR_GROUP, MOST_FOR_GROUP));
    }
}
