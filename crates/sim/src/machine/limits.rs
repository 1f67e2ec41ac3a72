// SPDX-License-Identifier: GPL-2.0-only

//! Numbers of the backend and of the fast path, stated again for the simulated machine.
//! `tests/contract.rs` compares each with the C side.

// ---- The backend and its patches ----

/// Messages that fit into a ring: `MAX_ENQUEUED_TASKS`.
pub const RING: usize = 4096;
/// Decisions that one dispatch call takes: `PATCH_DRAIN` of src/bpf/backend_limits.h.
pub const DRAIN: usize = 8;
/// The backend's timer: `USERSCHED_TIMER_NS`.
pub const HEARTBEAT: u64 = 1_000_000_000;
/// The kernel ejects a scheduler that leaves a task waiting for so long: the backend's
/// `timeout_ms`.
pub const WATCHDOG: u64 = 5_000_000_000;

/// A CPU serves its own DSQ for so long before it looks into the shared one: `PATCH_OWN_NS` of
/// src/bpf/backend_limits.h.
pub const OWN_TURN: u64 = 100_000_000;
/// And at least so many tasks of it: `PATCH_OWN_TASKS`.
pub const OWN_TASKS: u32 = 16;

// ---- The fast path: src/bpf/fast_path.h ----

/// CPUs looked at in search of a victim: `FP_SCAN`.
pub const SCAN: u32 = 64;
/// A CPU is not kicked twice within this: `FP_KICK_INTERVAL_NS`.
pub const KICK_INTERVAL: u64 = 50_000;
/// Kicks of one CPU in a window of time: `FP_KICKS_PER_WINDOW`.
pub const KICKS_PER_WINDOW: u32 = 10;
/// That window is two to the power of this: `FP_WINDOW_BITS`.
pub const WINDOW_BITS: u32 = 20;
/// A waker that sleeps within this handed its CPU over: `FP_HANDOFF_NS`.
pub const HANDOFF: u64 = 100_000;
/// So often in a row until it is trusted: `FP_HANDOFF_TRUST`.
pub const HANDOFF_TRUST: u8 = 8;
/// A task that waits for a decision is checked so often: `FP_RECHECK_NS`.
pub const RECHECK: u64 = 100_000;
/// One that waits for its turn: `FP_TURN_NS`.
pub const TURN: u64 = 500_000;
/// Tasks that wait for their turn are checked at multiples of this power of two: `FP_TURN_BITS`.
pub const TURN_BITS: u32 = 19;
/// Checks of one wait: `FP_RECHECKS`.
pub const RECHECKS: u32 = 20;
/// After a sleep of this length a wakee counts as Interactive at least: `FP_SLEEP_LONG_NS`.
pub const SLEEP_LONG: u64 = 128_000_000;
/// A timer is not armed for less: `FP_SOON_NS`.
pub const SOON: u64 = 20_000;
/// Slices below LatCritical end early if a turn of all waiting tasks takes longer:
/// `FP_CROWD_TURN_NS`.
pub const CROWD_TURN: u64 = 1_000_000_000;
/// But not before this: `FP_CROWD_SLICE_MIN_NS`.
pub const CROWD_SLICE_MIN: u64 = 200_000;
/// A LatCritical task passes tasks of the shared DSQ that are due if there are more for each CPU:
/// `FP_CROWD`.
pub const CROWD: u32 = 8;
/// By so much for each task beyond that: `FP_CROWD_LEAD_NS`.
pub const CROWD_LEAD: u64 = 1_000_000;
/// Waiting tasks that the timer of a CPU checks: `FP_WAITERS`.
pub const WAITERS: usize = 8;

/// CPUs besides the waker's that are looked at for a task to preempt by an order: `ORDER_SCAN` of
/// src/bpf/backend_limits.h.
pub const ORDER_SCAN: u32 = 7;
/// Tasks hand a CPU over for so long before it looks for others: `ORDER_LOOK_NS`.
pub const ORDER_LOOK: u64 = 200_000;
/// For so long a task counts as Batch after its last message or used-up slice: `ORDER_BATCH_NS`.
pub const BATCH_TIME: u64 = 250 << 20;

/// What a CPU runs, in the order of urgency: `enum fp_occupant`.
pub const IDLE: u32 = 0;
/// A Batch task. The other tiers follow in their order.
pub const BATCH: u32 = 1;
/// The scheduler itself, or a task of another scheduling class.
pub const FOREIGN: u32 = 4;
/// Nothing: the CPU is offline.
pub const OFFLINE: u32 = 5;

/// `FP_DEFAULT_SLICE_NS`: the slice while no decision comes.
pub const DEFAULT_SLICE: u64 = 4_000_000;
/// `FP_PERIOD_MAX_NS`: the longest from one turn of a task of low weight to the next meanwhile.
pub const PERIOD_MAX: i64 = 500_000_000;
/// `FP_MEAN_TURN_MIN_NS`: the least that counts as the mean length of a turn of all tasks.
pub const MEAN_TURN_MIN: i64 = 500_000;
/// `PATCH_WAKEUP_LEAD_NS` of src/bpf/backend_limits.h: a woken task comes before what has waited
/// for less than a turn of all and this time.
pub const WAKEUP_LEAD: u64 = 32_000_000;
/// `PATCH_CHECK_NS`: between two checks whether a round has ended.
pub const STALL_CHECK: u64 = 10_000_000;
/// `PATCH_CHECKS`: checks without the end of a round that make a stall.
pub const STALL_CHECKS: u32 = 2;
