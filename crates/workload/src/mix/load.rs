// SPDX-License-Identifier: GPL-2.0-only

//! The kinds of load of a mix: parts of which only the work counts, and rings that never pause.

use super::lot::Lot;
use super::part::Part;

/// Draws one kind.
type Kind = fn(&mut Lot) -> Part;

pub const KINDS: [Kind; 7] = [hogs, hogs, bound, build, threads, pulse, pool];

const NICE: [i64; 12] = [0, 0, 0, 0, 0, -5, 1, 3, 5, 10, 15, 19];

/// Tasks that never sleep, of any nice value and class.
fn hogs(lot: &mut Lot) -> Part {
    let name = lot.pick(&["hog", "x264", "blender", "cargo", "simulate"]);
    let part = Part::new("hogs", name, "burn").with("count", lot.tasks(2, 12));
    let (class, nice) = (lot.between(0, 7), lot.pick(&NICE));
    match class {
        0 => part.with("idle_class", true),
        1 => part.with("batch_class", true).with("nice", nice),
        _ => part.with("nice", nice),
    }
}

/// Hogs that are bound to one CPU each.
fn bound(lot: &mut Lot) -> Part {
    Part::new("bound hogs", "pinned", "burn")
        .with("count", lot.tasks(2, 6))
        .with_text("cpus", "each")
}

/// A build: many processes, each for a part of a second.
fn build(lot: &mut Lot) -> Part {
    let work = lot.scale(10_000, 80_000);
    let name = lot.pick(&["cc1", "rustc", "cc1plus"]);
    Part::new("a build", name, "job")
        .with("count", lot.tasks(4, 8))
        .range("work_us", work / 2, work * 2)
        .range("sleep_us", 100, 2_000)
        .with("respawn", true)
        .with("exec", lot.one_in(2))
        .with("nice", lot.pick(&[0, 0, 0, 10, 19]))
}

/// Threads that live for some milliseconds.
fn threads(lot: &mut Lot) -> Part {
    let work = lot.scale(300, 5_000);
    Part::new("short threads", "worker", "job")
        .with("count", lot.tasks(1, 4))
        .range("work_us", work / 2, work * 3 / 2)
        .with("respawn", true)
        .with("threads", true)
}

/// A load that stops and starts, all of its tasks at about the same time.
fn pulse(lot: &mut Lot) -> Part {
    let (work, sleep) = (lot.between(200_000, 700_000), lot.between(100_000, 400_000));
    Part::new("a load that stops and starts", "pulse", "sleep")
        .with("count", lot.tasks(4, 8))
        .with("work_us", work)
        .with("sleep_us", sleep)
        .with("nice", lot.pick(&NICE))
}

/// Threads that compute side by side and wait for the slowest, again and again.
fn pool(lot: &mut Lot) -> Part {
    let work = lot.scale(200, 10_000);
    let length = lot.tasks(3, 6).clamp(2, 32);
    Part::new("a pool with barriers", "omp", "team")
        .with("length", length)
        .range("work_us", work, work * 5 / 4)
        .with("nice", lot.pick(&[0, 0, 5]))
}

/// A ring that hands a token around without a pause. It keeps one CPU busy, so it is no load alone.
pub fn ring(lot: &mut Lot) -> Part {
    let work = lot.scale(2, 60);
    let part = Part::new("a ring without pauses", "ring", "pipe")
        .with("length", lot.between(2, 5))
        .with("work_us", work)
        .with("sync", !lot.one_in(3));
    part.noticed()
}
