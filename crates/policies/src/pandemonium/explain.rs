// SPDX-License-Identifier: GPL-2.0-only

//! What a task is to the policy and why, in sentences.

use super::Pandemonium;
use super::known::Task;
use core::fmt::{self, Write};
use pandemonium_engine::Explaining;
use pandemonium_engine::task::{Pid, Tier};

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
    write_reason(task, out)?;
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

fn write_reason(task: &Task, out: &mut dyn Write) -> fmt::Result {
    let its = &task.classification;
    match its.named {
        _ if task.weight.get() == 1 => {
            out.write_str("its class or nice value lets every task pass")
        }
        _ if its.treatment > 0 => out.write_str("a rule of the user applies to its process"),
        Some(_) => out.write_str("its name says so"),
        None if its.cpu_bound && its.tier == Tier::Batch => {
            out.write_str("it has used up its slices for longer than it usually runs")
        }
        None if its.over_share && its.tier == Tier::Batch => out.write_str(
            "it takes a large part of the machine while tasks that compute get next to nothing",
        ),
        None if its.tier != its.behaves => {
            write!(out, "behaviour alone would make it {:?}", its.behaves)
        }
        None => out.write_str("its behaviour says so"),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use pandemonium_engine::task::{Comm, Weight};
    use std::string::String;

    fn explained(change: fn(&mut Task)) -> String {
        let mut task = Task { comm: Comm::from_text("cc1"), ..Task::default() };
        task.weight = Weight::new(100);
        (task.classification.tier, task.classification.behaves) = (Tier::Batch, Tier::Batch);
        change(&mut task);
        let mut text = String::new();
        explain(&task, Pid::new(40).unwrap(), &mut text).unwrap();
        text
    }

    #[test]
    fn the_explanation_names_the_reason_for_the_tier() {
        let cpu_bound = explained(|task| task.classification.cpu_bound = true);
        let expected = "cc1 (pid 40) is Batch: it has used up its slices for longer than it \
            usually runs. It usually runs for ";
        assert!(cpu_bound.starts_with(expected), "{cpu_bound}");
        assert!(cpu_bound.ends_with("from few wakeups. Its weight is 100."), "{cpu_bound}");
        let over_share = explained(|task| task.classification.over_share = true);
        assert!(over_share.contains("is Batch: it takes a large part of the machine"));
        let behaves = explained(|task| task.classification.behaves = Tier::Interactive);
        assert!(behaves.contains("behaviour alone would make it Interactive"), "{behaves}");
        let ruled = explained(|task| task.classification.treatment = 1);
        assert!(ruled.contains("a rule of the user applies"), "{ruled}");
        assert!(explained(|_| ()).contains("its behaviour says so"));
        assert!(explained(|task| task.weight = Weight::new(1)).contains("lets every task pass"));
    }
}
