// SPDX-License-Identifier: GPL-2.0-only

//! The last worker's memos of tasks, as a table.

use super::procdb_file::text::tier_name;
use pandemonium_engine::Memo;
use std::fmt::Write as _;

/// The highest tier first, then by name. A worker that was killed leaves no memos, nor does a
/// policy that learns nothing.
pub fn table(memos: impl Iterator<Item = Memo>) -> String {
    let mut tasks: Vec<Memo> = memos.collect();
    tasks.sort_by(|a, b| (b.tier, a.comm, a.pid).cmp(&(a.tier, b.comm, b.pid)));
    let mut text = format!("{:>10} {:<15} {:<12} {:>9}\n", "PID", "NAME", "TIER", "USUAL RUN");
    for task in &tasks {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:>10} {:<15} {:<12} {:>9}",
            task.pid.as_raw(),
            task.comm.to_string(),
            tier_name(task.tier),
            task.run.to_string(),
        );
    }
    let _ = write!(text, "{} tasks were known", tasks.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use pandemonium_engine::task::{Comm, Pid, Tier};
    use pandemonium_engine::time::Span;

    #[test]
    fn tasks_are_sorted_by_tier_name_and_pid() {
        let memo = |pid, name, tier, us| Memo {
            pid: Pid::new(pid).unwrap(),
            comm: Comm::from_text(name),
            tier,
            run: Span::from_micros(us),
        };
        let text = table(
            [
                memo(7, "cc1", Tier::Batch, 99_000),
                memo(40, "audio", Tier::LatCritical, 300),
                memo(6, "cc1", Tier::Batch, 50_000),
                memo(4_194_303, "fifteen-letters", Tier::Interactive, 4_000),
                memo(5, "a \x1b[2J", Tier::Batch, 1),
            ]
            .into_iter(),
        );
        let expected = "       PID NAME            TIER         USUAL RUN
        40 audio           lat-critical     300us
   4194303 fifteen-letters interactive        4ms
         5 a ?[2J          batch              1us
         6 cc1             batch             50ms
         7 cc1             batch             99ms
5 tasks were known";
        assert_eq!(text, expected);
        assert!(table(std::iter::empty()).ends_with("\n0 tasks were known"));
    }
}
