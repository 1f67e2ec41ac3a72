// SPDX-License-Identifier: GPL-2.0-only

//! What a task is to the policy and why, in sentences.

use super::Pandemonium;
use super::known::Task;
use core::fmt::{self, Write};
use pandemonium_engine::Explaining;
use pandemonium_engine::task::Pid;

impl Explaining for Pandemonium {
    fn explain(&self, pid: Pid, out: &mut dyn fmt::Write) -> fmt::Result {
        match self.table.find(pid) {
            Some(slot) => explain(self.table.data(slot), pid, out),
            None => Ok(()),
        }
    }
}

/// Writes the sentences.
fn explain(task: &Task, pid: Pid, out: &mut dyn Write) -> fmt::Result {
    let (behaviour, tier) = (&task.behaviour, task.classification.tier);
    write!(out, "{} (pid {}) is {tier:?}: ", task.comm, pid.as_raw())?;
    out.write_str(task.classification.reason())?;
    let young = if behaviour.is_mature() { "" } else { ", from few wakeups" };
    write!(
        out,
        ". It usually runs for {} us between two sleeps, give or take {} us, and wakes up {} times \
         in 100 ms: a score of {}{young}. Its weight is {}.",
        behaviour.run().as_micros(),
        behaviour.run_dev().as_micros(),
        behaviour.wake_freq(),
        behaviour.score(),
        task.weight.get(),
    )
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::knobs::Knobs;
    use pandemonium_engine::task::{Arrival, Cause, Comm, RawArrival};
    use pandemonium_engine::time::Stamp;
    use pandemonium_engine::treatment::TierDemand;
    use std::string::String;

    #[test]
    fn the_explanation_names_the_rule_that_made_the_tier() {
        let mut task = Task { comm: Comm::from_text("cc1"), ..Task::default() };
        let raw = RawArrival { pid: 40, weight: 100, enq_cnt: 2, ..RawArrival::default() };
        let arrival = Arrival { cause: Cause::Requeue, ..raw.decode().unwrap() };
        task.weight = arrival.weight;
        task.classification.cpu_bound = true;
        let now = Stamp::default();
        task.classification.update(
            now,
            &task.behaviour,
            &arrival,
            TierDemand::None,
            &Knobs::default(),
        );
        let mut text = String::new();
        explain(&task, arrival.pid, &mut text).unwrap();
        let expected = "cc1 (pid 40) is Batch: it has used up its slices for longer than it \
            usually runs. It usually runs for ";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with("from few wakeups. Its weight is 100."), "{text}");
    }
}
