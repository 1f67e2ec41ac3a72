// SPDX-License-Identifier: GPL-2.0-only

//! Numbers that the worker writes and the supervisor reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// The largest number that is believed: two years in nanoseconds. A worker that was taken over may
/// write any, and sums and percentages of larger ones would overflow.
pub const NUMBER_MAX: u64 = 1 << 56;

/// A number that the worker has written.
pub fn number_in(cell: &AtomicU64) -> u64 {
    cell.load(Ordering::Relaxed).min(NUMBER_MAX)
}
