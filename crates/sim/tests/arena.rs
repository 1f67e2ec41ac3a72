// SPDX-License-Identifier: GPL-2.0-only

//! Tests the policies in the memory that they have in production: an arena of 64 MiB, managed by a
//! buddy allocator with leaves of 64 bytes. The allocator of `scx_rustland_core` is the same,
//! behind one lock, so a round must not allocate.
//!
//! The arena is this test binary's global allocator, with counters: a policy that does not fit
//! aborts the test.

use buddy_alloc::buddy_alloc::{BuddyAlloc, BuddyAllocParam};
use pandemonium_engine::task::{Arrival, Comm, CpuId, Dispatch, Pid, RawArrival, Tier};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::topology::{CPUS_MAX, Topology};
use pandemonium_engine::{Full, Limits, MachineView, Memo, Policy, Port, round};
use pandemonium_engine::{Setup, TASKS_MAX};
use pandemonium_policies::{Fifo, Pandemonium, Vruntime};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `HEAP_SIZE` and `LEAF_SIZE` of `scx_rustland_core`.
const ARENA_SIZE: usize = 64 << 20;
const LEAF_SIZE: usize = 64;
/// Limit of a policy's tables: the other half of the arena is for the rest of the program.
const SHARE: usize = ARENA_SIZE / 2;
/// Tasks that are queued during the stress rounds; the others up to [`TASKS_MAX`] sleep.
const WAITING: usize = 100_000;
const STRESS_ROUNDS: u32 = 3_000;

#[repr(align(4096))]
struct Memory(#[expect(dead_code, reason = "only its address matters")] [u8; ARENA_SIZE]);

static mut MEMORY: Memory = Memory([0; ARENA_SIZE]);

#[global_allocator]
static ARENA: Arena = Arena {
    buddies: Mutex::new(Buddies(None)),
    live: AtomicUsize::new(0),
    peak: AtomicUsize::new(0),
};

struct Arena {
    buddies: Mutex<Buddies>,
    /// Bytes of all blocks in use. A block's size is a power of two.
    live: AtomicUsize,
    peak: AtomicUsize,
}

struct Buddies(Option<BuddyAlloc>);

// SAFETY: the allocator's pointers point into MEMORY, which lives as long as the program and which
// no other code accesses. Any thread may use them, one at a time; the mutex ensures that.
unsafe impl Send for Buddies {}

thread_local! {
    /// Per thread: the test harness allocates on threads of its own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

impl Arena {
    fn with<R>(&self, act: impl FnOnce(&mut BuddyAlloc) -> R) -> R {
        let mut buddies = self.buddies.lock().unwrap_or_else(PoisonError::into_inner);
        act(buddies.0.get_or_insert_with(|| {
            let start = (&raw const MEMORY).cast();
            // SAFETY: only the arena uses MEMORY.
            unsafe { BuddyAlloc::new(BuddyAllocParam::new(start, ARENA_SIZE, LEAF_SIZE)) }
        }))
    }
}

// SAFETY: blocks of a buddy allocator do not overlap, and start at a multiple of the leaf size,
// which aligns all blocks that do not come from the system allocator.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        if layout.align() > LEAF_SIZE {
            // The channels of the test harness align to pairs of cache lines. The policies do not:
            // such an allocation would be missing from the arena's peak.
            // SAFETY: the caller upholds the contract of `alloc`.
            return unsafe { System.alloc(layout) };
        }
        let start = self.with(|buddies| buddies.malloc(layout.size()));
        if !start.is_null() {
            let block = block_size(layout);
            let live = self.live.fetch_add(block, Ordering::Relaxed) + block;
            self.peak.fetch_max(live, Ordering::Relaxed);
        }
        start
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if layout.align() > LEAF_SIZE {
            // SAFETY: as in `alloc`, which took the block from the same allocator.
            return unsafe { System.dealloc(start, layout) };
        }
        self.live.fetch_sub(block_size(layout), Ordering::Relaxed);
        self.with(|buddies| buddies.free(start));
    }
}

fn block_size(layout: Layout) -> usize {
    layout.size().next_power_of_two().max(LEAF_SIZE)
}

fn is_in_arena<T>(thing: *const T) -> bool {
    let start = &raw const MEMORY as usize;
    (start..start + ARENA_SIZE).contains(&(thing as usize))
}

/// Number of allocations of this thread in `act`.
fn allocations(act: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    act();
    ALLOCATIONS.get() - before
}

/// The arena can hold one policy only, so the tests run one at a time.
fn lock_arena() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A port that needs no memory: it generates random messages, and refuses after a set number of
/// sends.
struct RandomPort {
    /// Messages left in the ring.
    ring: usize,
    /// Sends left until one is refused.
    accepts: u32,
    random: u64,
    ticket: u64,
    /// The pid of the next message, or `None` for one at random.
    next_pid: Option<i32>,
    view: MachineView,
}

impl RandomPort {
    fn new() -> RandomPort {
        let view = MachineView::default();
        RandomPort { ring: 0, accepts: u32::MAX, random: 1, ticket: 1, next_pid: None, view }
    }

    /// The generator of Knuth's MMIX. Only the upper half of its state is sufficiently random.
    fn random(&mut self) -> u32 {
        const FACTOR: u64 = 6_364_136_223_846_793_005;
        self.random = self.random.wrapping_mul(FACTOR).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 32) as u32
    }

    /// Draws from more pids than a policy can track, so that it must evict some.
    fn random_pid(&mut self) -> i32 {
        (self.random() % (TASKS_MAX + TASKS_MAX / 2)) as i32 + 1
    }
}

impl Port for RandomPort {
    fn recv(&mut self) -> Option<Arrival> {
        self.ring = self.ring.checked_sub(1)?;
        self.ticket += 1;
        let pid = match &mut self.next_pid {
            Some(next) => std::mem::replace(next, *next + 1),
            None => self.random_pid(),
        };
        let shape = self.random();
        let raw = RawArrival {
            pid,
            cpu: (shape % 64) as i32,
            nr_cpus_allowed: 64,
            flags: (shape >> 8 & 1) as u64,
            stop_ts: (shape % 20_000_000) as u64,
            exec_runtime: (shape % 50_000_000) as u64,
            weight: (shape % 1_000) as u64,
            // One in 64 is a reused pid.
            enq_cnt: if shape >> 26 == 0 { 1 } else { self.ticket },
            ..RawArrival::default()
        };
        Some(raw.decode().expect("a message that names a task and a CPU"))
    }

    fn send(&mut self, _dispatch: &Dispatch) -> Result<(), Full> {
        self.accepts = self.accepts.checked_sub(1).ok_or(Full)?;
        Ok(())
    }

    fn kick(&mut self, _cpu: CpuId) {}

    fn view(&self) -> &MachineView {
        &self.view
    }
}

fn at(round: u32) -> Stamp {
    Stamp::from_nanos(1 << 40) + Span::from_micros(round as u64 * 500)
}

/// Fills the policy with as many tasks as it can track; [`WAITING`] of them stay queued.
fn fill<Q: Policy>(policy: &mut Q, port: &mut RandomPort) {
    let all = TASKS_MAX as usize;
    for dispatches in [all, 0] {
        port.next_pid = Some(1);
        port.ring = if dispatches == all { all } else { WAITING };
        round(at(0), port, policy, Limits { arrivals: usize::MAX, dispatches, extra: 0 });
    }
    port.next_pid = None;
    assert_eq!(policy.waiting().nr_waiting(), WAITING);
}

/// Runs rounds of production size and larger, with refusals, exits and unknown tasks.
fn stress<Q: Policy>(policy: &mut Q, port: &mut RandomPort) {
    for number in 1..=STRESS_ROUNDS {
        port.ring = port.random() as usize % 64;
        port.accepts = if port.random().is_multiple_of(4) { 0 } else { u32::MAX };
        let dispatches = if port.random().is_multiple_of(2) { 1 } else { 60 };
        round(at(number), port, policy, Limits { arrivals: 4096, dispatches, extra: 0 });
        let gone = port.random_pid();
        policy.exit(Pid::new(gone).expect("pids are positive"));
    }
    assert!(
        policy.waiting().nr_waiting() > WAITING / 2,
        "too few tasks were queued in the last rounds"
    );
}

/// Fills and stresses a policy: checks that it fits into its share, and that rounds do not
/// allocate.
fn check_memory<Q: Policy>(name: &str, make: impl FnOnce() -> Q) {
    let _lock = lock_arena();
    let before = ARENA.live.load(Ordering::Relaxed);
    ARENA.peak.store(before, Ordering::Relaxed);
    let mut policy = make();
    let mut port = RandomPort::new();
    let mut known = 0;
    // In production it lies in memory of the driver.
    let largest = Topology::flat(CPUS_MAX);
    let made = allocations(|| {
        policy.follow_topology(&largest);
        fill(&mut policy, &mut port);
        stress(&mut policy, &mut port);
        if let Some(learning) = policy.learning() {
            learning.export(&mut |_memo: Memo| known += 1);
        }
    });
    assert_eq!(made, 0, "{name} allocates in a round");
    drop(policy);
    let peak = ARENA.peak.load(Ordering::Relaxed) - before;
    println!("{name}: {peak} bytes of {SHARE} at most, {known} tasks exported");
    assert!(peak > TASKS_MAX as usize * LEAF_SIZE, "{name} does not allocate from the arena");
    assert!(peak <= SHARE, "{name} takes {peak} bytes");
    let left = ARENA.live.load(Ordering::Relaxed);
    assert!(left < before + (1 << 20), "{name} leaves {left} bytes behind");
}

#[test]
fn fifo_fits_and_allocates_nothing_in_a_round() {
    check_memory("fifo", Fifo::new);
}

#[test]
fn vruntime_fits_and_allocates_nothing_in_a_round() {
    check_memory("vruntime", Vruntime::new);
}

#[test]
fn pandemonium_fits_and_allocates_nothing_in_a_round() {
    let names = vec![(Comm::from_text("gamescope"), Tier::LatCritical); 4];
    let setup = Setup { names, ..Setup::of_cpus(64) };
    check_memory("pandemonium", || Pandemonium::new(&setup));
}

#[test]
fn allocations_come_from_the_arena() {
    let _lock = lock_arena();
    let boxed = Box::new([0u8; 100]);
    assert!(is_in_arena(&raw const *boxed));
    assert!(!is_in_arena(&raw const boxed), "the stack is not in the arena");
    let mut vast = Vec::<u8>::new();
    assert!(vast.try_reserve_exact(ARENA_SIZE).is_err(), "the arena must be the limit");
}

#[test]
fn allocations_are_counted() {
    let _lock = lock_arena();
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(7)))), 1);
    let mut grows = Vec::with_capacity(1);
    grows.push(1);
    assert_eq!(allocations(|| grows.push(2)), 1, "growing a vector allocates");
}

/// The largest machine of the simulator with the policy: 1,024 CPUs, 100,000 tasks.
#[test]
fn the_largest_simulated_machine_fits_beside_its_policy() {
    use pandemonium_sim::machine::{Machine, Setup as Simulated};
    use pandemonium_sim::topology::Shape;
    use pandemonium_sim::workload::{Draw, Group, Workload};

    let _lock = lock_arena();
    let before = ARENA.live.load(Ordering::Relaxed);
    ARENA.peak.store(before, Ordering::Relaxed);
    let between = |low, high| Draw::between(Span::from_micros(low), Span::from_micros(high));
    let daemons = Group::sleepers("daemon", 99_000, between(20_000, 400_000), between(20, 400));
    let workload = Workload {
        name: "crowd".into(),
        about: String::new(),
        duration: Span::from_millis(100),
        warmup: Span::ZERO,
        groups: vec![Group::hogs("burner", 1_000), daemons],
    };
    let mut make = || Pandemonium::new(&Setup::of_cpus(1024));
    let mut policy = make();
    let mut machine = Machine::new(Simulated::new(Shape::flat(1024), 1), workload, ());
    machine.run(Span::from_millis(100), &mut policy, &mut make);
    let (known, events) = (machine.nr_tasks(), machine.counters().events);
    let peak = ARENA.peak.load(Ordering::Relaxed) - before;
    println!("{known} tasks, {events} events: {peak} bytes of {ARENA_SIZE}");
    assert_eq!(known, 100_000);
    assert!(events > 100_000, "too few events: {events}");
    assert!(peak <= ARENA_SIZE, "the machine and its policy take {peak} bytes");
}
