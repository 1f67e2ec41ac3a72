// SPDX-License-Identifier: GPL-2.0-only

//! The worker's memory: all of it is locked, and only what is in use is resident.
//!
//! `scx_rustland_core` allocates from an arena of 64 MiB and locks all of it. Most of it is never
//! touched: what no allocation has taken, and what the policy's table keeps for further tasks. This
//! takes the first out of the allocator for good, and the second out of the table's reach, unlocks
//! both, and so returns them to the kernel. As tasks appear, a thread of its own locks memory for
//! further ones, ahead of their number, and only then the table may use it. So no access of the
//! worker faults, and the worker itself never waits for memory.

use pandemonium_engine::Waiting;
use pandemonium_engine::reserve::Reserve;
use pandemonium_host::ejection::DUMP_MAX;
use std::alloc::Layout;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// Bytes of the arena that loading the backend may use.
const KEPT_FOR_LOADING: usize = 8 << 20;
/// Bytes of it that remain while scheduling, which allocates nothing, and for the end.
const KEPT: usize = 512 << 10;
/// The largest and smallest block that is taken out of the arena. Smaller ones are not worth it.
const BLOCKS: Range<usize> = 64 << 10..64 << 20;
/// Records of which the memory is locked at once. With the `pandemonium` policy they take 600 KiB.
const STEP: u32 = 4_096;
/// When fewer open records than this are untouched, memory for more is locked.
const AHEAD: u32 = 2_048;
/// The pause before the kernel is asked again for memory that it did not have.
const PAUSE: Duration = Duration::from_secs(1);
const PAGE: usize = 4_096;
/// A dump that is longer may end this process before all of it is printed.
const LONG_DUMP: usize = 2 << 20;

/// Has the C library use one heap for all threads. By default it reserves 64 MiB of addresses for
/// each thread, which then count as locked.
pub fn use_one_heap() {
    // SAFETY: a plain call. If it is refused, more addresses are reserved.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Populates and locks the memory that is in reach now.
pub fn lock_current() {
    // SAFETY: a plain system call. If it is refused, the backend does it later.
    unsafe { libc::mlockall(libc::MCL_CURRENT) };
}

/// Bytes that the kernel's debug dump of this length takes until the supervisor has it: a copy, or
/// one that grows if it is not UTF-8. Until it is printed it takes two more that grow.
pub const fn for_dump(length: u32, is_printed: bool) -> usize {
    let copies = if is_printed { 8 } else { 3 };
    let length = length as usize;
    copies * if length < LONG_DUMP { length } else { LONG_DUMP }
}

/// What remains of the arena is a power of two: so the usual dump takes none.
const _: () = assert!((KEPT + for_dump(DUMP_MAX as u32, false)).next_power_of_two() == 2 * KEPT);

/// Memory of this process that is not in use.
pub struct Unused(Vec<Range<usize>>);

impl Unused {
    /// Takes the unused memory out of reach, before the backend locks all that is in reach.
    pub fn set_aside(table: &TableMemory) -> Unused {
        let mut ranges = take_blocks(KEPT_FOR_LOADING);
        ranges.extend(table.locked_later());
        let unused = Unused(ranges.into_iter().map(whole_pages).collect());
        for range in &unused.0 {
            // What was once in use and is free again is resident.
            discard(range);
            // The kernel does not populate what cannot be accessed.
            protect(range, libc::PROT_NONE);
        }
        unused
    }

    /// Returns it to the kernel, and with it what loading has left. The backend has locked the
    /// rest.
    /// `at_end` bytes remain for what is printed at the end.
    pub fn give_back(self, at_end: usize) {
        for range in &self.0 {
            unlock(range);
            protect(range, libc::PROT_READ | libc::PROT_WRITE);
        }
        for range in take_blocks(KEPT + at_end).into_iter().map(whole_pages) {
            unlock(&range);
            discard(&range);
        }
    }
}

/// Takes free blocks out of the arena for good, the largest first, until so many bytes are left.
fn take_blocks(kept: usize) -> Vec<Range<usize>> {
    let mut taken = Vec::with_capacity(64);
    let layout = |bytes| Layout::from_size_align(bytes, 64).ok();
    let allocate = |bytes| {
        let layout = layout(bytes)?;
        // The compiler may leave out an allocation that is only freed, as the kept part is.
        // SAFETY: the size is not zero.
        let start = std::hint::black_box(unsafe { std::alloc::alloc(layout) });
        (!start.is_null()).then_some((start, layout))
    };
    let kept = allocate(kept.next_power_of_two());
    let mut bytes = BLOCKS.end;
    // Without room for the part that is kept, all is needed.
    while bytes >= BLOCKS.start && kept.is_some() {
        match allocate(bytes) {
            Some((start, _)) => taken.push(start.addr()..start.addr() + bytes),
            None => bytes /= 2,
        }
    }
    if let Some((start, layout)) = kept {
        // SAFETY: allocated above, with this layout.
        unsafe { std::alloc::dealloc(start, layout) };
    }
    taken
}

/// The pages that lie completely within these addresses.
fn whole_pages(range: Range<usize>) -> Range<usize> {
    let start = range.start.next_multiple_of(PAGE);
    start..(range.end / PAGE * PAGE).max(start)
}

fn discard(range: &Range<usize>) {
    // SAFETY: no value lives there: see `take_blocks` and `TableMemory`.
    unsafe { libc::madvise(range.start as *mut _, range.len(), libc::MADV_DONTNEED) };
}

fn protect(range: &Range<usize>, access: libc::c_int) {
    // SAFETY: nothing accesses the range meanwhile: see `take_blocks` and `TableMemory`.
    unsafe { libc::mprotect(range.start as *mut _, range.len(), access) };
}

fn unlock(range: &Range<usize>) {
    // SAFETY: a plain system call, on addresses of this process.
    unsafe { libc::munlock(range.start as *const _, range.len()) };
}

/// The memory of the policy's table, and how much of it is locked.
pub struct TableMemory {
    reserves: Vec<Reserve>,
    /// Records of which the memory is locked.
    locked: AtomicU32,
    /// The same, as the worker wishes it.
    wanted: AtomicU32,
}

impl TableMemory {
    /// That of the table of these tasks.
    pub fn of(waiting: &dyn Waiting) -> Arc<TableMemory> {
        let mut reserves = Vec::new();
        waiting.reserves(&mut |reserve| reserves.push(reserve));
        let first = waiting.nr_records().saturating_add(STEP);
        Arc::new(TableMemory { reserves, locked: first.into(), wanted: first.into() })
    }

    /// The addresses of the records that are locked later, with the tasks that need them.
    fn locked_later(&self) -> impl Iterator<Item = Range<usize>> {
        let later = self.locked.load(Ordering::Relaxed)..u32::MAX;
        self.reserves.iter().map(move |reserve| reserve.addresses(later.clone()))
    }

    /// Locks memory whenever the worker wants more, in a thread that ends with the process.
    pub fn serve(&self) {
        loop {
            let (locked, wanted) =
                (self.locked.load(Ordering::Relaxed), self.wanted.load(Ordering::Acquire));
            if wanted <= locked {
                thread::park();
            } else if self.reserves.iter().all(|reserve| lock(&reserve.addresses(locked..wanted))) {
                self.locked.store(wanted, Ordering::Release);
            } else {
                thread::sleep(PAUSE);
            }
        }
    }
}

/// Has the kernel put memory behind these addresses, which stays.
fn lock(range: &Range<usize>) -> bool {
    // SAFETY: a plain system call, on addresses of this process.
    unsafe { libc::mlock(range.start as *const _, range.len()) == 0 }
}

/// The worker's side of [`TableMemory`].
pub struct Ahead {
    memory: Arc<TableMemory>,
    thread: Thread,
    /// The records that are open to the table.
    open: u32,
}

impl Ahead {
    /// Opens the records that are locked. `thread` [serves](TableMemory::serve).
    pub fn of(memory: Arc<TableMemory>, thread: Thread, waiting: &dyn Waiting) -> Ahead {
        let open = memory.locked.load(Ordering::Acquire);
        waiting.open(open);
        Ahead { memory, thread, open }
    }

    /// Opens what has been locked since, and asks for more before the table is full. Allocates
    /// nothing and waits for nothing.
    pub fn keep(&mut self, waiting: &dyn Waiting) {
        let locked = self.memory.locked.load(Ordering::Acquire);
        if locked != self.open {
            self.open = locked;
            waiting.open(locked);
        }
        let wants = self.open.saturating_add(STEP);
        let is_short = waiting.nr_records().saturating_add(AHEAD) > self.open;
        if is_short && self.memory.wanted.load(Ordering::Relaxed) != wants {
            self.memory.wanted.store(wants, Ordering::Release);
            self.thread.unpark();
        }
    }
}
