// SPDX-License-Identifier: GPL-2.0-only

//! Wakeups by a task that this scheduler does not schedule.

use super::held_up;
use crate::guest::load::{Kind, Load};
use crate::guest::probe::Samples;
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, clock, watch};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, bail, ensure};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::thread;
use std::time::Duration;

pub const ALL: &[Scenario] = &[Scenario {
    name: "real-time-waker",
    about: "a real-time task interrupts hogs and wakes a task through a pipe, as a sound server \
        does with its clients: no wakeup waits for the hog that was interrupted. In exact mode: a \
        busy host would delay every wakeup",
    cpus: Some(2),
    limit_s: 90,
    exact: true,
    once: true,
    run: real_time_waker,
    ..USUAL
}];

/// By then the tasks of the load are classified.
const SETTLE: Duration = Duration::from_secs(1);
const WAKEUPS: usize = 300;
/// The first ones are those of a task that is not known yet.
const WARM_UP: usize = 20;
const PAUSE: Duration = Duration::from_millis(3);
/// The longest wakeup, in us. Half of them took 541 when the wakee waited behind the hog that the
/// waker had preempted, until a recheck.
const WORST_US: f64 = 1_000.0;

fn real_time_waker(guest: &Guest) -> Result<()> {
    // Its slices are long, so that a hog that is waited for is noticed.
    let scheduler = Scheduler::start(guest, &["--profile", "server"])?;
    let load = Load::start(&vec![Kind::Hog; 2 * guest.cpus])?;
    load.steps_in(SETTLE);
    let (reader, writer) = pipe().context("a pipe")?;
    // An ordinary task: threads of the agent do not inherit its real-time priority.
    let wakee = thread::Builder::new().name("wakee".into()).spawn(move || receive(reader));
    let wakee = wakee.context("starting a task")?;
    wake(writer)?;
    let mut late_ns = match wakee.join() {
        Ok(times) => times?,
        Err(_) => bail!("the wakee panicked"),
    };
    ensure!(late_ns.len() == WAKEUPS, "{} of {WAKEUPS} wakeups were measured", late_ns.len());
    late_ns.drain(..WARM_UP);
    let waits = Samples::of_times(late_ns);
    held_up::report_waits(&waits);
    let worst = waits.worst_us();
    ensure!(worst <= WORST_US, "a wakeup by a real-time task took {worst:.0} us");
    watch::every_worker_moves(&load, 2, |_| scheduler.expect_in_charge())?;
    drop(load);
    scheduler.finish().map(drop)
}

/// Wakes the reader again and again: it writes when it does so. The agent is a real-time task.
fn wake(mut writer: PipeWriter) -> Result<()> {
    for _ in 0..WAKEUPS {
        thread::sleep(PAUSE);
        writer.write_all(&clock::now_ns().to_ne_bytes()).context("writing into the pipe")?;
    }
    Ok(())
}

/// How late each wakeup was, in nanoseconds.
fn receive(mut reader: PipeReader) -> Result<Vec<u64>> {
    let mut late_ns = Vec::with_capacity(WAKEUPS);
    let mut sent = [0; size_of::<u64>()];
    while reader.read_exact(&mut sent).is_ok() {
        late_ns.push(clock::now_ns() - u64::from_ne_bytes(sent));
    }
    Ok(late_ns)
}
