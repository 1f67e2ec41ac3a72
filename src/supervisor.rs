// SPDX-License-Identifier: GPL-2.0-only

//! The process that the user starts. It starts the worker, restarts it when the kernel asks for
//! that, passes signals on, prints, and reports how the worker ended.

use super::adaptive::{Adaptive, Change, IdleTime};
use super::cli::{self, Options};
use super::event_log::EventLog;
use super::machine::Machine;
use super::metrics::Metrics;
use super::mutex::lock;
use super::programs::{self, Programs, Saver};
use super::reading::Reading;
use super::record::{self, Recording};
use super::restarts::{Ended, Next, Restarts};
use super::rules::RuleKeeper;
use super::shared::Shared;
use super::stats::{self, Source};
use super::worker_process::{End, WorkerProcess};
use super::{
    clock, instance, output, privileges, process, report, settings, stalls, tasks, telemetry,
    worker,
};
use anyhow::anyhow;
use pandemonium_engine::adapting::INTERVAL;
use pandemonium_engine::knobs::{KeySet, KnobProfile, Values};
use pandemonium_host::durable;
use pandemonium_host::ejection::Ejection;
use pandemonium_host::failure::Failure;
use pandemonium_host::preflight;
use pandemonium_rules::Rules;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How often it looks whether the worker schedules.
const GLANCE: Duration = Duration::from_millis(10);
/// Seconds of the log that a report has.
const LAST_SECONDS: usize = 60;
/// The interval of the adaptive loop.
const SECOND: Duration = Duration::from_nanos(INTERVAL.as_nanos());

/// Runs the scheduler until it ends.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    let (knobs, chosen) = settings::knobs(options)?;
    settings::profile(options)?;
    Rules::read(&options.rules).map_err(Failure::Usage)?;
    if options.primary_domain.is_some() {
        settings::domain(options, &Machine::observe()?)?;
    }
    preflight::check()?;
    restrict_new_files();
    let _instance = instance::take()?;
    let source = source(options, knobs, chosen)?;
    let recording = options.record.as_deref().map(record::create).transpose()?;
    if !preflight::missing_capabilities("/".as_ref(), &privileges::WISHED).is_empty() {
        output::warn(
            "without CAP_SYS_NICE a start takes seconds on a busy machine, and signals are handled \
             late: `scx_pandemonium_user check`",
        );
    }
    privileges::supervise(source.programs.is_foreign());
    let worker = Arc::new(WorkerProcess::default());
    let handler = Arc::clone(&worker);
    let partial = options.partial;
    ctrlc::set_handler(move || handler.interrupt(partial)).map_err(Failure::internal)?;
    // The signal thread is the only other one so far. It must run while no decisions come.
    process::make_others_real_time();
    output::detach();
    let start = |file| {
        let shared = Arc::clone(&source.shared);
        Recording::start(file, options.redact, source.policy.name, shared)
    };
    let recording = recording.map(start).transpose()?;
    output::print(&cli::version());
    serve_when_it_schedules(source.clone());
    if let Some(seconds) = options.stats {
        report_every(Duration::from_secs_f64(seconds), source.clone());
    }
    let log = adapt_every_second(&source, options.verbose && options.stats.is_none());
    source.rules.iter().for_each(RuleKeeper::start);
    let saver = Saver::start(Arc::clone(&source.programs));
    let started = source.read();
    let outcome = keep_running(options, &worker, &source, &saver);
    let mut ended = source.read();
    // It is over now, which is no fault.
    ended.driver.is_unloaded = false;
    let whole_run = source.metrics(&started, &ended);
    output::print(&telemetry::line(&whole_run));
    output::print(&telemetry::knobs_line(&source.adaptive.status().report, &whole_run));
    if options.dump_log {
        output::print(&lock(&log).to_string());
    }
    if options.dump_tasks {
        output::print(&tasks::table(source.shared.take_memos()));
    }
    recording.map(Recording::finish).iter().for_each(|summary| output::print(summary));
    saver.finish();
    let Some(ejection) = source.shared.ejection.take() else { return outcome };
    report(
        options,
        &ejection,
        format!("{}\n{}", counters(&source, &whole_run), lock(&log).tail(LAST_SECONDS)),
    );
    Err(Failure::Ejected(ejection.sentence()))
}

/// Writes a report of an ejection, beside the process database, and says where it is.
fn report(options: &Options, ejection: &Ejection, counters: String) {
    let version = cli::version();
    let words =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let path = programs::path(options.procdb.as_deref());
    let facts = report::Facts { version, words, counters };
    match report::write(durable::parent(&path), ejection, &facts) {
        Ok(path) => output::print(&format!(
            "a report without names of programs, to attach to a bug: {}",
            path.display()
        )),
        Err(error) => output::warn(&format!("no report of the ejection was written: {error:#}")),
    }
}

/// The counters of the whole run.
fn counters(source: &Source, whole_run: &Metrics) -> String {
    let knobs = telemetry::knobs_line(&source.adaptive.status().report, whole_run);
    let numbers = source.shared.counters.read();
    format!("{}\n{knobs}\n{numbers:#?}\n", telemetry::line(whole_run))
}

fn source(options: &Options, start: Values, chosen: KeySet) -> Result<Source, Failure> {
    let policy = options.policy();
    let cpus = settings::cpus(options, &Machine::observe()?);
    let shared = match options.record {
        Some(_) => Shared::with_ring(options.record_buffer),
        None => Shared::create(),
    };
    let shared = Arc::new(shared.map_err(Failure::internal)?);
    let path = (!options.no_procdb).then(|| programs::path(options.procdb.as_deref()));
    let control = (policy.adapting)(cpus, start, chosen);
    let adaptive = Adaptive::new(Arc::clone(&shared), control, policy.profiles);
    if let Some(profile) = settings::profile(options)? {
        start_with_profile(&adaptive, profile).map_err(Failure::Usage)?;
    }
    Ok(Source {
        policy,
        adaptive: Arc::new(adaptive),
        programs: Arc::new(Programs::load(Arc::clone(&shared), path)),
        rules: RuleKeeper::load(&options.rules, Arc::clone(&shared))?,
        restarts: Arc::default(),
        shared,
    })
}

/// Applies the profile of the command line, and says which knobs of the user win over it.
fn start_with_profile(adaptive: &Adaptive, profile: &'static KnobProfile) -> Result<(), String> {
    let release = KeySet::none(adaptive.status().values.table());
    adaptive.tune(&Change { set: "", release, profile: Some((profile, "--profile")) })?;
    let status = adaptive.status();
    for (knob, word) in status.values.iter() {
        if status.pinned.holds(knob.name) && status.profile.value_of(knob).is_some() {
            output::print(&format!(
                "{}={} as you set it: the profile {} does not change it",
                knob.name,
                knob.show(word),
                profile.name
            ));
        }
    }
    Ok(())
}

/// Sets the umask: only this user may write to the statistics socket, because its clients can
/// change knobs.
fn restrict_new_files() {
    // SAFETY: a plain system call that cannot fail.
    unsafe { libc::umask(0o022) };
}

/// Starts workers until one ends without asking for a restart.
fn keep_running(
    options: &Options,
    worker: &WorkerProcess,
    source: &Source,
    saver: &Saver,
) -> Result<ExitCode, Failure> {
    let sysctl = Sysctl::save();
    let mut restarts = Restarts::default();
    loop {
        let (started, rounds) = (Instant::now(), source.rounds());
        let status = match worker.run(&source.shared)? {
            End::Exited(status) => status,
            End::Killed => {
                sysctl.restore();
                output::warn("the scheduling process did not end within 3 s, and was killed");
                return Ok(ExitCode::SUCCESS);
            }
            End::NotStarted => return Ok(ExitCode::SUCCESS),
        };
        sysctl.restore();
        saver.save();
        let scheduled = source.rounds() > rounds;
        let ended = Ended { code: status.code(), scheduled, lived: started.elapsed() };
        let next = restarts.after(&ended);
        if next == Next::End || worker.is_stopping() {
            return end(status, worker.is_stopping());
        }
        preflight::expect_none_loaded()?;
        let pause = match next {
            Next::Retry { failures, pause } => {
                let ms = pause.as_millis();
                output::print(&format!(
                    "CPUs go on- or offline, and {failures} starts in a row have failed: starting \
                     again in {ms} ms"
                ));
                pause
            }
            Next::Restart(pause) => {
                output::print(
                    "the kernel asked for a restart (a CPU went on- or offline): starting again",
                );
                pause
            }
            Next::GiveUp | Next::End => return end(status, false),
        };
        source.restarts.add(clock::now());
        worker.wait_unless_stopping(pause);
        // While a CPU goes, the kernel's files may contradict each other: then the old number of
        // CPUs stays until the next restart.
        if let Ok(machine) = Machine::observe() {
            source.adaptive.on_hotplug(settings::cpus(options, &machine));
        }
    }
}

/// The exit code or failure for a worker that has ended. Unless a signal killed it, it has printed
/// the reason itself.
fn end(status: ExitStatus, stopping: bool) -> Result<ExitCode, Failure> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(ExitCode::SUCCESS),
        (Some(code), _) if code == i32::from(worker::RESTART) && stopping => Ok(ExitCode::SUCCESS),
        (Some(code), _) if code == i32::from(worker::RESTART) => Err(Failure::Internal(anyhow!(
            "CPUs went on- or offline during every start, and the kernel's own scheduler has taken \
             over"
        ))),
        (Some(code), _) => Ok(ExitCode::from(code.clamp(1, 255) as u8)),
        // The signal came while the worker was loading.
        (None, Some(libc::SIGINT | libc::SIGTERM | libc::SIGHUP)) if stopping => {
            Ok(ExitCode::SUCCESS)
        }
        (None, signal) => Err(Failure::Internal(anyhow!(
            "the scheduling process was killed by signal {}, and the kernel's own scheduler has \
             taken over",
            signal.unwrap_or(0)
        ))),
    }
}

/// Serves statistics as soon as the worker schedules, from threads that end with the process. Not
/// before: the socket of a scheduler that may yet be refused would replace that of the one that
/// runs. Without its socket, the scheduler runs without statistics, and warns.
fn serve_when_it_schedules(source: Source) {
    thread::spawn(move || {
        while source.rounds() == 0 {
            thread::sleep(GLANCE);
        }
        match stats::serve(source) {
            // To drop the server would end it.
            Ok(server) => std::mem::forget(server),
            Err(error) => output::warn(&format!("statistics are not served: {error:#}")),
        }
    });
}

/// Prints a line every `interval`, from a thread that ends with the process.
fn report_every(interval: Duration, source: Source) {
    thread::spawn(move || {
        let mut before: Reading = source.read();
        loop {
            thread::sleep(interval);
            let after = source.read();
            output::print(&telemetry::line(&source.metrics(&before, &after)));
            before = after;
        }
    });
}

/// Starts a thread that executes the adaptive loop and appends to the log once a second. With
/// `print` it prints a line about each second that is worth one.
fn adapt_every_second(source: &Source, print: bool) -> Arc<Mutex<EventLog>> {
    let log = Arc::new(Mutex::new(EventLog::default()));
    let (source, log_of_thread) = (source.clone(), Arc::clone(&log));
    thread::spawn(move || {
        let mut before = source.read();
        let mut idle_before = IdleTime::read(before.at);
        loop {
            thread::sleep(SECOND);
            let after = source.read();
            let idle = IdleTime::read(after.at);
            source.adaptive.runs(after.at);
            if after.numbers.rounds == 0 {
                // The worker is still loading.
                (before, idle_before) = (after, idle);
                continue;
            }
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
    });
    log
}

/// The kernel setting that scx_rustland_core changes in a worker. The supervisor restores it,
/// because a killed worker cannot.
struct Sysctl(Option<String>);

impl Sysctl {
    const PATH: &str = "/proc/sys/vm/compact_unevictable_allowed";

    fn save() -> Sysctl {
        Sysctl(std::fs::read_to_string(Self::PATH).ok())
    }

    fn restore(&self) {
        let Some(saved) = &self.0 else { return };
        if std::fs::read_to_string(Self::PATH).is_ok_and(|now| now != *saved) {
            // A failure is harmless: the setting only decides whether the kernel may compact locked
            // memory, which costs some latency.
            let _ = std::fs::write(Self::PATH, saved);
        }
    }
}
