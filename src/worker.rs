// SPDX-License-Identifier: GPL-2.0-only

//! The process that schedules: one thread with one loop, which uses no file, terminal or lock, and
//! allocates nothing.

mod housekeeping;
mod loading;

use self::housekeeping::Housekeeping;
use self::loading::{Loaded, Objects};
use super::backend::{End, KernelPort};
use super::cli::Options;
use super::compaction::Compaction;
use super::fast_path::Settings;
use super::machine::Machine;
use super::observers::Observers;
use super::process::InRounds;
use super::shared::Shared;
use super::worker_counters::{Waits, WorkerCounters};
use super::{clock, memory, output, process, settings, syscalls, takeover};
use anyhow::anyhow;
use pandemonium_engine::knobs::Table;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::topology::CpuMask;
use pandemonium_engine::{Policy, Setup};
use pandemonium_host::ejection::Ejection;
use pandemonium_host::failure::Failure;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

/// The exit code of a worker that the supervisor is to start again.
pub const RESTART: u8 = 80;
/// The nice value of a worker that loads beside other tasks. With a much lower one it would load
/// sooner: at -20 a woken task waits while the worker computes for 0.26 s, because the kernel's own
/// scheduler gives that 87 times the CPU time and both a deadline by their share. On one CPU waits
/// of 0.18 s were measured.
const NICE: libc::c_int = -10;

/// Schedules until a signal or the kernel ends this.
pub fn run(options: &Options, fd: RawFd) -> Result<ExitCode, Failure> {
    process::die_with_supervisor().map_err(Failure::internal)?;
    process::set_nice(NICE);
    output::drop_unread();
    let shared = Shared::adopt(fd)?;
    // A panic unloads the scheduler before it is told of.
    let ended = catch_unwind(AssertUnwindSafe(|| start(options, &shared)));
    output::release();
    ended.unwrap_or(Ok(ExitCode::FAILURE))
}

/// Loads all that a worker loads, up to the point where it would take over from an earlier one.
pub fn load_only(options: &Options) -> Result<(), Failure> {
    process::die_with_parent();
    process::set_nice(NICE);
    takeover::begin_trial();
    let shared = Shared::create().map_err(Failure::internal)?;
    shared.knobs.publish(&settings::knobs(options)?.0);
    match start(options, &shared) {
        _ if takeover::has_loaded() => Ok(()),
        Ok(_) => Err(Failure::Internal(anyhow!("CPUs went on- or offline meanwhile"))),
        Err(failure) => Err(failure),
    }
}

fn start(options: &Options, shared: &Shared) -> Result<ExitCode, Failure> {
    memory::use_one_heap();
    let machine = Machine::observe()?;
    let setup = settings::setup(options, &machine);
    let start = Start { setup: &setup, online: machine.online() };
    let info = options.policy();
    schedule(options, &start, shared, info.knobs, (info.build)(&setup))
}

/// The machine at the start of this worker.
struct Start<'a> {
    setup: &'a Setup,
    online: CpuMask,
}

/// What decides, what it takes up and publishes, and what is shown of its rounds.
struct Prepared<'s> {
    observers: Observers<'s>,
    housekeeping: Housekeeping<'s>,
    policy: Box<dyn Policy>,
}

/// Schedules until a signal or the kernel ends this. The order of the steps matters:
///
/// 1. The policy gets the setup, the knobs, and then memos and profiles. A recording has them in
///    this order. The backend's slice follows from the knobs. How much of the policy's table is
///    locked at first follows from the tasks that it remembers.
/// 2. The fast path is loaded and the helper thread started before the backend, which locks all
///    memory and forbids `mmap`. The helper makes the signal thread real-time, which the load of
///    the backend starts.
/// 3. Unused memory is set aside before the backend locks what is in reach, and given back after
///    that. The kernel setting of compaction is read before the backend changes it.
/// 4. The backend is loaded. An earlier worker is ended just before it is attached. From then on it
///    decides by itself until the first round.
/// 5. Privileges are dropped after the load, which needs them. This and the next two steps make
///    system calls that step 8 forbids.
/// 6. The CPUs are compared with those of the start. The kernel reports a CPU that goes on- or
///    offline since the load. Before, it did not.
/// 7. The stack is populated before page faults are counted. Signals are blocked after the load:
///    earlier, the signal thread would inherit that, and no thread would take them. A thread that
///    took over becomes an ordinary one again.
/// 8. System calls are forbidden after the last step that opens a file or changes a thread.
/// 9. Counting begins after all that, so that page faults of the start do not count. The memos are
///    discarded now: a worker that ends earlier leaves them to the next one, and if this one is
///    killed from now on, they are out of date. Texts are held last, so that warnings of the start
///    are printed at once.
/// 10. After the last round the gap is taken at once, because unloading takes time too. Memos and
///     profiles are stored before the backend is unloaded, because a worker that unloads for too
///     long is killed.
/// 11. Compaction is restored when the backend is unloaded: until then the kernel must not move the
///     memory of this process.
fn schedule(
    options: &Options,
    start: &Start,
    shared: &Shared,
    table: &'static Table,
    policy: Box<dyn Policy>,
) -> Result<ExitCode, Failure> {
    let mut prepared = prepare(options, start, shared, table, policy);
    let mut objects = Objects::default();
    let mut loaded = loading::load(options, start, &prepared, &mut objects)?;
    if !are_online(&Machine::observe(), start.online) {
        return Ok(ExitCode::from(RESTART));
    }
    if let Some(delay) = options.plant_start_delay_ms {
        std::thread::sleep(Duration::from_millis(delay));
    }
    get_ready();
    let mut counters = WorkerCounters::open(shared, loaded.since, clock::now(), loaded.fast_path);
    drop(shared.take_memos());
    output::hold();
    rounds(&mut prepared, &mut loaded, &mut counters);
    let gap = counters.longest_gap(clock::now());
    prepared.housekeeping.keep(&mut *prepared.policy);
    let end = loaded.port.unload();
    loaded.compaction.iter().for_each(Compaction::restore);
    Ok(ended(options, shared, end, gap))
}

/// Whether the same CPUs are online as at the start, when the machine could be read. If it cannot
/// be now, a CPU is going on- or offline: the files of its directory vanish.
fn are_online(now: &Result<Machine, Failure>, at_start: CpuMask) -> bool {
    now.as_ref().is_ok_and(|machine| machine.online() == at_start)
}

/// Gives the policy all that it starts with.
fn prepare<'s>(
    options: &Options,
    start: &Start,
    shared: &'s Shared,
    table: &'static Table,
    mut policy: Box<dyn Policy>,
) -> Prepared<'s> {
    let mut housekeeping = Housekeeping::begin(options, shared, table, &start.setup.topology);
    let mut observers = Observers::of(shared);
    observers.started(start.setup);
    // The supervisor publishes knobs before it starts a worker.
    let values = housekeeping.new_knobs().unwrap_or_else(|| table.defaults());
    policy.tune(&values);
    observers.applied(&values);
    remember(shared, &mut *policy, &mut observers);
    Prepared { observers, housekeeping, policy }
}

/// Gives the policy what earlier workers and starts have learned. The memos stay for another
/// worker, in case this one does not come to schedule.
fn remember(shared: &Shared, policy: &mut dyn Policy, observers: &mut Observers) {
    let Some(learning) = policy.learning() else { return };
    shared.take_memos().for_each(|memo| {
        learning.import(memo);
        observers.remembered(memo);
    });
    shared.store_memos(|store| learning.export(store));
    let (minute, known) = (clock::minute(), shared.programs.read());
    learning.learn_programs(minute, &known);
    observers.learned(minute, &known);
}

/// The last steps before the first round, while the backend decides by itself.
fn get_ready() {
    process::populate_stack();
    process::block_signals();
    takeover::finish();
    forbid_system_calls();
}

/// From now on this process makes the system calls of scheduling and of its end only. Without the
/// filter the scheduler runs too.
fn forbid_system_calls() {
    let done = match process::await_helper() {
        true => syscalls::schedule(),
        false => Err(std::io::Error::other("a thread is late")),
    };
    if let Err(error) = done {
        output::warn(&format!(
            "the scheduling process may make system calls that it does not need: {error}"
        ));
    }
}

/// The loop.
fn rounds(prepared: &mut Prepared, loaded: &mut Loaded, counters: &mut WorkerCounters) {
    let Prepared { observers, housekeeping, policy } = prepared;
    let (policy, port) = (&mut **policy, &mut loaded.port);
    let _in_rounds = InRounds::begin();
    while !port.ended() {
        housekeeping.planted.strike();
        let now = clock::now();
        if port.begin(now) {
            housekeeping.shared.topology.note_change();
        }
        take_up(port, policy, housekeeping, observers);
        let waits = Waits::of(policy, now);
        let done = observers.round(now, port, policy);
        counters.add(now, &done, &waits);
        housekeeping.hand_on(policy);
        let waiting = most_urgent_waiting(policy);
        port.set(fast_path_settings(policy, waiting, now));
        loaded.ahead.keep(policy.waiting());
        if counters.publish(now, port, policy, housekeeping.shared) {
            housekeeping.once_a_second(now, policy, observers);
        }
        port.rest(waiting);
    }
}

/// Takes up what has changed since the last round: what the user or the machine wants, and tasks
/// that have exited.
fn take_up(
    port: &mut KernelPort,
    policy: &mut dyn Policy,
    housekeeping: &mut Housekeeping,
    observers: &mut Observers,
) {
    if let Some(values) = housekeeping.new_knobs() {
        policy.tune(&values);
        observers.applied(&values);
    }
    if let Some(cpus) = housekeeping.new_urgent_cpus() {
        port.prefer_for_urgent(&cpus);
    }
    if let Some(topology) = housekeeping.new_topology() {
        policy.follow_topology(topology);
        port.follow_topology(topology);
        observers.placed(topology);
    }
    if let Some(list) = housekeeping.new_assignments() {
        port.keep_to_domains(&list.treatments, &list.processes);
        policy.assign(&list.treatments, &list.processes);
        observers.assigned(list);
    }
    while let Some(pid) = port.next_exit() {
        observers.exited(pid);
        policy.exit(pid);
    }
}

/// The settings of the backend until the next round. A task of the tier `waiting` waits for a
/// decision.
fn fast_path_settings(policy: &dyn Policy, waiting: Option<Tier>, now: Stamp) -> Settings {
    let rules = policy.kernel_rules(now);
    Settings {
        preempt: rules.preempt,
        hand_off: rules.hand_off,
        preempt_thresh: rules.preempt_thresh,
        burst: rules.burst,
        batch_slice: rules.batch_slice,
        wakes_idle: rules.wakes_idle,
        waiting,
        nr_waiting: policy.waiting().nr_waiting_in_steps(),
        lowered: rules.performance.map(|percent| 100 - percent.min(100)),
    }
}

/// The highest tier of which a task waits for a decision. Interactive stands for LatCritical too.
fn most_urgent_waiting(policy: &dyn Policy) -> Option<Tier> {
    match policy.waiting().nr_waiting() {
        0 => None,
        _ if policy.wants_more() => Some(Tier::Interactive),
        _ => Some(Tier::Batch),
    }
}

/// Tells the supervisor why the scheduler has ended. Returns the exit code that says the same.
fn ended(options: &Options, shared: &Shared, end: End, gap: Span) -> ExitCode {
    match end {
        End::Signal => ExitCode::SUCCESS,
        End::Restart => ExitCode::from(RESTART),
        End::Ejected(ejection) => {
            let ejection = Ejection { gap_ns: gap.as_nanos(), ..*ejection };
            // The supervisor tells the reason, since it can write a report too.
            shared.ejection.store(&ejection);
            if options.prints_dump() && !ejection.dump.is_empty() {
                output::explain(format!("the kernel's debug dump:\n{}", ejection.quoted_dump()));
            }
            Failure::Ejected(String::new()).exit_code()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_cannot_be_read_after_the_load_has_changed() {
        let now = Machine::observe();
        let online = now.as_ref().unwrap().online();
        assert!(are_online(&now, online));
        assert!(!are_online(&now, CpuMask::EMPTY));
        assert!(!are_online(&Err(Failure::Internal(anyhow!("no such file"))), online));
    }
}
