// SPDX-License-Identifier: GPL-2.0-only

//! Threads that look on while a worker schedules. They end with the process.

use crate::adaptive::IdleTime;
use crate::cli::Options;
use crate::event_log::EventLog;
use crate::group_socket::GroupSocket;
use crate::hotplug::CpuFollower;
use crate::mutex::lock;
use crate::reading::Reading;
use crate::rules::RuleKeeper;
use crate::silence::{Seen, Silence, Verdict};
use crate::stats::{self, Source};
use crate::upgrade::Handover;
use crate::{output, stalls, telemetry, urgent_cpus};
use pandemonium_engine::adapting::INTERVAL;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_host::failure::Failure;
use pandemonium_host::preflight;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How often it looks whether the worker schedules.
const GLANCE: Duration = Duration::from_millis(10);
/// The interval of the adaptive loop.
const SECOND: Duration = Duration::from_nanos(INTERVAL.as_nanos());

/// Starts what looks on while the worker schedules: lines of statistics, the adaptive loop with its
/// log, rules for processes.
pub fn observe(options: &Options, source: &Source) -> Result<Arc<Mutex<EventLog>>, Failure> {
    if let Some(seconds) = options.stats {
        report_every(Duration::from_secs_f64(seconds), source.clone());
    }
    let log = adapt_every_second(options, source)?;
    source.rules.iter().for_each(RuleKeeper::start);
    urgent_cpus::keep(options, Arc::clone(&source.shared));
    Ok(log)
}

/// Starts a thread without which the scheduler runs too, and warns if the kernel refuses it.
fn start(name: &str, work: impl FnOnce() + Send + 'static) {
    if let Err(error) = thread::Builder::new().name(name.into()).spawn(work) {
        output::warn(&format!("the thread {name:?} could not be started: {error}"));
    }
}

/// Serves statistics as soon as the worker schedules, from threads that end with the process. Not
/// before: the socket of a scheduler that may yet be refused would replace that of the one that
/// runs. If the worker fails to load beside an earlier program's worker, which schedules, they are
/// served too. Without its socket, the scheduler runs without statistics, and warns. When the
/// worker schedules, an upgrade from `earlier` is complete.
pub fn serve_when_it_schedules(
    source: Source,
    groups: Vec<GroupSocket>,
    earlier: Option<&Handover>,
) {
    let version = earlier.map(|earlier| earlier.version.clone());
    start("serve", move || {
        wait_until(|| source.rounds() > 0 || source.restarts.count() > 0);
        let to_groups = groups.iter().map(|group| stats::serve_group(source.clone(), group));
        for served in to_groups.chain([stats::serve(source.clone())]) {
            if let Err(error) = served {
                output::warn(&format!("statistics are not served: {error:#}"));
            }
        }
        if let Some(version) = version {
            wait_until(|| source.rounds() > 0);
            tell_of_upgrade(&version, &source);
        }
    });
}

fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::sleep(GLANCE);
    }
}

/// Says how long an upgrade took, once the new worker has counted that.
fn tell_of_upgrade(version: &str, source: &Source) {
    let counted = source.shared.counters.read();
    let (unloaded, undecided) =
        (Span::from_nanos(counted.unloaded_ns), Span::from_nanos(counted.undecided_ns));
    output::print(&format!(
        "upgraded from {version}: the kernel's own scheduler ran the tasks for {unloaded}, and the \
         first decision came after {undecided}"
    ));
}

/// Prints a line every `interval`, from a thread that ends with the process.
fn report_every(interval: Duration, source: Source) {
    start("report", move || {
        let mut before = source.read();
        loop {
            thread::sleep(interval);
            let after = source.read();
            output::print(&telemetry::line(&source.metrics(&before, &after)));
            before = after;
        }
    });
}

/// Starts a thread that executes the adaptive loop and appends to the log once a second. With
/// `--verbose`, and without `--stats`, it prints a line about each second that is worth one. It
/// also ends a worker that does not notice its ejection, so no scheduler runs without it.
fn adapt_every_second(options: &Options, source: &Source) -> Result<Arc<Mutex<EventLog>>, Failure> {
    let log = Arc::new(Mutex::new(EventLog::default()));
    let (source, log_of_thread) = (source.clone(), Arc::clone(&log));
    let (options, print) = (options.clone(), options.verbose && options.stats.is_none());
    let look_on = move || {
        let (mut cpus, mut silence) = (CpuFollower::default(), Silence::default());
        let mut before = source.read();
        let mut idle_before = IdleTime::read(before.at);
        loop {
            thread::sleep(SECOND);
            let after = source.read();
            let idle = IdleTime::read(after.at);
            source.adaptive.runs(after.at);
            end_silence(&mut silence, &source, &after);
            if after.numbers.rounds == 0 {
                // The worker is still loading.
                (before, idle_before) = (after, idle);
                continue;
            }
            cpus.follow(&options, &source, after.numbers.cpus);
            let share = idle.zip(idle_before).and_then(|(now, then)| now.share_since(&then));
            source.adaptive.step(&before, &after, share);
            if let Some(told) = stalls::between(&before, &after) {
                output::warn(&told);
            }
            let metrics = source.metrics(&before, &after);
            lock(&log_of_thread).push(after.at, &metrics);
            if print && source.adaptive.status().report.worth_a_line {
                output::print(&telemetry::line(&metrics));
            }
            (before, idle_before) = (after, idle);
        }
    };
    thread::Builder::new().name("adapt".into()).spawn(look_on).map_err(Failure::internal)?;
    Ok(log)
}

/// Tells of a worker that does not come back from a round, and ends it if it schedules no more.
fn end_silence(silence: &mut Silence, source: &Source, reading: &Reading) {
    // Before the first round there is no gap between two.
    let last = match reading.numbers.rounds {
        0 => reading.at,
        _ => Stamp::from_nanos(reading.numbers.last_round_ns),
    };
    let (loaded, ours) = (preflight::loaded(), source.worker.scheduler());
    let seen = Seen {
        now: reading.at,
        worker: source.worker.pid(),
        gap: reading.at.since(last),
        loaded: loaded.as_deref(),
        ours: &ours,
    };
    match silence.look(&seen) {
        Verdict::Nothing => {}
        Verdict::Tell(gap) => output::warn(&format!(
            "the scheduling process has not decided for {gap}: the backend schedules by itself"
        )),
        Verdict::End => seen.worker.into_iter().for_each(|pid| source.worker.end_silent(pid)),
    }
}
