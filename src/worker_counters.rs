// SPDX-License-Identifier: GPL-2.0-only

//! What the worker counts, and how it tells: nothing here waits, allocates or touches a file.

use super::backend::KernelPort;
use super::fast_path::State;
use super::fast_path_counters::FastPathCounters;
use super::shared::{Numbers, Shared};
use pandemonium_engine::registry::COUNTERS_MAX;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::{Policy, Port, Round};

/// How often the numbers are renewed that cost a system call, and peaks are closed.
const SECOND: Span = Span::from_millis(1_000);
/// How often the fast path's counts are summed up, some microseconds of work. More often than
/// anybody looks, so that who looks once a second never finds a second without news.
const TALLY: Span = Span::from_millis(250);

/// Counts over the life of this worker, on top of what earlier workers had counted.
pub struct WorkerCounters {
    before: Numbers,
    tally_before: FastPathCounters,
    own_before: [u64; COUNTERS_MAX],
    total: Numbers,
    renewed: Stamp,
    tallied: Stamp,
    ring_peak: u64,
    wait_peak: Span,
    usage_at_start: Usage,
    /// When the last round began; before the first one, when the backend began to load.
    entered: Stamp,
    /// Between the last two of these.
    gap: Span,
}

impl WorkerCounters {
    /// Goes on where the worker before this one ended. Nothing has been decided since `loading`.
    pub fn open(shared: &Shared, loading: Stamp, now: Stamp, fast_path: State) -> WorkerCounters {
        let before = shared.board.read();
        WorkerCounters {
            before,
            tally_before: shared.fast_path_counters.read(),
            own_before: shared.own_counters.read(),
            total: Numbers { fast_path: fast_path.to_word(), ..before },
            renewed: now,
            tallied: now,
            ring_peak: 0,
            wait_peak: Span::ZERO,
            usage_at_start: Usage::now(),
            entered: loading,
            gap: Span::ZERO,
        }
    }

    /// For how long nothing was decided, now or before the last round: when the kernel has ended
    /// us, because we were held up or because it holds something against our decisions.
    pub fn silence(&self, now: Stamp) -> Span {
        self.gap.max(now.since(self.entered))
    }

    /// Takes in what a round did.
    pub fn enter(&mut self, now: Stamp, done: &Round, waited: Span) {
        self.gap = now.since(self.entered);
        self.entered = now;
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
        self.wait_peak = self.wait_peak.max(waited);
    }

    /// Tells everything. Returns whether a second has passed since it last returned that.
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
        let mut own = [0; COUNTERS_MAX];
        policy.count(&mut own);
        own.iter_mut().zip(self.own_before).for_each(|(count, before)| *count += before);
        shared.own_counters.write(&own);
        let mode = policy.mode(now);
        total.burst_rounds += u64::from(mode.burst);
        total.longrun = u64::from(mode.longrun);
        total.cpus = port.view().cpus as u64;
        total.running = port.view().running as u64;
        let second = now.since(self.renewed) >= SECOND;
        if second {
            self.renew(now);
        }
        if now.since(self.tallied) >= TALLY {
            self.tallied = now;
            if let Some(fast_path_counters) = port.fast_path_counters() {
                shared.fast_path_counters.write(&self.tally_before.plus(&fast_path_counters));
            }
        }
        shared.board.write(&self.total);
        second
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
