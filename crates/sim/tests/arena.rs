// SPDX-License-Identifier: GPL-2.0-only

//! The brain in the memory that it has in production: one arena of 64 MiB, cut into leaves of 64
//! bytes by a buddy allocator, and nothing else. The core's own allocator is exactly that, behind
//! one lock, so a round must not ask it for anything.
//!
//! The arena here is the global allocator of this test binary, with counters around it: if the
//! brain did not fit, the tests would abort for want of memory.

use buddy_alloc::buddy_alloc::{BuddyAlloc, BuddyAllocParam};
use pandemonium_engine::task::{Arrival, Comm, CpuId, Dispatch, Pid, RawArrival, Tier};
use pandemonium_engine::time::{Span, Stamp};
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
/// What the policy's tables may take: the other half belongs to the rest of the program.
const SHARE: usize = ARENA_SIZE / 2;
/// Tasks that wait while the storm blows; the rest of [`TASKS_MAX`] rests.
const WAITING: usize = 100_000;
const STORM_ROUNDS: u32 = 3_000;

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
    /// Bytes of the blocks that are in use, which are powers of two.
    live: AtomicUsize,
    peak: AtomicUsize,
}

struct Buddies(Option<BuddyAlloc>);

// SAFETY: the allocator's pointers lead into MEMORY, which lives as long as the program and which
// nobody else touches. Any thread may use them, one at a time, and the mutex sees to that.
unsafe impl Send for Buddies {}

thread_local! {
    /// The test harness has threads of its own, whose allocations are not the brain's.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

impl Arena {
    fn with<R>(&self, act: impl FnOnce(&mut BuddyAlloc) -> R) -> R {
        let mut buddies = self.buddies.lock().unwrap_or_else(PoisonError::into_inner);
        act(buddies.0.get_or_insert_with(|| {
            let start = (&raw const MEMORY).cast();
            // SAFETY: MEMORY is the arena's alone.
            unsafe { BuddyAlloc::new(BuddyAllocParam::new(start, ARENA_SIZE, LEAF_SIZE)) }
        }))
    }
}

// SAFETY: blocks of a buddy allocator do not overlap, and start at a multiple of the leaf size,
// which is alignment enough for all that does not go to the system.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        if layout.align() > LEAF_SIZE {
            // The channels of the test harness keep to pairs of cache lines. The brain does not:
            // what is not from the arena would show as missing in its peak.
            // SAFETY: the caller's promises are handed on.
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
            // SAFETY: as in `alloc`, and that is where it came from.
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

/// How often this thread allocates in `act`.
fn allocations(act: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    act();
    ALLOCATIONS.get() - before
}

/// The arena has room for one policy, so the tests go one by one.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A kernel that needs no memory: its messages are computed, its refusals are counted out.
struct Storm {
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

impl Storm {
    fn new() -> Storm {
        let view = MachineView::default();
        Storm { ring: 0, accepts: u32::MAX, random: 1, ticket: 1, next_pid: None, view }
    }

    /// The generator of Knuth's MMIX; the upper half of its state is random enough.
    fn random(&mut self) -> u32 {
        const FACTOR: u64 = 6_364_136_223_846_793_005;
        self.random = self.random.wrapping_mul(FACTOR).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 32) as u32
    }

    /// Tasks that are known, and half as many that are not, so that some have to be forgotten.
    fn random_pid(&mut self) -> i32 {
        (self.random() % (TASKS_MAX + TASKS_MAX / 2)) as i32 + 1
    }
}

impl Port for Storm {
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
            // One in 64 is a pid used again.
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

/// Makes the policy know as many tasks as it can, and most of them wait.
fn crowd<Q: Policy>(policy: &mut Q, port: &mut Storm) {
    let all = TASKS_MAX as usize;
    for dispatches in [all, 0] {
        port.next_pid = Some(1);
        port.ring = if dispatches == all { all } else { WAITING };
        round(at(0), port, policy, Limits { arrivals: usize::MAX, dispatches, extra: 0 });
    }
    port.next_pid = None;
    assert_eq!(policy.queued(), WAITING);
}

/// Rounds as production has them and larger ones, with refusals, exits and unknown tasks.
fn storm<Q: Policy>(policy: &mut Q, port: &mut Storm) {
    for number in 1..=STORM_ROUNDS {
        port.ring = port.random() as usize % 64;
        port.accepts = if port.random().is_multiple_of(4) { 0 } else { u32::MAX };
        let dispatches = if port.random().is_multiple_of(2) { 1 } else { 60 };
        round(at(number), port, policy, Limits { arrivals: 4096, dispatches, extra: 0 });
        let gone = port.random_pid();
        policy.on_exit(Pid::new(gone).expect("pids are positive"));
    }
    assert!(policy.queued() > WAITING / 2, "the storm was not over before it ended");
}

/// Walks a policy through its largest life and watches the arena.
fn fits_and_is_quiet<Q: Policy>(name: &str, make: impl FnOnce() -> Q) {
    let _turn = turn();
    let before = ARENA.live.load(Ordering::Relaxed);
    ARENA.peak.store(before, Ordering::Relaxed);
    let mut policy = make();
    let mut port = Storm::new();
    let mut known = 0;
    let made = allocations(|| {
        crowd(&mut policy, &mut port);
        storm(&mut policy, &mut port);
        policy.export(&mut |_memo: Memo| known += 1);
    });
    assert_eq!(made, 0, "{name} allocates in a round");
    drop(policy);
    let peak = ARENA.peak.load(Ordering::Relaxed) - before;
    println!("{name}: {peak} bytes of {SHARE} at most, {known} tasks handed out");
    assert!(peak > TASKS_MAX as usize * LEAF_SIZE, "{name} lives elsewhere");
    assert!(peak <= SHARE, "{name} takes {peak} bytes");
    let left = ARENA.live.load(Ordering::Relaxed);
    assert!(left < before + (1 << 20), "{name} leaves {left} bytes behind");
}

#[test]
fn fifo_fits_and_allocates_nothing_in_a_round() {
    fits_and_is_quiet("fifo", Fifo::new);
}

#[test]
fn vruntime_fits_and_allocates_nothing_in_a_round() {
    fits_and_is_quiet("vruntime", Vruntime::new);
}

#[test]
fn pandemonium_fits_and_allocates_nothing_in_a_round() {
    let names = vec![(Comm::from_text("gamescope"), Tier::LatCritical); 4];
    let setup = Setup { names, ..Setup::of_cpus(64) };
    fits_and_is_quiet("pandemonium", || Pandemonium::new(&setup));
}

#[test]
fn the_arena_is_what_is_really_used() {
    let _turn = turn();
    let boxed = Box::new([0u8; 100]);
    assert!(is_in_arena(&raw const *boxed));
    assert!(!is_in_arena(&raw const boxed), "the stack is elsewhere");
    let mut vast = Vec::<u8>::new();
    assert!(vast.try_reserve_exact(ARENA_SIZE).is_err(), "there is no more than the arena");
}

#[test]
fn the_counter_counts() {
    let _turn = turn();
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(7)))), 1);
    let mut grows = Vec::with_capacity(1);
    grows.push(1);
    assert_eq!(allocations(|| grows.push(2)), 1, "growing is allocating");
}

/// The wind tunnel's largest machine with the policy on it: 1,024 CPUs, 100,000 tasks.
#[test]
fn the_largest_simulated_machine_fits_beside_its_policy() {
    use pandemonium_sim::machine::{Machine, Setup as Simulated};
    use pandemonium_sim::topology::Shape;
    use pandemonium_sim::workload::{Draw, Group, Workload};

    let _turn = turn();
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
    assert!(events > 100_000, "hardly anything happened: {events}");
    assert!(peak <= ARENA_SIZE, "it takes {peak} bytes");
}
