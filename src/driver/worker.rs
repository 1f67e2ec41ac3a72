// SPDX-License-Identifier: GPL-2.0-only

//! The process that schedules: one thread, one loop, no file, terminal, lock or allocation in it.

use super::backend::{BackendSetup, End, KernelPort, OpenObject};
use super::cli::{Options, PolicyName};
use super::failure::Failure;
use super::fast_path::{FastCounters, FastPath};
use super::shared::{Numbers, Shared};
use scx_pandemonium_user::engine::{Limits, Policy, Port, Round, round};
use scx_pandemonium_user::policy::{Dropping, Fifo, Pandemonium, Vruntime};
use scx_pandemonium_user::time::{Span, Stamp};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::process::ExitCode;

/// Exit code by which a worker asks to be started again.
pub const RESTART: u8 = 80;
/// How often the numbers are renewed that cost a system call, and peaks are closed.
const SECOND: Span = Span::from_millis(1_000);
/// Stack that is touched before the first round, so that no later call faults.
const STACK_TOUCHED: usize = 256 * 1024;

/// Schedules until a signal or the kernel ends it.
pub fn run(options: &Options, fd: RawFd) -> Result<ExitCode, Failure> {
    die_with_parent();
    go_first();
    keep_small_pages();
    let shared = Shared::adopt(fd)?;
    let cpus = options.nr_cpus.unwrap_or_else(|| *scx_utils::NR_CPU_IDS as u32);
    let names = options.compositors();
    match options.policy {
        PolicyName::Pandemonium => schedule(options, &shared, Pandemonium::new(cpus, &names)),
        PolicyName::Fifo => schedule(options, &shared, Fifo::new()),
        PolicyName::Vruntime => schedule(options, &shared, Vruntime::new()),
        PolicyName::Dropping => {
            schedule(options, &shared, Dropping::new(Pandemonium::new(cpus, &names)))
        }
    }
}

fn schedule<Q: Policy>(
    options: &Options,
    shared: &Shared,
    mut policy: Q,
) -> Result<ExitCode, Failure> {
    policy.apply(&options.knobs());
    shared.take().for_each(|memo| policy.import(memo));
    quiet_libbpf(options.verbose);
    let setup = BackendSetup {
        builtin_idle: !options.full_user,
        partial: options.partial,
        numa_local: options.numa_local,
        exit_dump_len: options.exit_dump_len,
        slice_ns: options.knobs().slice_min.as_nanos(),
    };
    let mut fast_object = MaybeUninit::uninit();
    let fast = load_fast_path(options, &mut fast_object);
    let mut open_object = MaybeUninit::uninit();
    let libbpf_options = options.libbpf.clone().into_bpf_open_opts();
    let mut port =
        KernelPort::load(&mut open_object, libbpf_options, &setup, fast, options.verbose)?;
    let fast_path = match (options.full_user, port.fast_counters()) {
        (true, _) => fast_path_state::NONE,
        (false, Some(_)) => fast_path_state::LOADED,
        (false, None) => fast_path_state::REFUSED,
    };
    rounds(&mut port, &mut policy, shared, fast_path);
    shared.keep(|keep| policy.export(keep));
    match port.unload() {
        End::Signal => Ok(ExitCode::SUCCESS),
        End::Restart(_) => Ok(ExitCode::from(RESTART)),
        End::Ejected(reason, dump) => {
            if let Some(dump) = dump.filter(|_| options.verbose || options.exit_dump_len > 0) {
                eprintln!("the kernel's debug dump:\n{dump}");
            }
            Err(Failure::Ejected(reason))
        }
    }
}

/// Loads the fast path, unless the options want the policy to see everything itself. Without it
/// the policy decides on messages alone, and a task that wakes up waits for the next tick.
fn load_fast_path<'obj>(
    options: &Options,
    object: &'obj mut MaybeUninit<OpenObject>,
) -> Option<FastPath<'obj>> {
    if options.full_user {
        return None;
    }
    FastPath::load(object, !options.no_preempt)
        .inspect_err(|error| {
            eprintln!(
                "warning: the fast path is not there, so a task that wakes up on a busy machine \
                 waits for the next tick: {error:#}"
            );
        })
        .ok()
}

/// The loop.
fn rounds<Q: Policy>(port: &mut KernelPort, policy: &mut Q, shared: &Shared, fast_path: u64) {
    touch_stack();
    leave_signals_to_the_other_thread();
    let mut books = Books::open(shared, now());
    books.total.fast_path = fast_path;
    while !port.ended() {
        let now = now();
        port.begin();
        let waited = policy.oldest_wait(now);
        let done = round(now, port, policy, Limits::KERNEL);
        books.enter(now, &done, waited);
        books.publish(now, port, policy, shared);
        port.rest(done.pending);
    }
}

/// Counts over the life of this worker, on top of what earlier workers had counted.
struct Books {
    before: Numbers,
    total: Numbers,
    renewed: Stamp,
    ring_peak: u64,
    wait_peak: Span,
    usage_at_start: Usage,
    fast: FastCounters,
}

impl Books {
    fn open(shared: &Shared, now: Stamp) -> Books {
        let before = shared.board.read();
        Books {
            before,
            total: before,
            renewed: now,
            ring_peak: 0,
            wait_peak: Span::ZERO,
            usage_at_start: Usage::now(),
            fast: FastCounters::default(),
        }
    }

    fn enter(&mut self, now: Stamp, done: &Round, waited: Span) {
        self.total.last_round_ns = now.as_nanos();
        self.total.rounds += 1;
        self.total.user_dispatches += done.sent as u64;
        self.total.refused += done.refused as u64;
        self.total.waiting = done.pending as u64;
        self.ring_peak = self.ring_peak.max(done.received as u64);
        self.wait_peak = self.wait_peak.max(waited);
    }

    fn publish<Q: Policy>(
        &mut self,
        now: Stamp,
        port: &mut KernelPort,
        policy: &Q,
        shared: &Shared,
    ) {
        let (before, total) = (&self.before, &mut self.total);
        let kernel = port.counters();
        total.kernel_dispatches = before.kernel_dispatches + kernel.dispatches;
        total.cancelled = before.cancelled + kernel.cancelled;
        total.bounced = before.bounced + kernel.bounced;
        total.congested = before.congested + kernel.congested;
        total.malformed = before.malformed + port.malformed;
        let counters = policy.counters();
        total.wakeups = before.wakeups + counters.wakeups;
        total.requeues = before.requeues + counters.requeues;
        total.rescues = before.rescues + counters.rescues;
        total.batch = before.batch + counters.by_tier[0];
        total.interactive = before.interactive + counters.by_tier[1];
        total.lat_critical = before.lat_critical + counters.by_tier[2];
        total.cpus = port.view().cpus as u64;
        total.running = port.view().running as u64;
        if now.since(self.renewed) >= SECOND {
            self.renew(now);
            self.renew_fast(port.fast_counters());
        }
        shared.board.write(&self.total);
    }

    fn renew_fast(&mut self, fast: Option<FastCounters>) {
        let Some(fast) = fast else { return };
        let last_second = [0, 1, 2].map(|tier| fast.latency[tier].since(&self.fast.latency[tier]));
        let [batch, interactive, lat_critical] = &last_second;
        self.total.wake_p99_ns = batch.plus(interactive).plus(lat_critical).p99().as_nanos();
        self.total.kicks = self.before.kicks + fast.kicks;
        self.total.kicks_asked = self.before.kicks_asked + fast.asked;
        self.fast = fast;
    }

    fn renew(&mut self, now: Stamp) {
        self.renewed = now;
        self.total.ring_peak = std::mem::take(&mut self.ring_peak);
        self.total.wait_peak_ns = std::mem::take(&mut self.wait_peak).as_nanos();
        let (used, start) = (Usage::now(), &self.usage_at_start);
        self.total.faults_minor =
            self.before.faults_minor + used.faults_minor.saturating_sub(start.faults_minor);
        self.total.faults_major =
            self.before.faults_major + used.faults_major.saturating_sub(start.faults_major);
        self.total.cpu_ns = self.before.cpu_ns + used.cpu_ns.saturating_sub(start.cpu_ns);
    }
}

/// The state of the fast path, as the board tells it.
pub mod fast_path_state {
    /// Not wanted, or not known yet.
    pub const NONE: u64 = 0;
    /// At work.
    pub const LOADED: u64 = 1;
    /// Wanted, and refused by the kernel.
    pub const REFUSED: u64 = 2;
}

/// What this process has used so far.
#[derive(Clone, Copy, Debug)]
struct Usage {
    faults_minor: u64,
    faults_major: u64,
    cpu_ns: u64,
}

impl Usage {
    fn now() -> Usage {
        // SAFETY: getrusage writes only into `usage`, and all-zero is a valid value of it.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000;
        Usage {
            faults_minor: usage.ru_minflt as u64,
            faults_major: usage.ru_majflt as u64,
            cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
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

/// A scheduler without its supervisor would have nobody to end it.
fn die_with_parent() {
    // SAFETY: a plain system call.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
}

/// Asks the kernel's own scheduler for the best it has. It schedules us while we load, and on a
/// busy machine a restart would take seconds otherwise. Without the privilege it takes longer.
fn go_first() {
    // SAFETY: a plain system call.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}

/// The thread that waits for signals was started when the backend was loaded. The kernel would
/// rather interrupt this one, which on an idle machine runs once a second, and would have to run
/// twice: to pass the signal on, and to see what became of it.
fn leave_signals_to_the_other_thread() {
    // SAFETY: plain memory of the type that the calls want.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut signals, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
    }
}

/// The core asks for huge pages after it has locked small ones, so khugepaged would swap them
/// under us later, and whoever touches one meanwhile faults.
fn keep_small_pages() {
    // SAFETY: a plain system call. Where it is refused, health shows the faults.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

/// Grows the stack to its working size once, while page faults are harmless.
#[inline(never)]
fn touch_stack() {
    let mut stack = [0u8; STACK_TOUCHED];
    for page in stack.chunks_mut(4096) {
        std::hint::black_box(&mut page[0]);
    }
    std::hint::black_box(&mut stack);
}

/// libbpf explains a refusal over many lines; they are for `--verbose`. The reason in one
/// sentence comes back as the error of the call.
fn quiet_libbpf(verbose: bool) {
    let level = libbpf_rs::PrintLevel::Debug;
    libbpf_rs::set_print(Some((level, if verbose { say } else { ignore })));
}

fn say(_level: libbpf_rs::PrintLevel, text: String) {
    eprint!("{text}");
}

fn ignore(_level: libbpf_rs::PrintLevel, _text: String) {}
