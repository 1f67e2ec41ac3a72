// SPDX-License-Identifier: GPL-2.0-only

//! What the worker counts, and how it publishes that. Nothing here waits, allocates or touches a
//! file.

use super::backend::KernelPort;
use super::fast_path::State;
use super::fast_path_counters::FastPathCounters;
use super::health::GAP_MAX;
use super::process;
use super::shared::{Numbers, Shared};
use super::takeover;
use pandemonium_engine::registry::COUNTERS_MAX;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::{Policy, Port, Round};

/// The time between two updates of the numbers that cost a system call. Peaks are those of such an
/// interval.
const SECOND: Span = Span::from_millis(1_000);
/// The time between two sums of the fast path's counters, which take some microseconds. At 4 Hz, a
/// 1 Hz reader always sees fresh counts.
const FAST_PATH_INTERVAL: Span = Span::from_millis(250);

/// How long the task has waited for a decision that waits longest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waits {
    any: Span,
    /// Above Batch.
    urgent: Span,
}

impl Waits {
    /// At the beginning of a round.
    pub fn of(policy: &dyn Policy, now: Stamp) -> Waits {
        Waits { any: policy.waiting().oldest_wait(now), urgent: policy.urgent_wait(now) }
    }

    fn longer(&self, other: &Waits) -> Waits {
        Waits { any: self.any.max(other.any), urgent: self.urgent.max(other.urgent) }
    }
}

/// The counts of this worker, added to those of earlier workers.
pub struct WorkerCounters {
    before: Numbers,
    fast_path_before: FastPathCounters,
    policy_before: [u64; COUNTERS_MAX],
    total: Numbers,
    /// When the current [`SECOND`] began.
    second: Stamp,
    /// When the fast path's counters were last summed.
    summed: Stamp,
    ring_peak: u64,
    longest: Waits,
    usage_at_start: Usage,
    /// When the last round began; before the first one, when the backend began to load.
    last_round: Stamp,
    /// The time between the last two rounds.
    gap: Span,
    /// Whether there was a round.
    has_begun: bool,
}

impl WorkerCounters {
    /// Starts with the counts of the previous worker. No round has begun since `loading`.
    pub fn open(shared: &Shared, loading: Stamp, now: Stamp, fast_path: State) -> WorkerCounters {
        let before = shared.counters.read();
        WorkerCounters {
            before,
            fast_path_before: shared.fast_path.read(),
            policy_before: shared.policy.read(),
            total: Numbers { fast_path: fast_path.to_word(), ..before },
            second: now,
            summed: now,
            ring_peak: 0,
            longest: Waits::default(),
            usage_at_start: Usage::now(),
            last_round: loading,
            gap: Span::ZERO,
            has_begun: false,
        }
    }

    /// The longest gap between rounds, of the last two, reported when the kernel ejects the
    /// scheduler.
    pub fn longest_gap(&self, now: Stamp) -> Span {
        self.gap.max(now.since(self.last_round))
    }

    /// Adds a round.
    pub fn add(&mut self, now: Stamp, done: &Round, waits: &Waits) {
        self.gap = now.since(self.last_round);
        if !self.has_begun {
            self.total.unloaded_ns = takeover::unloaded().as_nanos();
            self.total.undecided_ns = takeover::undecided(now).as_nanos();
        }
        self.total.silences += u64::from(self.has_begun && self.gap > GAP_MAX);
        self.has_begun = true;
        self.last_round = now;
        self.total.last_round_ns = now.as_nanos();
        self.total.rounds += 1;
        self.total.user_dispatches += done.sent as u64;
        self.total.wakeups += (done.received - done.requeues) as u64;
        self.total.requeues += done.requeues as u64;
        self.total.rescues += u64::from(done.rescues);
        let [batch, interactive, lat_critical] = done.by_tier.map(u64::from);
        self.total.batch += batch;
        self.total.interactive += interactive;
        self.total.lat_critical += lat_critical;
        self.total.refused += done.refused as u64;
        self.total.waiting = done.pending as u64;
        self.ring_peak = self.ring_peak.max(done.received as u64);
        self.longest = self.longest.longer(waits);
    }

    /// Publishes everything. Returns true once a second.
    pub fn publish(
        &mut self,
        now: Stamp,
        port: &mut KernelPort,
        policy: &dyn Policy,
        shared: &Shared,
    ) -> bool {
        let (before, total) = (&self.before, &mut self.total);
        let kernel = port.counters();
        total.kernel_dispatches = before.kernel_dispatches + kernel.dispatches;
        total.cancelled = before.cancelled + kernel.cancelled;
        total.bounced = before.bounced + kernel.bounced;
        total.congested = before.congested + kernel.congested;
        total.malformed = before.malformed + port.malformed;
        total.execs = before.execs + port.execs();
        let stalls = port.stall_counters();
        total.stalls = before.stalls + stalls.stalls;
        total.stalled_ns = before.stalled_ns + stalls.time.as_nanos();
        let [no_cpu, stopped, blocked, running] = stalls.causes;
        total.stalled_without_cpu = before.stalled_without_cpu + no_cpu;
        total.stalled_stopped = before.stalled_stopped + stopped;
        total.stalled_blocked = before.stalled_blocked + blocked;
        total.stalled_running = before.stalled_running + running;
        let mut counts = [0; COUNTERS_MAX];
        policy.count(&mut counts);
        counts.iter_mut().zip(self.policy_before).for_each(|(count, before)| *count += before);
        shared.policy.write(&counts);
        let mode = policy.mode(now);
        total.burst_rounds += u64::from(mode.burst);
        total.longrun = u64::from(mode.longrun);
        total.cpus = port.view().cpus as u64;
        total.running = port.view().running as u64;
        let is_over = now.since(self.second) >= SECOND;
        if is_over {
            self.end_second(now);
        }
        if now.since(self.summed) >= FAST_PATH_INTERVAL {
            self.summed = now;
            if let Some(counters) = port.fast_path_counters() {
                shared.fast_path.write(&self.fast_path_before.plus(&counters));
            }
            let (orders, before) = (port.order_counters(), &self.before);
            self.total.orders_preempted = before.orders_preempted + orders.preempted;
            self.total.orders_queued = before.orders_queued + orders.queued;
            self.total.resumed = before.resumed + orders.resumed;
            self.total.continued = before.continued + orders.continued;
            self.total.renewed = before.renewed + orders.renewed;
            self.total.displaced = before.displaced + orders.displaced;
            self.total.performance_changes =
                before.performance_changes + port.performance_changes();
        }
        shared.counters.write(&self.total);
        is_over
    }

    fn end_second(&mut self, now: Stamp) {
        self.second = now;
        self.total.not_real_time = u64::from(process::is_real_time_refused());
        self.total.ring_peak = std::mem::take(&mut self.ring_peak);
        let longest = std::mem::take(&mut self.longest);
        self.total.wait_peak_ns = longest.any.as_nanos();
        self.total.urgent_wait_peak_ns = longest.urgent.as_nanos();
        let (used, start) = (Usage::now(), &self.usage_at_start);
        self.total.faults_minor =
            self.before.faults_minor + used.faults_minor.saturating_sub(start.faults_minor);
        self.total.faults_major =
            self.before.faults_major + used.faults_major.saturating_sub(start.faults_major);
        self.total.cpu_ns = self.before.cpu_ns + used.cpu_ns.saturating_sub(start.cpu_ns);
    }
}

/// What has been used so far: CPU time by this process, page faults by this thread, which decides.
/// Locking memory ahead of the tasks counts as faults of the thread that does so, and delays none.
#[derive(Clone, Copy, Debug)]
struct Usage {
    faults_minor: u64,
    faults_major: u64,
    cpu_ns: u64,
}

impl Usage {
    fn now() -> Usage {
        let (process, thread) = (usage(libc::RUSAGE_SELF), usage(libc::RUSAGE_THREAD));
        let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000;
        Usage {
            faults_minor: thread.ru_minflt as u64,
            faults_major: thread.ru_majflt as u64,
            cpu_ns: ns(process.ru_utime) + ns(process.ru_stime),
        }
    }
}

fn usage(of: libc::c_int) -> libc::rusage {
    // SAFETY: getrusage writes only into `usage`, and all-zero is a valid value of it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(of, &mut usage);
        usage
    }
}
