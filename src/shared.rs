// SPDX-License-Identifier: GPL-2.0-only

//! The memory that worker and supervisor share: counters that the worker writes every round, knobs,
//! assigned processes and the topology from the supervisor, learned profiles of programs, a query
//! about one task, what was decided of each task, and the policy's memos of tasks for the next
//! worker.
//!
//! It is an anonymous file, which the worker inherits as a descriptor. Every cell is an atomic, so
//! neither side reads half a number; two numbers may be a round apart. No side waits for the other.

pub mod assignments;
pub mod ejection;
mod knobs;
pub mod number;
mod programs;
pub mod query;
pub mod reply;
mod seqlock;
pub mod task_cells;
pub mod topology;
mod urgent_cpus;

use self::number::number_in;
use super::fast_path_counters::FastPathCells;
use anyhow::{Context, Result};
use pandemonium_engine::Memo;
use pandemonium_engine::registry::COUNTERS_MAX;
use pandemonium_engine::task::{Comm, Pid, Tier};
use pandemonium_engine::time::Span;
use pandemonium_host::failure::Failure;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The environment variable that names the descriptor. A process in which it is set is a worker.
const DESCRIPTOR: &str = "SCX_PANDEMONIUM_USER_SHARED";
/// The unit of the ring of a recording.
const MIB: usize = 1 << 20;
/// The largest ring, in MiB.
pub const RING_MAX: u32 = 256;
/// How many tasks keep their memo over a restart. Further tasks are unknown after it.
const MEMOS_MAX: usize = 32_768;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A copy of the counters at one time.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Numbers {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The shared cells themselves.
        #[repr(C)]
        pub struct CountersCell {
            $($name: AtomicU64,)*
        }

        impl CountersCell {
            /// Reads all cells.
            pub fn read(&self) -> Numbers {
                Numbers { $($name: number_in(&self.$name),)* }
            }

            /// Writes all cells.
            pub fn write(&self, numbers: &Numbers) {
                $(self.$name.store(numbers.$name, Ordering::Relaxed);)*
            }
        }
    };
}

counters! {
    /// When the last round began (CLOCK_MONOTONIC, ns).
    last_round_ns,
    /// Rounds.
    rounds,
    /// Gaps between rounds that were longer than `health::GAP_MAX`.
    silences,
    /// Stalls that are over: the backend decided, because the worker did not.
    stalls,
    /// Their time (ns).
    stalled_ns,
    /// Looks of the backend during a stall, by the cause that it found, `backend::StallCause`: the
    /// worker had no CPU,
    stalled_without_cpu,
    /// it was stopped,
    stalled_stopped,
    /// it waited in the kernel,
    stalled_blocked,
    /// or it ran in one long round.
    stalled_running,
    /// Decisions sent to the kernel.
    user_dispatches,
    /// Tasks that the backend placed itself: on an idle CPU, or bound kernel threads.
    kernel_dispatches,
    /// Decisions that the backend dropped because the task had been queued again since.
    cancelled,
    /// Decisions for a CPU outside the task's mask; the backend used its previous CPU.
    bounced,
    /// Tasks that bypassed the policy because the ring to user space was full.
    congested,
    /// Decisions that found the ring to the kernel full, and were made again later.
    refused,
    /// Malformed messages, which were skipped.
    malformed,
    /// Standing orders executed: the wakee ran at once,
    orders_preempted,
    /// or waited for a CPU.
    orders_queued,
    /// How often a CPU was asked for another performance.
    performance_changes,
    /// Tasks that an order preempted, and that went on without a decision.
    resumed,
    continued,
    /// Orders for which another one was asked before they ended.
    renewed,
    /// Valid orders that were lost because another task took their slot.
    displaced,
    /// Arrivals after a wakeup or a fork.
    wakeups,
    /// Arrivals of tasks that had lost their CPU.
    requeues,
    /// Decisions by age rather than by order.
    rescues,
    /// Decisions for Batch tasks.
    batch,
    /// Decisions for Interactive tasks.
    interactive,
    /// Decisions for LatCritical tasks.
    lat_critical,
    /// CPUs online.
    cpus,
    /// CPUs that run a SCHED_EXT task.
    running,
    /// Programs executed, as far as the fast path reports it.
    execs,
    /// Tasks that wait for a decision.
    waiting,
    /// Most messages found in the ring at once, in the last whole second.
    ring_peak,
    /// Longest wait in the policy, in the last whole second (ns).
    wait_peak_ns,
    /// The same of tasks above Batch.
    urgent_wait_peak_ns,
    /// Page faults without I/O since the first round.
    faults_minor,
    /// Page faults with I/O since the first round.
    faults_major,
    /// The state of the fast path: `fast_path::State`.
    fast_path,
    /// CPU time of the worker since the first round (ns).
    cpu_ns,
    /// Rounds in which the policy detected a burst.
    burst_rounds,
    /// 1 if the kernel refused to make the worker's signal thread real-time.
    not_real_time,
    /// 1 while the policy detects Batch tasks that have waited for seconds.
    longrun,
    /// For how long the kernel's own scheduler ran the tasks at an upgrade (ns).
    unloaded_ns,
    /// For how long no worker decided at an upgrade (ns).
    undecided_ns,
}

/// The counters that the policy declares, in the order of their declaration.
#[repr(C)]
pub struct PolicyCounters([AtomicU64; COUNTERS_MAX]);

impl PolicyCounters {
    /// Reads all cells.
    pub fn read(&self) -> [u64; COUNTERS_MAX] {
        std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed))
    }

    /// Writes all cells.
    pub fn write(&self, counters: &[u64; COUNTERS_MAX]) {
        let cells = self.0.iter().zip(counters);
        cells.for_each(|(cell, count)| cell.store(*count, Ordering::Relaxed));
    }
}

/// One memo, packed: pid and tier, usual run, name.
#[repr(C)]
#[derive(Default)]
struct MemoCell([AtomicU64; 4]);

#[repr(C)]
pub struct Layout {
    /// The worker's counters, written every round.
    pub counters: CountersCell,
    /// The policy's counters, written every round.
    pub policy: PolicyCounters,
    /// The fast path's counters, written four times a second.
    pub fast_path: FastPathCells,
    /// The knobs of the worker's policy.
    pub knobs: knobs::KnobsCell,
    /// The CPUs that urgent tasks prefer.
    pub urgent_cpus: urgent_cpus::UrgentCpusCell,
    /// What the CPUs share.
    pub topology: topology::TopologyCell,
    /// The processes that the user demands a treatment for.
    pub assignments: assignments::AssignmentsCell,
    /// The learned profiles of programs.
    pub programs: programs::ProgramsCell,
    /// The query about a task, and its reply.
    pub query: query::QueryCell,
    /// Why the kernel ejected the worker.
    pub ejection: ejection::EjectionCell,
    /// What was decided about each task, while a reader wants it.
    pub tasks: task_cells::TaskCells,
    /// 1 while the supervisor wants memos and profiles from a worker that goes on.
    wanted: AtomicU64,
    nr_memos: AtomicU64,
    memos: [MemoCell; MEMOS_MAX],
}

const _: () = assert!(size_of::<Layout>().is_multiple_of(align_of::<AtomicU64>()));

/// The mapped memory.
pub struct Shared {
    fd: OwnedFd,
    map: NonNull<Layout>,
    /// Its size, which tells whether the ring of a recording follows the layout.
    bytes: usize,
}

// SAFETY: the mapping lives as long as `Shared`, and every cell in it is an atomic.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// The descriptor of the supervisor's memory, if this process is a worker.
pub fn inherited() -> Option<RawFd> {
    std::env::var(DESCRIPTOR).ok()?.parse().ok()
}

impl Shared {
    /// New memory, all zero.
    pub fn create() -> Result<Shared> {
        Shared::of_size(size_of::<Layout>())
    }

    /// The same, with a ring of 1 to [`RING_MAX`] MiB for a recording.
    pub fn with_ring(mib: u32) -> Result<Shared> {
        Shared::of_size(size_of::<Layout>() + mib as usize * MIB)
    }

    fn of_size(bytes: usize) -> Result<Shared> {
        // SAFETY: the name is a C string; the result is checked.
        let fd = unsafe { libc::memfd_create(c"scx_pandemonium_user".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error()).context("cannot create shared memory");
        }
        // SAFETY: the descriptor is new and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: a plain system call on a descriptor that this function has just created.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as i64) } != 0 {
            return Err(std::io::Error::last_os_error()).context("cannot size shared memory");
        }
        Shared::map(fd, bytes)
    }

    /// The memory behind an inherited descriptor.
    pub fn adopt(fd: RawFd) -> Result<Shared, Failure> {
        // SAFETY: fstat writes only into `stat`, and is checked.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        let known = unsafe { libc::fstat(fd, &mut stat) } == 0;
        let of_ring = (stat.st_size as usize).checked_sub(size_of::<Layout>());
        let is_valid =
            |ring: &usize| known && ring.is_multiple_of(MIB) && *ring <= RING_MAX as usize * MIB;
        let Some(ring) = of_ring.filter(is_valid) else {
            return Err(Failure::Usage(format!(
                "{DESCRIPTOR} is set for the program's own use: unset it and start again"
            )));
        };
        let bytes = size_of::<Layout>() + ring;
        // SAFETY: the supervisor passed this descriptor to this worker alone.
        Shared::map(unsafe { OwnedFd::from_raw_fd(fd) }, bytes).map_err(Failure::internal)
    }

    fn map(fd: OwnedFd, bytes: usize) -> Result<Shared> {
        // SAFETY: a new mapping of a file of exactly this size, populated so that no access to it
        // ever faults.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error()).context("cannot map shared memory");
        }
        let map = NonNull::new(address.cast()).context("shared memory was mapped at zero")?;
        Ok(Shared { fd, map, bytes })
    }

    /// The ring of a recording, if there is one.
    pub fn ring(&self) -> Option<&[AtomicU64]> {
        let words = (self.bytes - size_of::<Layout>()) / size_of::<AtomicU64>();
        // SAFETY: the mapping has so many words after the layout, whose size is a multiple of a
        // word's. It lives as long as `self`, and any bytes are valid atomics.
        (words > 0)
            .then(|| unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(1).cast(), words) })
    }

    /// Every word, whatever it belongs to.
    #[cfg(any(test, fuzzing))]
    pub fn words(&self) -> &[AtomicU64] {
        let count = size_of::<Layout>() / size_of::<AtomicU64>();
        // SAFETY: the layout consists of atomics of this size, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), count) }
    }

    /// What a child process needs to find the memory: a descriptor that stays open, and the name
    /// and value of the variable that names it.
    pub fn descriptor(&self) -> (RawFd, &'static str, String) {
        let fd = self.fd.as_raw_fd();
        (fd, DESCRIPTOR, fd.to_string())
    }

    /// Stores memos for the next worker. Drops those beyond [`MEMOS_MAX`].
    pub fn store_memos(&self, export: impl FnOnce(&mut dyn FnMut(Memo))) {
        let mut stored = 0;
        export(&mut |memo| {
            if let Some(cell) = self.memos.get(stored) {
                cell.store(&memo);
                stored += 1;
            }
        });
        self.nr_memos.store(stored as u64, Ordering::Release);
    }

    /// Asks the worker for memos and profiles as they are now.
    pub fn want_memos(&self) {
        self.wanted.store(1, Ordering::Release);
    }

    /// Whether the supervisor waits for memos and profiles.
    pub fn wants_memos(&self) -> bool {
        self.wanted.load(Ordering::Acquire) != 0
    }

    /// The worker has stored what was wanted.
    pub fn has_memos(&self) {
        self.wanted.store(0, Ordering::Release);
    }

    /// Takes the memos that the last worker stored.
    pub fn take_memos(&self) -> impl Iterator<Item = Memo> {
        let stored = self.nr_memos.swap(0, Ordering::Acquire) as usize;
        self.memos[..stored.min(MEMOS_MAX)].iter().filter_map(MemoCell::load)
    }
}

impl Deref for Shared {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        // SAFETY: the mapping is as large as `Layout`, lives as long as `self`, and any bytes are
        // valid atomics.
        unsafe { self.map.as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `map` mapped.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.bytes) };
    }
}

impl MemoCell {
    fn store(&self, memo: &Memo) {
        let [low, high] = memo.comm.to_words();
        let task = (memo.pid.as_raw() as u64) << 8 | memo.tier.index() as u64;
        let words = [task, memo.run.as_nanos(), low, high];
        for (cell, word) in self.0.iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
    }

    fn load(&self) -> Option<Memo> {
        let [task, run, low, high] = [0, 1, 2, 3].map(|i| self.0[i].load(Ordering::Relaxed));
        Some(Memo {
            pid: Pid::new((task >> 8) as i32)?,
            comm: Comm::from_words([low, high]),
            tier: *Tier::ALL.get((task & 0xff) as usize)?,
            run: Span::from_nanos(run),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::number::NUMBER_MAX;
    use super::*;

    #[test]
    fn the_other_side_reads_counters_and_memos() {
        let ours = Shared::create().unwrap();
        // SAFETY: the descriptor from dup has no other owner.
        let theirs = Shared::adopt(unsafe { libc::dup(ours.fd.as_raw_fd()) }).unwrap();
        let numbers = |cpu_ns| Numbers { rounds: 3, cpu_ns, ..Numbers::default() };
        for (written, read) in [(NUMBER_MAX, NUMBER_MAX), (u64::MAX, NUMBER_MAX)] {
            ours.counters.write(&numbers(written));
            assert_eq!(theirs.counters.read(), numbers(read));
        }

        let memo = Memo {
            pid: Pid::new(i32::MAX).unwrap(),
            comm: Comm::from_text("fifteen-letters"),
            tier: Tier::LatCritical,
            run: Span::from_micros(250),
        };
        ours.store_memos(|store| (0..MEMOS_MAX + 5).for_each(|_| store(memo)));
        let taken: Vec<Memo> = theirs.take_memos().collect();
        assert_eq!(taken.len(), MEMOS_MAX);
        assert!(taken.iter().all(|taken| *taken == memo));
        assert_eq!(theirs.take_memos().count(), 0);
    }

    #[test]
    fn both_sides_have_the_ring_or_neither_has() {
        assert!(Shared::create().unwrap().ring().is_none());
        let ours = Shared::with_ring(2).unwrap();
        let words = 2 * MIB / 8;
        // SAFETY: the descriptor from dup has no other owner.
        let theirs = Shared::adopt(unsafe { libc::dup(ours.fd.as_raw_fd()) }).unwrap();
        let (ours, theirs) = (ours.ring().unwrap(), theirs.ring().unwrap());
        assert_eq!((ours.len(), theirs.len()), (words, words));
        ours[words - 1].store(7, Ordering::Relaxed);
        assert_eq!(theirs[words - 1].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn a_descriptor_of_other_memory_is_refused() {
        assert!(matches!(Shared::adopt(9_999), Err(Failure::Usage(_))));
        assert!(matches!(Shared::adopt(0), Err(Failure::Usage(_))));
    }
}
