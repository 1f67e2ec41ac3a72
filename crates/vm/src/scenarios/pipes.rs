// SPDX-License-Identifier: GPL-2.0-only

//! Pairs of tasks that pass a byte to and fro, beside very many hogs.

use crate::guest::load::{Kind, Load, Worker};
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, report};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::thread::sleep;
use std::time::Duration;

pub const ALL: &[Scenario] = &[Scenario {
    name: "equal-pipes",
    about: "of two equal pipes beside twelve hogs a CPU none makes twice as many round trips as \
        the other. In exact mode, so that no share depends on the host",
    cpus: Some(2),
    limit_s: 60,
    exact: true,
    once: true,
    run: equal_pipes,
    ..USUAL
}];

const HOGS_PER_CPU: usize = 12;
/// By then the tasks of the load are classified.
const SETTLE: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);
const SECONDS: u32 = 4;

fn equal_pipes(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let mut plan = vec![Kind::PipePair; 2];
    plan.extend(vec![Kind::Hog; HOGS_PER_CPU * guest.cpus]);
    let load = Load::start(&plan)?;
    let is_pipe = |worker: &&Worker| matches!(worker.kind, Kind::PipePair);
    let ends = load.workers().iter().filter(is_pipe).count();
    sleep(SETTLE);
    for _ in 0..SECONDS {
        let steps = load.steps_in(SECOND);
        let (trips, work) = steps.split_at(ends);
        report::note(format!(
            "round trips {trips:?}, work of the hogs {}",
            work.iter().sum::<u64>()
        ));
        let least = trips.iter().min().context("the load has no pipe")?;
        let most = trips.iter().max().context("the load has no pipe")?;
        ensure!(2 * least > *most, "in one second two equal pipes made {trips:?} round trips");
    }
    drop(load);
    scheduler.finish().map(drop)
}
