// SPDX-License-Identifier: GPL-2.0-only

//! The memory that worker and supervisor share: numbers that the worker writes every round, knobs
//! that the supervisor hands down, what was learned of programs, and what the policy wants to keep
//! over a restart.
//!
//! An anonymous file without a name, handed to the worker as a descriptor. Every cell is an
//! atomic, so neither side can see half a number; two numbers may be a round apart. Nobody waits
//! for the other side.

mod knobs;
mod programs;
pub mod query;

use super::fast_path_counters::TallyCells;
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

/// Environment variable through which a worker learns the descriptor. Its presence is what makes
/// a process the worker.
const DESCRIPTOR: &str = "SCX_PANDEMONIUM_USER_SHARED";
/// Words in the ring of a recording: 32 MiB, at 50,000 decisions a second as much as is written in
/// 2.5 s, and at the start room for every memo and every program.
const RING_WORDS: usize = 1 << 22;
/// Most tasks whose memos survive a restart; beyond that they start afresh.
const MEMOS_MAX: usize = 32_768;

macro_rules! board {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A copy of the board at one time.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Numbers {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The shared cells themselves.
        #[repr(C)]
        pub struct Board {
            $($name: AtomicU64,)*
        }

        impl Board {
            /// Reads all cells.
            pub fn read(&self) -> Numbers {
                Numbers { $($name: self.$name.load(Ordering::Relaxed),)* }
            }

            /// Writes all cells.
            pub fn write(&self, numbers: &Numbers) {
                $(self.$name.store(numbers.$name, Ordering::Relaxed);)*
            }
        }
    };
}

board! {
    /// When the worker was last seen deciding (CLOCK_MONOTONIC, ns).
    last_round_ns,
    /// Rounds.
    rounds,
    /// Decisions sent to the kernel.
    user_dispatches,
    /// Tasks that the kernel half placed on an idle CPU, or bound kernel threads.
    kernel_dispatches,
    /// Decisions that the kernel dropped because the task had been queued again since.
    cancelled,
    /// Decisions for a CPU outside the task's mask, which the kernel moved to its previous CPU.
    bounced,
    /// Tasks that bypassed the policy because the ring to us was full.
    congested,
    /// Decisions that found the ring to the kernel full, and were made again later.
    refused,
    /// Messages that made no sense.
    malformed,
    /// Arrivals that were wake-ups.
    wakeups,
    /// Arrivals that had lost the CPU.
    requeues,
    /// Decisions taken for age.
    rescues,
    /// Decisions for Batch tasks.
    batch,
    /// Decisions for Interactive tasks.
    interactive,
    /// Decisions for LatCritical tasks.
    lat_critical,
    /// CPUs online.
    cpus,
    /// CPUs running a task of ours.
    running,
    /// Tasks that wait for a decision.
    waiting,
    /// Most messages found in the ring at once, in the last whole second.
    ring_peak,
    /// Longest wait in the policy, in the last whole second (ns).
    wait_peak_ns,
    /// Page faults without I/O since the first round.
    faults_minor,
    /// Page faults with I/O since the first round.
    faults_major,
    /// How much of the fast path is at work, `fast_path::State`.
    fast_path,
    /// CPU time of the worker since the first round (ns).
    cpu_ns,
    /// Rounds in which the policy saw a burst.
    burst_rounds,
    /// 1 while batch work has waited for seconds, as the policy sees it.
    longrun,
}

/// Counters of the policy's own, in the order in which it declares them.
#[repr(C)]
pub struct OwnCounters([AtomicU64; COUNTERS_MAX]);

impl OwnCounters {
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
    /// What the worker counts, renewed every round.
    pub board: Board,
    /// What the policy counts by itself.
    pub own_counters: OwnCounters,
    /// What the fast path counts, renewed once a second.
    pub fast_path_counters: TallyCells,
    /// The knobs that the worker shall use.
    pub knobs: knobs::KnobsCell,
    /// What was learned of programs.
    pub programs: programs::Programs,
    /// What is asked about a task, and the answer.
    pub query: query::Query,
    nr_memos: AtomicU64,
    memos: [MemoCell; MEMOS_MAX],
}

/// Bytes of the memory with the ring of a recording.
const WITH_RING: usize = size_of::<Layout>() + RING_WORDS * size_of::<AtomicU64>();
const _: () = assert!(size_of::<Layout>().is_multiple_of(align_of::<AtomicU64>()));

/// The mapped memory.
pub struct Shared {
    fd: OwnedFd,
    map: NonNull<Layout>,
    /// Behind the layout there may be the ring of a recording.
    bytes: usize,
}

// SAFETY: the mapping lives as long as `Shared`, and every cell in it is an atomic.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// The descriptor that the supervisor handed to this process, if this is a worker.
pub fn inherited() -> Option<RawFd> {
    std::env::var(DESCRIPTOR).ok()?.parse().ok()
}

impl Shared {
    /// New memory, all zero.
    pub fn create() -> Result<Shared> {
        Shared::of_size(size_of::<Layout>())
    }

    /// The same, with a ring for a recording.
    pub fn with_ring() -> Result<Shared> {
        Shared::of_size(WITH_RING)
    }

    fn of_size(bytes: usize) -> Result<Shared> {
        // SAFETY: the name is a C string; the result is checked.
        let fd = unsafe { libc::memfd_create(c"scx_pandemonium_user".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error()).context("cannot create shared memory");
        }
        // SAFETY: the descriptor is new and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: a plain system call on our own descriptor.
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
        let sizes = [size_of::<Layout>(), WITH_RING];
        let Some(bytes) = sizes.into_iter().find(|&size| known && stat.st_size == size as i64)
        else {
            return Err(Failure::Usage(format!(
                "{DESCRIPTOR} is set for the program's own use: unset it and start again"
            )));
        };
        // SAFETY: the supervisor passed this descriptor to us and to nobody else.
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
        // SAFETY: the mapping goes on for so many words behind the layout, whose size is a multiple
        // of a word's, lives as long as `self`, and any bytes are valid atomics.
        (self.bytes == WITH_RING).then(|| unsafe {
            std::slice::from_raw_parts(self.map.as_ptr().add(1).cast(), RING_WORDS)
        })
    }

    /// What a child process needs to find the memory: a descriptor to keep open, and the variable
    /// that names it.
    pub fn descriptor(&self) -> (RawFd, &'static str, String) {
        let fd = self.fd.as_raw_fd();
        (fd, DESCRIPTOR, fd.to_string())
    }

    /// Stores memos for the next worker; what is beyond [`MEMOS_MAX`] is dropped.
    pub fn keep(&self, export: impl FnOnce(&mut dyn FnMut(Memo))) {
        let mut kept = 0;
        export(&mut |memo| {
            if let Some(cell) = self.memos.get(kept) {
                cell.store(&memo);
                kept += 1;
            }
        });
        self.nr_memos.store(kept as u64, Ordering::Release);
    }

    /// Takes out the memos that the last worker stored.
    pub fn take(&self) -> impl Iterator<Item = Memo> {
        let kept = self.nr_memos.swap(0, Ordering::Acquire) as usize;
        self.memos[..kept.min(MEMOS_MAX)].iter().filter_map(MemoCell::load)
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
        let who = (memo.pid.as_raw() as u64) << 8 | memo.tier.index() as u64;
        let words = [who, memo.run.as_nanos(), low, high];
        for (cell, word) in self.0.iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
    }

    fn load(&self) -> Option<Memo> {
        let [who, run, low, high] = [0, 1, 2, 3].map(|i| self.0[i].load(Ordering::Relaxed));
        Some(Memo {
            pid: Pid::new((who >> 8) as i32)?,
            comm: Comm::from_words([low, high]),
            tier: *Tier::ALL.get((who & 0xff) as usize)?,
            run: Span::from_nanos(run),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_memos_reach_the_other_side() {
        let ours = Shared::create().unwrap();
        // SAFETY: dup gives a descriptor that nobody else owns.
        let theirs = Shared::adopt(unsafe { libc::dup(ours.fd.as_raw_fd()) }).unwrap();
        let numbers = Numbers { rounds: 3, cpu_ns: u64::MAX, ..Numbers::default() };
        ours.board.write(&numbers);
        assert_eq!(theirs.board.read(), numbers);

        let memo = Memo {
            pid: Pid::new(i32::MAX).unwrap(),
            comm: Comm::from_text("fifteen-letters"),
            tier: Tier::LatCritical,
            run: Span::from_micros(250),
        };
        ours.keep(|keep| (0..MEMOS_MAX + 5).for_each(|_| keep(memo)));
        let taken: Vec<Memo> = theirs.take().collect();
        assert_eq!(taken.len(), MEMOS_MAX);
        assert!(taken.iter().all(|taken| *taken == memo));
        assert_eq!(theirs.take().count(), 0);
    }

    #[test]
    fn a_ring_is_there_on_both_sides_or_on_none() {
        assert!(Shared::create().unwrap().ring().is_none());
        let ours = Shared::with_ring().unwrap();
        // SAFETY: dup gives a descriptor that nobody else owns.
        let theirs = Shared::adopt(unsafe { libc::dup(ours.fd.as_raw_fd()) }).unwrap();
        let (ours, theirs) = (ours.ring().unwrap(), theirs.ring().unwrap());
        assert_eq!((ours.len(), theirs.len()), (RING_WORDS, RING_WORDS));
        ours[RING_WORDS - 1].store(7, Ordering::Relaxed);
        assert_eq!(theirs[RING_WORDS - 1].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn a_descriptor_that_is_not_ours_is_refused() {
        assert!(matches!(Shared::adopt(9_999), Err(Failure::Usage(_))));
        assert!(matches!(Shared::adopt(0), Err(Failure::Usage(_))));
    }
}
