// SPDX-License-Identifier: GPL-2.0-only

//! Standing orders in the memory that is shared with the backend: `backend_patches/orders.h`.

use super::bpf_intf as abi;
use super::bpf_skel::types;
use crate::fast_path::occupant;
use pandemonium_engine::facts::Facts;
use pandemonium_engine::orders::Bounds;
use pandemonium_engine::task::{Dispatch, Pid, Tier};
use pandemonium_engine::time::{Span, Stamp};
use std::sync::atomic::{Ordering, fence};

/// Slots and sets of slots; see `ORDER_SLOTS`.
const SLOTS: usize = abi::order_limits_ORDER_SLOTS as usize;
const SETS: usize = abi::order_limits_ORDER_SETS as usize;

/// The slot that names the pid, if there is one.
fn slot(bss: &mut types::bss, pid: Pid) -> Option<*mut types::order_slot> {
    let mut ways = (pid.as_raw() as usize % SETS..SLOTS).step_by(SETS);
    ways.find_map(|index| {
        let slot = &raw mut bss.order_slots[index];
        // SAFETY: points into live memory, which the kernel may write; any bytes are valid.
        let owner = unsafe { (&raw const (*slot).pid).read_volatile() };
        (owner == pid.as_raw() as u32).then_some(slot)
    })
}

/// Notes a decision with the task's slot, and its order. Not if the task has queued another message
/// since, or if another task uses the slot.
pub(super) fn post(bss: &mut types::bss, dispatch: &Dispatch, now: Stamp) {
    let short = |span: Span| span.as_nanos().min(u32::MAX.into()) as u32;
    let epoch = bss.order_bounds.epoch;
    let Some(slot) = slot(bss, dispatch.pid) else { return };
    // SAFETY: points into live memory. The backend reads and writes the slot meanwhile if the task
    // is queued again, which makes this order void, or wakes up by an order that is renewed: that
    // is void before anything is written.
    unsafe {
        if (&raw const (*slot).ticket).read_volatile() != dispatch.ticket.0 {
            return;
        }
        // An order that is renewed is valid, and void while it is written.
        (&raw mut (*slot).answers).write_volatile(0);
        (&raw mut (*slot).asked).write_volatile(0);
        fence(Ordering::Release);
        (&raw mut (*slot).tier).write_volatile(occupant(dispatch.tier));
        (&raw mut (*slot).slice).write_volatile(short(dispatch.slice));
        let decided = Span::from_nanos(dispatch.vtime.as_raw().saturating_sub(now.as_nanos()));
        let offset = dispatch.order.map_or(decided, |order| order.key_offset);
        (&raw mut (*slot).key_offset).write_volatile(short(offset));
        let Some(order) = dispatch.order else { return };
        let executed = (&raw const (*slot).executed).read_volatile();
        (&raw mut (*slot).executed_max).write_volatile(executed.wrapping_add(order.credit));
        (&raw mut (*slot).until).write_volatile((now + order.life).as_nanos());
        (&raw mut (*slot).epoch).write_volatile(epoch);
        fence(Ordering::Release);
        (&raw mut (*slot).answers).write_volatile(dispatch.ticket.0);
    }
}

/// Adds what the backend has executed for the task to its facts.
pub(super) fn add_facts(bss: &mut types::bss, pid: Pid, facts: &mut Facts) {
    let Some(slot) = slot(bss, pid) else { return };
    // SAFETY: points into live memory; any bytes are valid integers.
    let copy = unsafe { slot.read_volatile() };
    if copy.pid == pid.as_raw() as u32 {
        facts.orders = copy.executed;
        facts.ordered = Stamp::from_nanos(copy.executed_at);
        facts.preempted = Pid::new(copy.victim as i32);
    }
}

/// Publishes the bounds, and which tasks wait for a decision; `None` to execute no order.
pub(super) fn publish(bss: &mut types::bss, bounds: Option<&Bounds>) {
    let deficit = counts(bss).order_deficit;
    let shared = &raw mut bss.order_bounds;
    // SAFETY: points into live memory. The backend reads each field by itself, and any mix of old
    // and new ones is valid.
    unsafe {
        (&raw mut (*shared).enabled).write_volatile(bounds.is_some().into());
        let Some(bounds) = bounds else { return };
        let due = bounds.batch_due.map_or(u64::MAX, |due| due.as_nanos());
        (&raw mut (*shared).batch_due).write_volatile(due);
        (&raw mut (*shared).epoch).write_volatile(bounds.epoch);
        let waiting = bounds.waiting.map_or(0, occupant);
        (&raw mut (*shared).waiting).write_volatile(waiting);
        let deficit_max = deficit.wrapping_add(bounds.deficit_left);
        (&raw mut (*shared).deficit_max).write_volatile(deficit_max);
    }
}

/// Publishes that tasks wait for a decision, and how urgent they are.
pub(super) fn rest(bss: &mut types::bss, waiting: Option<Tier>) {
    let pending = match waiting {
        None => abi::order_pending_ORDER_NOTHING_PENDING,
        Some(Tier::Batch) => abi::order_pending_ORDER_BATCH_PENDING,
        Some(_) => abi::order_pending_ORDER_URGENT_PENDING,
    };
    // SAFETY: a reference to live memory, written as volatile because the kernel reads it.
    unsafe { (&raw mut bss.order_bounds.pending).write_volatile(pending) };
}

/// What the view of the machine says of decided tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// The deficit that orders made so far: those executed while Batch work waited.
    pub(super) order_deficit: u32,
    /// Tasks in the shared queue.
    pub(super) queued: u32,
}

/// Reads these counts.
pub(super) fn counts(bss: &types::bss) -> Counts {
    // SAFETY: references to live memory, read as volatile because the kernel writes it.
    unsafe {
        Counts {
            order_deficit: (&raw const bss.order_deficit).read_volatile(),
            queued: (&raw const bss.patch_decided).read_volatile(),
        }
    }
}

/// Orders executed, by what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderCounters {
    /// Wakeups that preempted the running task, or took an idle CPU.
    pub preempted: u64,
    /// Wakeups that waited in the shared DSQ.
    pub queued: u64,
    /// Preempted tasks that went on without a decision.
    pub resumed: u64,
    /// Batch tasks that got another slice without a decision.
    pub continued: u64,
    /// Orders for which another one was asked before they ended.
    pub renewed: u64,
    /// Valid orders that were lost because another task took their slot.
    pub displaced: u64,
}

pub(super) fn counters(bss: &types::bss) -> OrderCounters {
    let sum = |event: u32| {
        let of = |cpu: &types::backend_cpu| cpu.events[event as usize];
        bss.backend_cpus[..*scx_utils::NR_CPU_IDS].iter().map(of).sum()
    };
    OrderCounters {
        preempted: sum(abi::order_event_ORDER_PREEMPTED),
        queued: sum(abi::order_event_ORDER_QUEUED),
        resumed: sum(abi::order_event_ORDER_RESUMED),
        continued: sum(abi::order_event_ORDER_CONTINUED),
        renewed: sum(abi::order_event_ORDER_RENEWED),
        displaced: sum(abi::order_event_ORDER_DISPLACED),
    }
}
