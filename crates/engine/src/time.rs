// SPDX-License-Identifier: GPL-2.0-only

//! The types of time: [`Stamp`] (a point in time), [`Span`] (a length of time) and [`Vtime`]
//! (weighted CPU time, the key of every queue). All arithmetic on time is here.
//!
//! All types count nanoseconds. All saturate instead of wrapping, so that neither a clock that
//! steps back nor a hostile message can reverse an order.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A point in time: nanoseconds of a monotonic clock with an arbitrary zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// Virtual time: CPU time divided by weight, in nanoseconds of a weight-100 task.
///
/// The kernel orders its queues by the virtual time of each dispatch. It compares two keys by
/// their signed difference, so two keys must never be more than 2^63 ns (292 years) apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vtime(u64);

impl Stamp {
    /// A stamp from the nanoseconds of a monotonic clock.
    pub const fn from_nanos(ns: u64) -> Self {
        Stamp(ns)
    }

    /// Nanoseconds of the clock this stamp was read from.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero when it lies in the future.
    pub const fn since(self, earlier: Stamp) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The point in time `span` before this one.
    pub const fn before(self, span: Span) -> Stamp {
        Stamp(self.0.saturating_sub(span.0))
    }
}

impl Span {
    /// The empty span.
    pub const ZERO: Span = Span(0);

    /// A span of `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Span(ns)
    }

    /// A span of `us` microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Span(us.saturating_mul(1_000))
    }

    /// A span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Span(ms.saturating_mul(1_000_000))
    }

    /// Length in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Length in whole microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// `self * numerator / denominator`, computed in 128 bits, so that no precision is lost.
    pub const fn scale(self, numerator: u64, denominator: u64) -> Span {
        let scaled = self.0 as u128 * numerator as u128 / denominator as u128;
        Span(if scaled > u64::MAX as u128 { u64::MAX } else { scaled as u64 })
    }
}

/// A span of up to 4.29 s in four bytes, for data that is kept of every task. A longer span is
/// cut to that length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShortSpan(u32);

impl ShortSpan {
    /// Stores a span, cut to the longest that fits.
    pub const fn of(span: Span) -> ShortSpan {
        ShortSpan(if span.0 > u32::MAX as u64 { u32::MAX } else { span.0 as u32 })
    }

    /// The span.
    pub const fn get(self) -> Span {
        Span(self.0 as u64)
    }
}

impl Vtime {
    /// Where a virtual clock starts. Far enough from zero that subtracting credit never
    /// saturates.
    pub const START: Vtime = Vtime(1 << 40);

    /// The raw key, as it goes into a message.
    pub const fn from_raw(raw: u64) -> Self {
        Vtime(raw)
    }

    /// The raw key, as it goes into a message.
    pub const fn as_raw(self) -> u64 {
        self.0
    }

    /// This time, `span` of weight-100 CPU time later.
    pub const fn after(self, span: Span) -> Vtime {
        Vtime(self.0.saturating_add(span.0))
    }

    /// This time, `span` of weight-100 CPU time earlier.
    pub const fn before(self, span: Span) -> Vtime {
        Vtime(self.0.saturating_sub(span.0))
    }
}

impl Add<Span> for Stamp {
    type Output = Stamp;
    fn add(self, span: Span) -> Stamp {
        Stamp(self.0.saturating_add(span.0))
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Span {
    /// In the largest suitable unit: `17us`, `3ms`, `12s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 1_000 => write!(f, "{ns}ns"),
            ns if ns < 1_000_000 => write!(f, "{}us", ns / 1_000),
            ns if ns < 10_000_000_000 => write!(f, "{}ms", ns / 1_000_000),
            ns => write!(f, "{}s", ns / 1_000_000_000),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_clock_that_steps_back_gives_no_negative_age() {
        let (early, late) = (Stamp::from_nanos(5), Stamp::from_nanos(9));
        assert_eq!(late.since(early), Span::from_nanos(4));
        assert_eq!(early.since(late), Span::ZERO);
        assert_eq!(late.before(Span::from_nanos(4)), early);
        assert_eq!(early.before(Span::from_nanos(9)), Stamp::default());
    }

    #[test]
    fn scaling_keeps_precision_and_saturates() {
        assert_eq!(Span::from_nanos(10).scale(1, 3), Span::from_nanos(3));
        assert_eq!(Span::from_nanos(u64::MAX).scale(2, 1), Span::from_nanos(u64::MAX));
        assert_eq!(Span::from_nanos(u64::MAX).scale(100, 100), Span::from_nanos(u64::MAX));
    }

    #[test]
    fn a_short_span_is_cut_not_wrapped() {
        let kept = |ns| ShortSpan::of(Span::from_nanos(ns)).get().as_nanos();
        assert_eq!(kept(4_294_967_295), 4_294_967_295);
        assert_eq!(kept(4_294_967_296), 4_294_967_295);
    }

    #[test]
    fn spans_print_in_the_largest_suitable_unit() {
        let printed = |ns| Span::from_nanos(ns).to_string();
        assert_eq!(printed(999), "999ns");
        assert_eq!(printed(17_400), "17us");
        assert_eq!(printed(3_000_000), "3ms");
        assert_eq!(printed(9_999_000_000), "9999ms");
        assert_eq!(printed(12_000_000_000), "12s");
    }
}
