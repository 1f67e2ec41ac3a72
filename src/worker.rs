// SPDX-License-Identifier: GPL-2.0-only

//! The process that schedules: one thread, one loop, no file, terminal, lock or allocation in it.

use super::backend::{BackendSetup, End, KernelPort, OpenObject};
use super::cli::Options;
use super::fast_path::{self, FastPath, Settings, State, Wish, refusal};
use super::listen::Listeners;
use super::machine::Machine;
use super::process;
use super::settings;
use super::shared::Shared;
use super::worker_counters::WorkerCounters;
use pandemonium_engine::Policy;
use pandemonium_engine::Setup;
use pandemonium_engine::knobs::{Table, Values};
use pandemonium_engine::procdb::Minute;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::topology::CpuMask;
use pandemonium_host::failure::Failure;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::process::ExitCode;
use std::time::Duration;

/// Exit code by which a worker asks to be started again.
pub const RESTART: u8 = 80;
/// How often what was learned of programs is told, so that a worker that is killed takes little
/// with it. It takes some 20 us with a full database.
const PROGRAMS: Span = Span::from_millis(10_000);
/// On an idle machine the kernel half lets us decide every one to two seconds.
const SILENCE: Span = Span::from_millis(2_500);

/// Schedules until a signal or the kernel ends it.
pub fn run(options: &Options, fd: RawFd) -> Result<ExitCode, Failure> {
    process::die_with_parent();
    process::go_first();
    process::keep_small_pages();
    let shared = Shared::adopt(fd)?;
    let machine = Machine::observe()?;
    let setup = settings::setup(options, &machine);
    let told = Told { setup: &setup, online: machine.online() };
    let info = options.policy();
    schedule(options, &told, &shared, info.knobs, (info.build)(&setup))
}

/// The machine as this worker was told of it.
struct Told<'a> {
    setup: &'a Setup,
    /// The CPUs that were online then.
    online: CpuMask,
}

fn schedule(
    options: &Options,
    told: &Told,
    shared: &Shared,
    table: &'static Table,
    mut policy: Box<dyn Policy>,
) -> Result<ExitCode, Failure> {
    let mut housekeeping = Housekeeping::begin(shared, table, options.plant_delay_us);
    let mut listeners = Listeners::of(shared);
    listeners.started(told.setup);
    // The supervisor hands knobs over before it starts a worker.
    let values = housekeeping.new_knobs().unwrap_or_else(|| table.defaults());
    policy.tune(&values);
    listeners.applied(&values);
    if let Some(learning) = policy.learning() {
        shared.take().for_each(|memo| {
            learning.import(memo);
            listeners.remembered(memo);
        });
        let (minute, known) = (this_minute(), shared.programs.read());
        learning.learn_programs(minute, &known);
        listeners.learned(minute, &known);
    }
    quiet_libbpf(options.verbose);
    let setup = BackendSetup {
        // The kernel half knows nothing of a domain or of power, so there the policy places every
        // task.
        builtin_idle: !options.full_user && !options.low_power && told.setup.domain.is_none(),
        partial: options.partial,
        numa_local: options.numa_local,
        exit_dump_len: options.exit_dump_len,
        slice_ns: policy.kernel_rules(now()).idle_slice.as_nanos(),
        domain: low_domain(told.setup),
    };
    let mut fast_objects = [const { MaybeUninit::uninit() }; fast_path::ATTEMPTS];
    let fast = load_fast_path(options, told, &mut fast_objects);
    let state = match &fast {
        Some(fast) => State::Loaded { without: fast.lost() },
        None if options.full_user => State::None,
        None => State::Refused,
    };
    let loading = now();
    let mut open_object = MaybeUninit::uninit();
    let libbpf_options = options.libbpf.clone().into_bpf_open_opts();
    process::spare_the_other_thread();
    let mut port =
        KernelPort::load(&mut open_object, libbpf_options, &setup, fast, options.verbose)?;
    // From the load on the kernel unloads us when CPUs come or go; before it does not say so.
    if Machine::observe()?.online() != told.online {
        return Ok(ExitCode::from(RESTART));
    }
    if let Some(delay) = options.plant_start_delay_ms {
        std::thread::sleep(Duration::from_millis(delay));
    }
    process::touch_stack();
    process::leave_signals_to_the_other_thread();
    let mut worker_counters = WorkerCounters::open(shared, loading, now(), state);
    rounds(&mut port, &mut *policy, &mut housekeeping, &mut listeners, &mut worker_counters);
    let silence = worker_counters.silence(now());
    housekeeping.tell_programs(&mut *policy);
    if let Some(learning) = policy.learning() {
        shared.keep(|keep| learning.export(keep));
    }
    match port.unload() {
        End::Signal => Ok(ExitCode::SUCCESS),
        End::Restart(_) => Ok(ExitCode::from(RESTART)),
        End::Ejected(reason, dump) => {
            if let Some(dump) = dump.filter(|_| options.verbose || options.exit_dump_len > 0) {
                eprintln!("the kernel's debug dump:\n{dump}");
            }
            Err(Failure::Ejected(with_silence(reason, silence)))
        }
    }
}

/// Whoever reads that a task did not run for seconds wants to know whether we did.
fn with_silence(reason: String, silence: Span) -> String {
    if silence < SILENCE {
        return reason;
    }
    format!("{reason}; before that the scheduling process had decided nothing for {silence}")
}

/// The CPUs that tasks prefer, of the first 64; 0 if there is no domain.
fn low_domain(told: &Setup) -> u64 {
    told.domain.as_ref().map_or(0, |domain| domain.cpus.low())
}

/// Loads the fast path, unless the options want the policy to see everything itself. Without it
/// the policy decides on messages alone, and a task that wakes up waits for the next tick.
fn load_fast_path<'obj>(
    options: &Options,
    told: &Told,
    objects: &'obj mut [MaybeUninit<OpenObject>; fast_path::ATTEMPTS],
) -> Option<FastPath<'obj>> {
    if options.full_user {
        return None;
    }
    let broken = options.break_fast_path.iter().copied().collect();
    let wish = Wish { broken, domain: low_domain(told.setup), online: told.online };
    let fast = FastPath::load(objects, &wish, &told.setup.topology)
        .inspect_err(|error| {
            eprintln!(
                "warning: the fast path is not there, so a task that wakes up on a busy machine \
                 waits for the next tick: {error:#}"
            );
        })
        .ok()?;
    for part in fast.lost().iter() {
        eprintln!(
            "warning: the kernel refused a part of the fast path ({}): {}",
            part.programs().join(", "),
            part.lost()
        );
    }
    Some(fast)
}

/// The loop.
fn rounds(
    port: &mut KernelPort,
    policy: &mut dyn Policy,
    housekeeping: &mut Housekeeping,
    listeners: &mut Listeners,
    worker_counters: &mut WorkerCounters,
) {
    while !port.ended() {
        housekeeping.dawdle();
        let now = now();
        port.begin(now);
        if let Some(values) = housekeeping.new_knobs() {
            policy.tune(&values);
            listeners.applied(&values);
        }
        while let Some(pid) = port.next_exit() {
            listeners.exited(pid);
            policy.exit(pid);
        }
        let waited = policy.waiting().oldest_wait(now);
        let done = listeners.round(now, port, policy);
        worker_counters.enter(now, &done, waited);
        port.settle(fast_path_settings(policy, now));
        if worker_counters.publish(now, port, policy, housekeeping.shared) {
            housekeeping.once_a_second(now, policy, listeners);
        }
        port.rest(done.pending);
    }
}

/// How the fast path shall interrupt until the next round.
fn fast_path_settings(policy: &dyn Policy, now: Stamp) -> Settings {
    let rules = policy.kernel_rules(now);
    Settings {
        preempt: rules.preempt,
        hand_off: rules.hand_off,
        preempt_thresh: rules.preempt_thresh,
        burst: rules.burst,
        waiting: match policy.waiting().nr_waiting() {
            0 => None,
            _ if policy.wants_more() => Some(Tier::Interactive),
            _ => Some(Tier::Batch),
        },
    }
}

/// What the worker does for the supervisor besides scheduling. Allocates nothing.
struct Housekeeping<'s> {
    shared: &'s Shared,
    /// What every round waits before it begins.
    delay: Option<Duration>,
    table: &'static Table,
    /// Which knobs were taken up last.
    knobs: u64,
    minute: Minute,
    programs_told: Stamp,
}

impl<'s> Housekeeping<'s> {
    fn begin(shared: &'s Shared, table: &'static Table, delay_us: Option<u64>) -> Self {
        let delay = delay_us.map(Duration::from_micros);
        Housekeeping { shared, delay, table, knobs: 0, minute: this_minute(), programs_told: now() }
    }

    /// Only when asked for by a test.
    fn dawdle(&self) {
        if let Some(delay) = self.delay {
            std::thread::sleep(delay);
        }
    }

    fn new_knobs(&mut self) -> Option<Values> {
        self.shared.knobs.newer(self.table, &mut self.knobs)
    }

    fn once_a_second(&mut self, now: Stamp, policy: &mut dyn Policy, heard: &mut Listeners) {
        let minute = this_minute();
        if minute != self.minute {
            self.minute = minute;
            if let Some(learning) = policy.learning() {
                learning.minute(minute);
                heard.minute(minute);
            }
        }
        if now.since(self.programs_told) >= PROGRAMS {
            self.programs_told = now;
            self.tell_programs(policy);
        }
    }

    /// A policy that learns nothing leaves what is known as it is.
    fn tell_programs(&self, policy: &mut dyn Policy) {
        let Some(learning) = policy.learning() else { return };
        if !learning.programs().is_empty() {
            self.shared.programs.publish(learning.programs());
        }
    }
}

/// The monotonic clock. Answered by the vDSO, without a system call.
pub fn now() -> Stamp {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes only into `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    Stamp::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The minute of the calendar. The coarse clock is answered by the vDSO, and fine enough.
fn this_minute() -> Minute {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes only into `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut time) };
    Minute::from_unix(u32::try_from(time.tv_sec / 60).unwrap_or_default())
}

/// libbpf explains a refusal over many lines; they are for `--verbose`. The reason in one
/// sentence comes back as the error of the call.
fn quiet_libbpf(verbose: bool) {
    let level = libbpf_rs::PrintLevel::Debug;
    libbpf_rs::set_print(Some((level, if verbose { say } else { ignore })));
}

fn say(level: libbpf_rs::PrintLevel, text: String) {
    eprint!("{text}");
    refusal::overhear(level, &text);
}

fn ignore(level: libbpf_rs::PrintLevel, text: String) {
    refusal::overhear(level, &text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_silence_is_told() {
        let told = |ms| with_silence("stall".into(), Span::from_millis(ms));
        assert_eq!(told(2_000), "stall");
        assert!(told(5_244).ends_with("had decided nothing for 5244ms"), "{}", told(5_244));
    }
}
