// SPDX-License-Identifier: GPL-2.0-only

//! The process that schedules: one thread with one loop, which uses no file, terminal or lock, and
//! allocates nothing.

use super::backend::{BackendSetup, End, KernelPort, OpenObject};
use super::cli::Options;
use super::compaction::Compaction;
use super::fast_path::{self, Config, FastPath, Settings, State};
use super::machine::Machine;
use super::memory::{Ahead, TableMemory, Unused};
use super::observers::Observers;
use super::planted::Planted;
use super::shared::Shared;
use super::shared::assignments::AssignmentList;
use super::shared::topology::KnownTopology;
use super::worker_counters::WorkerCounters;
use super::{
    clock, libbpf_print, memory, output, privileges, process, settings, syscalls, takeover,
};
use anyhow::anyhow;
use pandemonium_engine::Policy;
use pandemonium_engine::Setup;
use pandemonium_engine::knobs::{Table, Values};
use pandemonium_engine::procdb::Minute;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::topology::{CpuMask, Topology};
use pandemonium_host::ejection::Ejection;
use pandemonium_host::failure::Failure;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The exit code of a worker that the supervisor is to start again.
pub const RESTART: u8 = 80;
/// The time between two publications of learned profiles: a killed worker loses this much. One
/// takes some 20 us with a full database.
const PROGRAMS_INTERVAL: Span = Span::from_millis(10_000);
/// The nice value of a worker that loads beside other tasks. With a much lower one it would load
/// sooner: at -20 a woken task waits while the worker computes for 0.26 s, because the kernel's own
/// scheduler gives that 87 times the CPU time and both a deadline by their share. On one CPU waits
/// of 0.18 s were measured.
const NICE: libc::c_int = -10;

/// Schedules until a signal or the kernel ends this.
pub fn run(options: &Options, fd: RawFd) -> Result<ExitCode, Failure> {
    process::die_with_parent();
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

fn schedule(
    options: &Options,
    start: &Start,
    shared: &Shared,
    table: &'static Table,
    mut policy: Box<dyn Policy>,
) -> Result<ExitCode, Failure> {
    let topology = &start.setup.topology;
    let mut housekeeping = Housekeeping::begin(options, shared, table, topology);
    let mut observers = Observers::of(shared);
    observers.started(start.setup);
    // The supervisor publishes knobs before it starts a worker.
    let values = housekeeping.new_knobs().unwrap_or_else(|| table.defaults());
    policy.tune(&values);
    observers.applied(&values);
    remember(shared, &mut *policy, &mut observers);
    libbpf_print::set(options.verbose);
    let setup = backend_setup(options, start.setup, &*policy);
    let mut fast_objects = [const { MaybeUninit::uninit() }; fast_path::ATTEMPTS];
    let fast = load_fast_path(options, start, &mut fast_objects);
    shared.tasks.set_maps(fast.as_ref().and_then(FastPath::task_maps));
    let state = match &fast {
        Some(fast) => State::Loaded { without: fast.missing() },
        None if options.full_user => State::None,
        None => State::Refused,
    };
    let loading = clock::now();
    let mut open_object = MaybeUninit::uninit();
    let libbpf_options = options.libbpf.clone().into_bpf_open_opts();
    let table_memory = TableMemory::of(policy.waiting());
    let served = Arc::clone(&table_memory);
    let helper = process::start_helper(move || served.serve()).map_err(Failure::internal)?;
    let unused = Unused::set_aside(&table_memory);
    let compaction = Compaction::open();
    let mut port =
        KernelPort::load(&mut open_object, libbpf_options, &setup, fast, options.verbose)?;
    unused.give_back(memory::for_dump(options.exit_dump_len));
    if !privileges::schedule() {
        output::warn("a thread of the scheduling process keeps privileges that it does not need");
    }
    let mut ahead = Ahead::of(table_memory, helper, policy.waiting());
    // Since the load the kernel reports a CPU that goes on- or offline. Before, it did not.
    if Machine::observe()?.online() != start.online {
        return Ok(ExitCode::from(RESTART));
    }
    if let Some(delay) = options.plant_start_delay_ms {
        std::thread::sleep(Duration::from_millis(delay));
    }
    process::populate_stack();
    process::block_signals();
    takeover::finish();
    forbid_system_calls();
    let mut counters = WorkerCounters::open(shared, loading, clock::now(), state);
    // If this worker is killed from now on, what it was given is out of date.
    drop(shared.take_memos());
    output::hold();
    rounds(&mut port, &mut *policy, &mut housekeeping, &mut observers, &mut counters, &mut ahead);
    let gap = counters.longest_gap(clock::now());
    housekeeping.keep(&mut *policy);
    let end = port.unload();
    compaction.iter().for_each(Compaction::restore);
    match end {
        End::Signal => Ok(ExitCode::SUCCESS),
        End::Restart => Ok(ExitCode::from(RESTART)),
        End::Ejected(ejection) => {
            let ejection = Ejection { gap_ns: gap.as_nanos(), ..*ejection };
            // The supervisor tells the reason, since it can write a report too.
            shared.ejection.store(&ejection);
            let asked = options.verbose || options.exit_dump_len > 0;
            if asked && !ejection.dump.is_empty() {
                output::explain(format!("the kernel's debug dump:\n{}\n", ejection.dump));
            }
            Ok(Failure::Ejected(String::new()).exit_code())
        }
    }
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

fn backend_setup(options: &Options, setup: &Setup, policy: &dyn Policy) -> BackendSetup {
    BackendSetup {
        name: process::scheduler_name(),
        // The backend does not know of a domain: then the policy places every task.
        builtin_idle: !options.full_user && setup.domain.is_none(),
        partial: options.partial,
        numa_local: options.numa_local,
        exit_dump_len: options.exit_dump_len,
        slice_ns: policy.kernel_rules(clock::now()).idle_slice.as_nanos(),
        domain: preferred(setup),
        wants_domain: options.primary_domain.is_some(),
    }
}

/// The CPUs that tasks prefer; none if there is no domain.
fn preferred(setup: &Setup) -> CpuMask {
    setup.domain.as_ref().map_or(CpuMask::EMPTY, |domain| domain.cpus)
}

/// Loads the fast path, except with `--full-user`. Without it the policy decides on messages alone,
/// and a woken task waits for the next tick.
fn load_fast_path<'obj>(
    options: &Options,
    start: &Start,
    objects: &'obj mut [MaybeUninit<OpenObject>; fast_path::ATTEMPTS],
) -> Option<FastPath<'obj>> {
    if options.full_user {
        return None;
    }
    let broken = options.break_fast_path.iter().copied().collect();
    let config = Config { broken, domain: preferred(start.setup), online: start.online };
    let fast = FastPath::load(objects, &config, &start.setup.topology)
        .inspect_err(|error| {
            output::warn(&format!(
                "the fast path could not be loaded, so a task that wakes up on a busy machine \
                 waits for the next tick: {error:#}"
            ));
        })
        .ok()?;
    for part in fast.missing().iter() {
        output::warn(&format!(
            "the kernel refused a part of the fast path ({}): {}",
            part.programs().join(", "),
            part.loss()
        ));
    }
    Some(fast)
}

/// The loop.
fn rounds(
    port: &mut KernelPort,
    policy: &mut dyn Policy,
    housekeeping: &mut Housekeeping,
    observers: &mut Observers,
    counters: &mut WorkerCounters,
    ahead: &mut Ahead,
) {
    while !port.ended() {
        housekeeping.planted.strike();
        let now = clock::now();
        if port.begin(now) {
            housekeeping.shared.topology.note_change();
        }
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
        let waited = policy.waiting().oldest_wait(now);
        let done = observers.round(now, port, policy);
        counters.add(now, &done, waited);
        housekeeping.hand_on(policy);
        let waiting = most_urgent_waiting(policy);
        port.set(fast_path_settings(policy, waiting, now));
        ahead.keep(policy.waiting());
        if counters.publish(now, port, policy, housekeeping.shared) {
            housekeeping.once_a_second(now, policy, observers);
        }
        port.rest(waiting);
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

/// What the worker does besides scheduling. Allocates nothing.
struct Housekeeping<'s> {
    shared: &'s Shared,
    planted: Planted,
    table: &'static Table,
    /// The sequence numbers of the last knobs, and of the last CPUs for urgent tasks.
    knobs: u64,
    urgent_cpus: u64,
    topology: KnownTopology,
    /// The last list of assigned processes.
    assignments: AssignmentList,
    minute: Minute,
    /// When profiles were last published.
    published: Stamp,
}

impl<'s> Housekeeping<'s> {
    fn begin(
        options: &Options,
        shared: &'s Shared,
        table: &'static Table,
        topology: &Topology,
    ) -> Self {
        let (minute, published) = (clock::minute(), clock::now());
        let (topology, assignments) = (KnownTopology::of(topology), AssignmentList::default());
        Housekeeping {
            shared,
            planted: Planted::of(options, published),
            table,
            knobs: 0,
            urgent_cpus: 0,
            topology,
            assignments,
            minute,
            published,
        }
    }

    fn new_knobs(&mut self) -> Option<Values> {
        self.shared.knobs.newer(self.table, &mut self.knobs)
    }

    fn new_urgent_cpus(&mut self) -> Option<CpuMask> {
        self.shared.urgent_cpus.newer(&mut self.urgent_cpus)
    }

    fn new_topology(&mut self) -> Option<&Topology> {
        self.shared.topology.newer(&mut self.topology)
    }

    fn new_assignments(&mut self) -> Option<&AssignmentList> {
        let is_newer = self.shared.assignments.take_newer(&mut self.assignments);
        is_newer.then_some(&self.assignments)
    }

    /// Stores what the next program is to know, if the supervisor asks for it.
    fn hand_on(&self, policy: &mut dyn Policy) {
        if self.shared.wants_memos() {
            self.keep(policy);
            self.shared.has_memos();
        }
    }

    /// Stores what the next worker is to know.
    fn keep(&self, policy: &mut dyn Policy) {
        self.publish_programs(policy);
        if let Some(learning) = policy.learning() {
            self.shared.store_memos(|store| learning.export(store));
        }
    }

    fn once_a_second(&mut self, now: Stamp, policy: &mut dyn Policy, observers: &mut Observers) {
        let minute = clock::minute();
        if minute != self.minute {
            self.minute = minute;
            if let Some(learning) = policy.learning() {
                learning.minute(minute);
                observers.minute(minute);
            }
        }
        if now.since(self.published) >= PROGRAMS_INTERVAL {
            self.published = now;
            self.publish_programs(policy);
        }
    }

    /// Publishes the learned profiles. A policy that learns nothing leaves the old ones.
    fn publish_programs(&self, policy: &mut dyn Policy) {
        let Some(learning) = policy.learning() else { return };
        if !learning.programs().is_empty() {
            self.shared.programs.publish(learning.programs());
        }
    }
}
