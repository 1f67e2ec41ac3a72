// SPDX-License-Identifier: GPL-2.0-only

//! Rounds and stalls in the memory that is shared with the backend: `backend_patches/stalled.h`.

use super::bpf_intf as abi;
use super::bpf_skel::types;
use crate::clock;
use pandemonium_engine::time::{Span, Stamp};
use std::sync::atomic::{AtomicU64, Ordering};

/// Why this process did not decide: `enum patch_stall_cause` of src/bpf/backend_limits.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StallCause {
    /// It could run, and no CPU ran it.
    NoCpu = abi::patch_stall_cause_PATCH_STALL_NO_CPU,
    /// A signal, a debugger or the freezer stopped it.
    Stopped = abi::patch_stall_cause_PATCH_STALL_STOPPED,
    /// It waited in the kernel.
    Blocked = abi::patch_stall_cause_PATCH_STALL_BLOCKED,
    /// It ran, in one long round.
    Running = abi::patch_stall_cause_PATCH_STALL_RUNNING,
}

impl StallCause {
    /// In the order of their numbers.
    pub const ALL: [StallCause; COUNT] =
        [StallCause::NoCpu, StallCause::Stopped, StallCause::Blocked, StallCause::Running];
}

const COUNT: usize = abi::patch_stall_cause_PATCH_STALL_CAUSES as usize;

/// The stalls since the backend was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallCounters {
    /// Stalls that are over.
    pub stalls: u64,
    /// Their time.
    pub time: Span,
    /// Looks of the backend that found each cause, one each 10 ms, in the order of
    /// [`StallCause::ALL`].
    pub causes: [u64; COUNT],
    /// Messages before the ring was last found empty.
    answered: u64,
}

impl StallCounters {
    /// A round begins.
    pub(super) fn begin_round(bss: &mut types::bss) {
        count(bss);
    }

    /// No message is left: the `asked` ones that were counted before are read.
    pub(super) fn note_empty(&mut self, asked: u64) {
        self.answered = asked;
    }

    /// A round ends: the process decides again, if the backend did meanwhile.
    pub(super) fn end_round(&mut self, bss: &mut types::bss) {
        let shared = &raw mut bss.patch_stall;
        // SAFETY: points into live memory that only this process writes.
        unsafe { (&raw mut (*shared).answered).write_volatile(self.answered) };
        count(bss);
        // SAFETY: points into live memory; volatile because the kernel reads and writes it too. It
        // writes `since` last when a stall begins, and not again before it is zero.
        unsafe {
            let since = (&raw const (*shared).since).read_volatile();
            if since == 0 {
                return;
            }
            self.causes = (&raw const (*shared).causes).read_volatile();
            (&raw mut (*shared).since).write_volatile(0);
            self.stalls += 1;
            self.time += clock::now().since(Stamp::from_nanos(since));
        }
    }
}

/// Messages that the backend has queued.
pub(super) fn asked(bss: &types::bss) -> u64 {
    let asked = (&raw const bss.patch_stall.asked).cast_mut();
    // SAFETY: aligned and live, and the kernel writes it in one piece. Acquire: the ring is looked
    // into after that.
    unsafe { AtomicU64::from_ptr(asked) }.load(Ordering::Acquire)
}

/// Counts the begin or the end of a round.
fn count(bss: &mut types::bss) {
    let rounds = &raw mut bss.patch_stall.rounds;
    // SAFETY: points into live memory that only this process writes.
    unsafe { rounds.write_volatile(rounds.read_volatile().wrapping_add(1)) };
}

/// Publishes the longest slice of tasks that compute.
pub(super) fn set_slice(bss: &mut types::bss, slice: Span) {
    let shared = &raw mut bss.patch_stall.slice_ns;
    // SAFETY: points into live memory that only this process writes.
    unsafe {
        if shared.read_volatile() != slice.as_nanos() {
            shared.write_volatile(slice.as_nanos());
        }
    }
}
