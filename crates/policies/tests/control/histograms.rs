// SPDX-License-Identifier: GPL-2.0-only

//! Latencies, sleeps and their quantiles.

use crate::{MS, US, latencies, sleeps};
use pandemonium_engine::histogram::{Latencies, Sleeps};
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::Span;

#[test]
fn an_edge_belongs_to_the_bucket_below_it() {
    let mut latencies = Latencies::default();
    for (wait, bucket) in [
        (Span::ZERO, 0),
        (US(10), 0),
        (Span::from_nanos(10_001), 1),
        (US(100), 3),
        (MS(1), 6),
        (MS(20), 10),
        (Span::from_nanos(20_000_001), 11),
        (Span::from_nanos(u64::MAX), 11),
    ] {
        let before = latencies.counts[bucket];
        latencies.record(wait);
        assert_eq!(latencies.counts[bucket], before + 1, "{wait:?}");
    }
    let mut sleeps = Sleeps::default();
    for wait in [MS(1), MS(10), MS(100), US(100_001)] {
        sleeps.record(wait);
    }
    assert_eq!(sleeps.counts, [1, 1, 1, 1]);
}

#[test]
fn the_p99_is_the_edge_that_99_of_100_did_not_exceed() {
    let cases: [(&[(u64, Span)], Span); 7] = [
        (&[], Span::ZERO),
        (&[(5_000, US(42))], US(50)),
        (&[(99, US(10)), (1, MS(10))], US(10)),
        (&[(98, US(10)), (2, MS(10))], MS(10)),
        (&[(500, MS(60))], MS(20)),
        (&[(1, US(200))], US(250)),
        (&[(100, US(100))], US(100)),
    ];
    for (counts, p99) in cases {
        assert_eq!(latencies(counts).p99(), p99, "{counts:?}");
    }
}

#[test]
fn the_p99_needs_99_of_100_and_rounds_up() {
    // Total, and the fewest waits below the edge for a P99 at the edge.
    for (total, needed) in [(1, 1), (50, 50), (99, 99), (100, 99), (101, 100), (200, 198)] {
        let split = |low: u64| latencies(&[(low, US(10)), (total - low, MS(10))]).p99();
        assert_eq!(split(needed), US(10), "{needed} of {total}");
        assert_eq!(split(needed - 1), MS(10), "{needed} of {total}");
    }
    assert_eq!(latencies(&[(990, US(10)), (10, MS(10))]).p99(), US(10));
}

#[test]
fn each_tier_has_its_own_latencies() {
    let mut latency = [Latencies::default(); 3];
    latency[Tier::Interactive.index()] = latencies(&[(100, US(50))]);
    latency[Tier::Batch.index()] = latencies(&[(100, MS(1))]);
    assert_eq!(latency[Tier::Interactive.index()].p99(), US(50));
    assert_eq!(latency[Tier::Batch.index()].p99(), MS(1));
    assert_eq!(latency[Tier::LatCritical.index()].p99(), Span::ZERO);
    assert_eq!(latency[0].plus(&latency[1]).p99(), MS(1));
}

#[test]
fn the_difference_of_two_snapshots_is_never_negative() {
    let early = latencies(&[(3, US(10))]);
    let late = latencies(&[(5, US(10)), (1, MS(1))]);
    assert_eq!(late.since(&early), latencies(&[(2, US(10)), (1, MS(1))]));
    assert_eq!(early.since(&late), Latencies::default());
}

#[test]
fn the_share_of_io_is_unknown_if_no_task_slept() {
    assert_eq!(Sleeps::default().io_percent(), None);
    assert_eq!(sleeps(0).io_percent(), Some(0));
    assert_eq!(sleeps(61).io_percent(), Some(61));
    assert_eq!(Sleeps { counts: [1, 1, 1, 0] }.io_percent(), Some(66));
    assert_eq!(Sleeps { counts: [u64::MAX; 4] }.io_percent(), Some(50));
}
