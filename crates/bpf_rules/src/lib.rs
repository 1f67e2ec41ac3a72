// SPDX-License-Identifier: GPL-2.0-only

//! The pure rules of the BPF programs (`src/bpf/rules.h` and those beside it), compiled for the
//! host, so that a test can compare them with the simulator's (`crates/sim/src/machine/rules.rs`).

#![warn(missing_docs)]

/// What the rules know of a CPU: the part of `struct fp_cpu` that they read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// When the occupant began.
    pub since: u64,
    /// For how long the occupant may run; zero if that is not known.
    pub slice: u64,
    /// When the CPU was last kicked.
    pub kicked: u64,
    /// The window of time in which `kicks` counts.
    pub window: u64,
    /// How often it was kicked in that window.
    pub kicks: u32,
    /// What it runs: `enum fp_occupant`.
    pub occupant: u32,
    /// Nonzero if the occupant is of low weight.
    pub low_weight: u32,
    /// Nonzero if the task may not use the CPU.
    pub forbidden: u32,
    /// Nonzero if the occupant is about to end.
    pub ending: u32,
    /// For the alignment.
    pub unused: u32,
}

/// A task that needs a CPU: `struct need`, and what the rules read of `struct fp_settings`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Now.
    pub now: u64,
    /// A Batch task that has run less is not preempted by another one.
    pub thresh_ns: u64,
    /// The CPU on which this is found out.
    pub here: u32,
    /// The task's own place in `enum fp_occupant`.
    pub tier: u32,
    /// Nonzero if the CPU `here` must be left alone.
    pub spare_here: u32,
    /// Nonzero if the task is of the kind that never preempts.
    pub never_preempts: u32,
    /// Nonzero if the task also wants a CPU whose occupant has used up its slice.
    pub overdue: u32,
    /// Nonzero in a burst.
    pub burst: u32,
    /// The CPU that the task used last.
    pub last_cpu: u32,
    /// Nonzero if the task may not use all CPUs.
    pub is_bound: u32,
}

const _: () = assert!(size_of::<Cpu>() == 56 && size_of::<Need>() == 48);

/// What the verdict on a standing order depends on: `struct order_view`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The names are those of src/bpf/order_rules.h.
pub struct OrderView {
    pub now: u64,
    pub until: u64,
    pub batch_due: u64,
    pub key: u64,
    pub occupant_key: u64,
    pub tier: u32,
    pub left: u32,
    pub epoch: u32,
    pub epoch_now: u32,
    pub rest: u32,
    pub waiting: u32,
    pub deficit_left: u32,
    pub occupant: u32,
    pub requeued: bool,
    pub occupied: bool,
    pub limited: bool,
    pub decides: bool,
    pub waker_sleeps: bool,
    pub looked: bool,
}

/// What happens to a task, in the order of `enum order_verdict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderVerdict {
    /// `ORDER_ASK`.
    Ask,
    /// `ORDER_PREEMPT`.
    Preempt,
    /// `ORDER_QUEUE`.
    Queue,
    /// `ORDER_QUEUE_HERE`.
    QueueHere,
    /// `ORDER_HAND_OVER`.
    HandOver,
    /// `ORDER_RESUME`.
    Resume,
    /// `ORDER_AGAIN`.
    Again,
}

/// A timer that is overdue for so long is started again: at least `FP_OVERDUE_NS`.
pub const OVERDUE_MAX: u64 = 10_000_000;

/// A timer that is armed again and again while there is something to watch: `struct fp_watch`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// Nonzero if it is armed.
    pub armed: u32,
    /// Its callbacks so far.
    pub calls: u32,
    /// The same at the last look.
    pub calls_before: u32,
}

unsafe extern "C" {
    fn host_timer_arm(armed: u64, at: u64, now: u64, refused: u32) -> u64;
    fn host_watch_look(watch: *mut Watch);
    fn host_find_victim(cpus: *const Cpu, nr_cpus: u32, need: *const Need) -> i32;
    fn host_order_verdict(view: *const OrderView, size: u64) -> i32;
    fn host_order_is_ending(view: *const OrderView, size: u64) -> i32;
    fn host_note_kick(cpu: *mut Cpu, now: u64);
    fn host_count_handoff(before: u32, asleep: u32, woke: u64, now: u64) -> u32;
    fn host_crowd_slice(slice: u64, waiting: u32, cpus: u32) -> u64;
    fn host_crowd_passing_key(key: u64, queued: u32, cpus: u32) -> u64;
    fn host_key_by_weight(turn: *mut u64, last: u64, now: u64, ran: u64, weight: u32) -> u64;
    fn host_crowd_key(key: u64, now: u64, slice: u64, queued: u32, cpus: u32) -> u64;
}

/// The CPU to kick for the task. `need.here` and `need.last_cpu` are of `cpus`.
pub fn find_victim(cpus: &[Cpu], need: &Need) -> Option<u32> {
    let last = need.here.max(need.last_cpu) as usize;
    assert!(last < cpus.len() && cpus.len() <= i32::MAX as usize);
    // SAFETY: the slice is read within its bounds, since these two are.
    let victim = unsafe { host_find_victim(cpus.as_ptr(), cpus.len() as u32, need) };
    u32::try_from(victim).ok()
}

/// Whether the order ends soon; `None` if the two sides differ in the layout of the view.
pub fn order_is_ending(view: &OrderView) -> Option<bool> {
    // SAFETY: a reference to one structure; the other side compares the size first.
    match unsafe { host_order_is_ending(view, size_of::<OrderView>() as u64) } {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// What happens to the task; `None` if the two sides differ in the layout of the view.
pub fn order_verdict(view: &OrderView) -> Option<OrderVerdict> {
    // SAFETY: a reference to one structure; the other side compares the size first.
    match unsafe { host_order_verdict(view, size_of::<OrderView>() as u64) } {
        0 => Some(OrderVerdict::Ask),
        1 => Some(OrderVerdict::Preempt),
        2 => Some(OrderVerdict::Queue),
        3 => Some(OrderVerdict::QueueHere),
        4 => Some(OrderVerdict::HandOver),
        5 => Some(OrderVerdict::Resume),
        6 => Some(OrderVerdict::Again),
        _ => None,
    }
}

/// Counts a kick of the CPU.
pub fn note_kick(cpu: &mut Cpu, now: u64) {
    // SAFETY: a reference to one structure of the same layout.
    unsafe { host_note_kick(cpu, now) }
}

/// How often a task has handed over its CPU, when it stops.
pub fn count_handoff(before: u8, asleep: bool, woke: u64, now: u64) -> u8 {
    // SAFETY: plain numbers.
    unsafe { host_count_handoff(before.into(), asleep.into(), woke, now) as u8 }
}

/// The slice of a task among `waiting` others, of `cpus` CPUs, which are not zero.
pub fn crowd_slice(slice: u64, waiting: u32, cpus: u32) -> u64 {
    assert!(cpus > 0);
    // SAFETY: plain numbers, and no division by zero.
    unsafe { host_crowd_slice(slice, waiting, cpus) }
}

/// The key in the shared DSQ of a Batch task behind `queued` others, on `cpus` CPUs, which are not
/// zero.
pub fn crowd_key(key: u64, now: u64, slice: u64, queued: u32, cpus: u32) -> u64 {
    assert!(cpus > 0);
    // SAFETY: plain numbers, and no division by zero.
    unsafe { host_crowd_key(key, now, slice, queued, cpus) }
}

/// The key in the shared DSQ of a LatCritical task behind `queued` others, on `cpus` CPUs.
pub fn crowd_passing_key(key: u64, queued: u32, cpus: u32) -> u64 {
    // SAFETY: plain numbers.
    unsafe { host_crowd_passing_key(key, queued, cpus) }
}

/// The key in the shared DSQ of a task that had the key `last`, and the mean turn. Its weight is
/// not zero.
pub fn key_by_weight(turn: &mut u64, last: u64, now: u64, ran: u64, weight: u32) -> u64 {
    assert!(weight > 0);
    // SAFETY: a reference to a number, plain numbers, and no division by zero.
    unsafe { host_key_by_weight(turn, last, now, ran, weight) }
}

/// Arms a timer, which is armed for the time `armed` or 0, for the time `at`: what it is armed for
/// then. The start, if there is one, is `refused`.
pub fn timer_arm(armed: u64, at: u64, now: u64, refused: bool) -> u64 {
    // SAFETY: plain numbers.
    unsafe { host_timer_arm(armed, at, now, refused.into()) }
}

/// A look at the watch: one that is lost counts as not armed.
pub fn watch_look(watch: &mut Watch) {
    // SAFETY: a reference to one structure of the same layout.
    unsafe { host_watch_look(watch) }
}
