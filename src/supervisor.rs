// SPDX-License-Identifier: GPL-2.0-only

//! The process that the user starts. It starts the worker, restarts it when the kernel asks for
//! that, passes signals on, prints, and reports how the worker ended.

use super::adaptive::{Adaptive, Change, IdleTime};
use super::cli::{self, Options, UrgentWish};
use super::event_log::EventLog;
use super::group_socket::{Grant, GroupSocket};
use super::hotplug::CpuFollower;
use super::instance::{self, Instance};
use super::kernel_setting::KernelSetting;
use super::machine::Machine;
use super::mutex::lock;
use super::programs::{self, Programs, Saver};
use super::reading::Reading;
use super::record::{self, Recording};
use super::restarts::{Ended, Next, Restarts};
use super::rules::RuleKeeper;
use super::shared::Shared;
use super::silence::{Seen, Silence, Verdict};
use super::stats::{self, Source};
use super::upgrade::{self, Handover};
use super::urgent_cpus;
use super::worker_process::End;
use super::{
    clock, compaction, output, privileges, process, settings, stalls, summary, syscalls, takeover,
    telemetry, worker,
};
use anyhow::anyhow;
use pandemonium_engine::adapting::INTERVAL;
use pandemonium_engine::knobs::{KeySet, KnobProfile};
use pandemonium_engine::time::{Span, Stamp};
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
/// The interval of the adaptive loop.
const SECOND: Duration = Duration::from_nanos(INTERVAL.as_nanos());

/// Checks the options against each other, the files that they name, and the machine.
pub fn check(options: &Options) -> Result<(), Failure> {
    settings::knobs(options)?;
    settings::profile(options)?;
    Rules::read(&options.rules).map_err(Failure::Usage)?;
    if options.primary_domain.is_some() {
        settings::domain(options, &Machine::observe()?)?;
    } else if options.urgent_cpus != UrgentWish::Auto {
        urgent_cpus::preferred(options, &Machine::observe()?)?;
    }
    Ok(())
}

/// Runs the scheduler until it ends.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    let earlier = Handover::inherited()?;
    upgrade::block_signal();
    let program = upgrade::own_path(earlier.as_ref())?;
    process::name_this(&program);
    check(options)?;
    if earlier.is_none() {
        preflight::check()?;
    }
    restrict_new_files();
    let instance = match earlier.as_ref().and_then(|earlier| earlier.lock) {
        Some(lock) => Some(Instance::adopt(lock)),
        None => instance::take()?,
    };
    let machine = Machine::observe()?;
    let source = source(options, &machine, earlier.as_ref())?;
    let groups = group_sockets(options)?;
    let recording = options.record.as_deref().map(record::create).transpose()?;
    warn_of_missing_privileges();
    process::outlive_lack_of_memory();
    privileges::supervise(source.programs.is_foreign());
    forbid_system_calls(earlier.as_ref());
    let handler = Arc::clone(&source.worker);
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
    urgent_cpus::begin(options, &machine, &source.shared)?;
    source.shared.topology.publish(&machine.topology());
    let candidates = upgrade::serve(options, program.clone(), source.clone());
    serve_when_it_schedules(source.clone(), groups, earlier.as_ref());
    let log = observe(options, &source);
    let saver = Saver::start(Arc::clone(&source.programs));
    let started = source.read();
    let compaction = compaction_before(earlier.as_ref());
    let outcome = match keep_running(&source, &saver, &compaction, earlier) {
        Ok(Finish::Upgrade(pid)) => {
            let lock = instance.as_ref().map(Instance::hand_on);
            let before = compaction.before().map(str::to_owned);
            let handover = Handover::of(&source, &program, pid, lock, before);
            saver.finish();
            output::finish();
            if let Some(failure) = upgrade::execute(&handover, &candidates, &source.worker) {
                return Err(failure);
            }
            source.worker.wait_for_end();
            compaction.restore();
            return Ok(ExitCode::SUCCESS);
        }
        Ok(Finish::Exit(code)) => Ok(code),
        Err(failure) => Err(failure),
    };
    let summary = summary::print(options, &source, &started, &log);
    recording.map(Recording::finish).iter().for_each(|summary| output::print(summary));
    saver.finish();
    let Some(ejection) = source.shared.ejection.take() else { return outcome };
    summary::report(options, &ejection, summary);
    Err(Failure::Ejected(ejection.sentence()))
}

/// Starts what looks on while the worker schedules: lines of statistics, the adaptive loop with its
/// log, rules for processes.
fn observe(options: &Options, source: &Source) -> Arc<Mutex<EventLog>> {
    if let Some(seconds) = options.stats {
        report_every(Duration::from_secs_f64(seconds), source.clone());
    }
    let log = adapt_every_second(options, source);
    source.rules.iter().for_each(RuleKeeper::start);
    urgent_cpus::keep(options, Arc::clone(&source.shared));
    log
}

fn source(
    options: &Options,
    machine: &Machine,
    earlier: Option<&Handover>,
) -> Result<Source, Failure> {
    let (start, chosen) = settings::knobs(options)?;
    let policy = options.policy();
    let cpus = settings::cpus(options, machine);
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
    let source = Source {
        policy,
        adaptive: Arc::new(adaptive),
        programs: Arc::new(Programs::load(Arc::clone(&shared), path)),
        rules: RuleKeeper::load(&options.rules, Arc::clone(&shared))?,
        restarts: Arc::default(),
        worker: Arc::default(),
        upgrades: earlier.map_or(0, |earlier| earlier.upgrades + 1),
        shared,
    };
    if let Some(earlier) = earlier {
        earlier.restore(&source).iter().for_each(|why| output::warn(why));
    }
    Ok(source)
}

/// Applies the profile of the command line, and says which knobs of the user win over it.
fn start_with_profile(adaptive: &Adaptive, profile: &'static KnobProfile) -> Result<(), String> {
    let release = KeySet::none(adaptive.table());
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

/// The sockets for groups.
fn group_sockets(options: &Options) -> Result<Vec<GroupSocket>, Failure> {
    let wishes =
        [(&options.stats_group, Grant::Statistics), (&options.profile_group, Grant::Profile)];
    let given = wishes.into_iter().filter_map(|(group, grant)| Some((group.as_deref()?, grant)));
    given.map(|(group, grant)| GroupSocket::prepare(group, grant)).collect()
}

/// Sets the umask: only this user may write to the statistics socket, because its clients can
/// change knobs.
fn restrict_new_files() {
    // SAFETY: a plain system call that cannot fail.
    unsafe { libc::umask(0o022) };
}

fn warn_of_missing_privileges() {
    if !preflight::missing_capabilities("/".as_ref(), &privileges::WISHED).is_empty() {
        output::warn(
            "without CAP_SYS_NICE a start takes seconds on a busy machine: see \
             `scx_pandemonium_user check`",
        );
    }
}

/// From now on neither this process nor one that it executes makes the system calls that none of
/// them needs. After an upgrade the filter of the earlier program remains, if it had one: each
/// further one would cost time in every call.
fn forbid_system_calls(earlier: Option<&Handover>) {
    if earlier.is_some_and(|earlier| earlier.is_filtered) {
        return;
    }
    if let Err(error) = syscalls::supervise() {
        output::warn(&format!("system calls that are never needed are not refused: {error}"));
    }
}

/// Waits for the end of the earlier program's worker, in a thread that ends with the process. That
/// worker restores a kernel setting at its end, which the new worker needs to be 0.
fn reap(earlier: i32) {
    thread::spawn(move || {
        // SAFETY: a plain system call, on a child of this process.
        unsafe { libc::waitpid(earlier, std::ptr::null_mut(), 0) };
        // A failure costs some latency: the kernel may move locked memory.
        let _ = compaction::OFF.apply();
    });
}

/// Why no further worker is started.
enum Finish {
    Exit(ExitCode),
    /// Another program takes over from this worker, which goes on.
    Upgrade(i32),
}

/// Starts workers until one ends without asking for a restart. The first takes over from the worker
/// of an earlier program.
fn keep_running(
    source: &Source,
    saver: &Saver,
    compaction: &KernelSetting,
    earlier: Option<Handover>,
) -> Result<Finish, Failure> {
    let worker = &source.worker;
    let mut restarts = Restarts::default();
    let mut replaced = earlier.map(|earlier| earlier.worker);
    replaced.into_iter().for_each(reap);
    loop {
        let (started, rounds) = (Instant::now(), source.rounds());
        let grace_periods = replaced.map(|_| takeover::grace_periods());
        let outcome = worker.run(&source.shared, replaced.take())?;
        // A worker that goes on needs the setting.
        if !matches!(outcome, End::Upgraded(_)) {
            compaction.restore();
        }
        let status = match outcome {
            End::Exited(status) => status,
            End::Killed => {
                grace_periods.iter().for_each(KernelSetting::restore);
                output::warn("the scheduling process did not end at the signal, and was killed");
                return Ok(Finish::Exit(ExitCode::SUCCESS));
            }
            End::Silent => {
                return Err(Failure::Ejected(
                    "the scheduling process did not notice it for 20 s, and was killed; the \
                     kernel's log has the reason (`dmesg | grep sched_ext`)"
                        .into(),
                ));
            }
            End::NotStarted => return Ok(Finish::Exit(ExitCode::SUCCESS)),
            End::Upgraded(worker) => return Ok(Finish::Upgrade(worker)),
        };
        let scheduled = source.rounds() > rounds;
        if !scheduled && status.signal().is_some() {
            grace_periods.iter().for_each(KernelSetting::restore);
        }
        saver.save();
        let ended = Ended { code: status.code(), scheduled, lived: started.elapsed() };
        let next = restarts.after(&ended);
        if next == Next::End || worker.is_stopping() {
            return end(status, worker.is_stopping()).map(Finish::Exit);
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
            Next::GiveUp | Next::End => return end(status, false).map(Finish::Exit),
        };
        source.restarts.add(clock::now());
        worker.wait_unless_stopping(pause);
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
/// Then an upgrade from `earlier` is complete.
fn serve_when_it_schedules(source: Source, groups: Vec<GroupSocket>, earlier: Option<&Handover>) {
    let version = earlier.map(|earlier| earlier.version.clone());
    thread::spawn(move || {
        while source.rounds() == 0 {
            thread::sleep(GLANCE);
        }
        if let Some(version) = version {
            let counted = source.shared.counters.read();
            let (unloaded, undecided) =
                (Span::from_nanos(counted.unloaded_ns), Span::from_nanos(counted.undecided_ns));
            output::print(&format!(
                "upgraded from {version}: the kernel's own scheduler ran the tasks for {unloaded}, \
                 and the first decision came after {undecided}"
            ));
        }
        let to_groups = groups.iter().map(|group| stats::serve_group(source.clone(), group));
        for served in to_groups.chain([stats::serve(source.clone())]) {
            match served {
                // To drop the server would end it.
                Ok(server) => std::mem::forget(server),
                Err(error) => output::warn(&format!("statistics are not served: {error:#}")),
            }
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
/// `--verbose`, and without `--stats`, it prints a line about each second that is worth one.
fn adapt_every_second(options: &Options, source: &Source) -> Arc<Mutex<EventLog>> {
    let log = Arc::new(Mutex::new(EventLog::default()));
    let (source, log_of_thread) = (source.clone(), Arc::clone(&log));
    let (options, print) = (options.clone(), options.verbose && options.stats.is_none());
    thread::spawn(move || {
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
    });
    log
}

/// Tells of a worker that does not come back from a round, and ends it if it schedules no more.
fn end_silence(silence: &mut Silence, source: &Source, reading: &Reading) {
    // Before the first round there is no gap between two.
    let last = match reading.numbers.rounds {
        0 => reading.at,
        _ => Stamp::from_nanos(reading.numbers.last_round_ns),
    };
    let seen = Seen {
        now: reading.at,
        worker: source.worker.pid(),
        gap: reading.at.since(last),
        is_loaded: preflight::is_loaded(),
    };
    match silence.look(&seen) {
        Verdict::Nothing => {}
        Verdict::Tell(gap) => output::warn(&format!(
            "the scheduling process has not decided for {gap}: the backend schedules by itself"
        )),
        Verdict::End => source.worker.end_silent(),
    }
}

/// `vm.compact_unevictable_allowed`, as it was before the first worker, which sets it to 0, or that
/// of an earlier program. The supervisor puts it back, because a killed worker cannot.
fn compaction_before(earlier: Option<&Handover>) -> KernelSetting {
    match earlier {
        Some(earlier) => KernelSetting::known(compaction::OFF, earlier.compaction.clone()),
        None => KernelSetting::read(compaction::OFF),
    }
}
