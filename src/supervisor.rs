// SPDX-License-Identifier: GPL-2.0-only

//! The process that the user starts. It starts the worker, restarts it when the kernel asks for
//! that or a signal has killed it, passes signals on, prints, and reports how the worker ended.

mod watchers;
mod workers;

use self::workers::Finish;
use super::adaptive::{Adaptive, Change};
use super::cli::{self, Options};
use super::event_log::EventLog;
use super::group_socket::{Grant, GroupSocket};
use super::instance::{self, Instance};
use super::kernel_setting::{KernelSetting, SharedSetting};
use super::machine::Machine;
use super::programs::{self, Programs, Saver};
use super::reading::Reading;
use super::record::{self, Recording};
use super::rules::RuleKeeper;
use super::shared::Shared;
use super::stats::Source;
use super::upgrade::{self, Handover};
use super::urgent_cpus;
use super::worker_process::WorkerProcess;
use super::{compaction, output, privileges, process, settings, summary, syscalls};
use pandemonium_engine::knobs::{KeySet, KnobProfile};
use pandemonium_host::failure::Failure;
use pandemonium_host::preflight::{self, Lacks};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

/// Runs the scheduler until it ends. The order of the steps matters:
///
/// 1. What an earlier program hands on is read before any thread is started, because that removes a
///    variable of the environment. SIGUSR2 is blocked before too: each thread inherits that, and
///    the signal must wait for [`upgrade::serve`].
/// 2. The machine is checked, then the lock taken, then files are opened. So a second instance
///    changes no file of the one that runs. All this has the privileges of the start.
/// 3. The process is protected from a lack of memory while it has the privilege for that. Then
///    privileges are dropped, and system calls forbidden, before the first thread: threads and
///    workers inherit both. The kernel accepts the filter of system calls because privileges cannot
///    be regained.
/// 4. The signal thread is started before the others, because it alone is made real-time. Before
///    that a signal ends this process, which has no worker yet.
/// 5. Printing gets its thread before a worker is started: from then on this thread must not wait
///    for a reader.
/// 6. The CPUs that a worker takes up are published before there is one.
/// 7. The kernel setting of compaction is read before the first worker changes it.
/// 8. Workers are started from this thread, which also executes the next program at an upgrade: the
///    kernel ends a worker with the thread that started it.
/// 9. At an upgrade profiles and lines are written before the other program is executed, because
///    the threads that write them end then.
/// 10. At an end the summary is printed before files are completed, since a disk may hang. The lock
///     is held until all is written.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    let earlier = Handover::inherited()?;
    upgrade::block_signal();
    let program = upgrade::own_path(earlier.as_ref())?;
    process::name_this(&program);
    let Prepared { instance, machine, source, groups, target } =
        prepare(options, earlier.as_ref())?;
    restrict(&source, earlier.as_ref());
    handle_signals(&source.worker, options.partial)?;
    output::detach();
    let recording = target.map(|target| start_recording(options, &source, target)).transpose()?;
    output::print(&cli::version());
    urgent_cpus::begin(options, &machine, &source.shared)?;
    source.shared.topology.publish(&machine.topology());
    let candidates = upgrade::serve(options, program.clone(), source.clone());
    watchers::serve_when_it_schedules(source.clone(), groups, earlier.as_ref());
    let log = watchers::observe(options, &source)?;
    let saver = Saver::start(Arc::clone(&source.programs));
    let started = source.read();
    let compaction = Arc::new(SharedSetting::new(compaction_before(earlier.as_ref())));
    let outcome = match workers::keep_running(&source, &saver, &compaction, earlier) {
        Ok(Finish::Upgrade(worker)) => {
            let lock = instance.as_ref().map(Instance::hand_on);
            let before = compaction.before().map(str::to_owned);
            let handover = Handover::of(&source, &program, worker, lock, before);
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
    let run = Run { started, log, recording, saver };
    finish(options, &source, run, outcome)
}

/// What is ready before the first thread is started.
struct Prepared {
    /// The lock, until the end of this process.
    instance: Option<Instance>,
    machine: Machine,
    source: Source,
    groups: Vec<GroupSocket>,
    /// The file of a recording, if there is one.
    target: Option<record::Target>,
}

/// Checks whether the scheduler can run, and opens what takes privileges.
fn prepare(options: &Options, earlier: Option<&Handover>) -> Result<Prepared, Failure> {
    settings::check(options)?;
    if earlier.is_none() {
        preflight::check()?;
    }
    restrict_new_files();
    let instance = match earlier.and_then(|earlier| earlier.lock) {
        Some(lock) => Some(Instance::adopt(lock)),
        None => instance::take()?,
    };
    let machine = Machine::observe()?;
    let source = source(options, &machine, earlier)?;
    let groups = group_sockets(options)?;
    let target = options.record.as_deref().map(record::create).transpose()?;
    Ok(Prepared { instance, machine, source, groups, target })
}

/// Protects this process and its workers from a lack of memory. Takes privileges and system calls
/// from them that they do not need.
fn restrict(source: &Source, earlier: Option<&Handover>) {
    warn_of_missing_privileges();
    process::outlive_lack_of_memory();
    privileges::supervise(source.programs.is_foreign());
    forbid_system_calls(earlier);
}

/// Passes signals that ask for the end on to the worker, from a thread.
fn handle_signals(worker: &Arc<WorkerProcess>, partial: bool) -> Result<(), Failure> {
    let worker = Arc::clone(worker);
    ctrlc::set_handler(move || worker.interrupt(partial)).map_err(Failure::internal)?;
    // The signal thread is the only other one so far. It must run while no decisions come.
    process::make_others_real_time();
    Ok(())
}

/// Starts to record into this file.
fn start_recording(
    options: &Options,
    source: &Source,
    target: record::Target,
) -> Result<Recording, Failure> {
    let shared = Arc::clone(&source.shared);
    Recording::start(target, options.redact, source.policy.name, shared)
}

/// What is completed at the end of a run.
struct Run {
    started: Reading,
    log: Arc<Mutex<EventLog>>,
    recording: Option<Recording>,
    saver: Saver,
}

/// Tells what the run was like, completes its files, and says why the kernel ended it if it did.
fn finish(
    options: &Options,
    source: &Source,
    run: Run,
    outcome: Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    let summary = summary::print(options, source, &run.started, &run.log);
    run.recording.map(Recording::finish).iter().for_each(|summary| output::print(summary));
    run.saver.finish();
    let Some(ejection) = source.shared.ejection.take() else { return outcome };
    summary::report(options, &ejection, summary);
    Err(Failure::Ejected(ejection.sentence()))
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
    if !Lacks::observe("/".as_ref()).wished.is_empty() {
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
    syscalls::supervise();
}

/// `vm.compact_unevictable_allowed`, as it was before the first worker, which sets it to 0, or that
/// of an earlier program. The supervisor puts it back, because a killed worker cannot.
fn compaction_before(earlier: Option<&Handover>) -> KernelSetting {
    match earlier {
        Some(earlier) => KernelSetting::known(compaction::OFF, earlier.compaction.clone()),
        None => KernelSetting::read(compaction::OFF),
    }
}
