// SPDX-License-Identifier: GPL-2.0-only

//! The urgent kinds of a mix: parts that a person, or a program that waits for them, notices.

use super::lot::Lot;
use super::part::Part;

/// Draws one kind.
type Kind = fn(&mut Lot) -> Part;

pub const KINDS: [Kind; 8] =
    [sleepers, ticker, frames, audio, servers, fork_storm, changing, bursts];

const HERTZ: [u64; 9] = [30, 60, 60, 75, 90, 120, 144, 165, 240];
/// Frames of a buffer, at 48,000 a second.
const BUFFERS: [u64; 4] = [64, 128, 256, 480];

/// Tasks that wake up after any time, and work a little.
fn sleepers(lot: &mut Lot) -> Part {
    let sleep = lot.scale(500, 50_000);
    let count = lot.tasks_every(sleep * 3 / 2, 6);
    let work = lot.urgent_work(count, sleep * 3 / 2, 300);
    Part::new("sleepers", lot.pick(&["daemon", "bash", "sleeper"]), "sleep")
        .with("count", count)
        .range("sleep_us", sleep, 2 * sleep)
        .with("work_us", work)
        .noticed()
}

/// A task that wakes up at a rhythm, with or without jitter.
fn ticker(lot: &mut Lot) -> Part {
    let period = lot.scale(200, 100_000);
    let jitter = lot.pick(&[0, 0, period / 20, period / 4]);
    let count = lot.tasks_every(period, 3);
    let work = lot.urgent_work(count, period, 300);
    Part::new("a rhythm", "ticker", "periodic")
        .with("count", count)
        .range("period_us", period - jitter, period + jitter)
        .with("work_us", work)
        .noticed()
}

/// A game or a compositor: one thread or several that wait for each other in each frame.
fn frames(lot: &mut Lot) -> Part {
    let period = 1_000_000 / lot.pick(&HERTZ);
    let threads = lot.between(1, 4).min(lot.cpus().max(2));
    let work = lot.urgent_work(threads, period, 350);
    let part = match threads {
        1 => Part::new("frames", "kwin_wayland", "periodic"),
        _ => Part::new("frames", "game", "team").with("length", threads),
    };
    part.with("period_us", period)
        .with("deadline_us", period)
        .range("work_us", work * 3 / 4, work * 5 / 4)
        .noticed()
}

/// Clients of a sound server, one after the other in each buffer.
fn audio(lot: &mut Lot) -> Part {
    let period = lot.pick(&BUFFERS) * 1_000 / 48;
    let clients = lot.between(2, 5);
    let work = lot.urgent_work(clients, period, 400 / clients);
    Part::new("an audio graph", "pipewire", "chain")
        .with("length", clients)
        .with("period_us", period)
        .with("deadline_us", period)
        .range("work_us", work * 3 / 4, work * 5 / 4)
        .with("nice", lot.pick(&[0, -11]))
        .noticed()
}

/// Clients that ask, each at its own pace, and servers behind them, over pipes or futexes.
fn servers(lot: &mut Lot) -> Part {
    let pause = lot.scale(1_000, 50_000);
    let (count, length) = (lot.tasks(4, 12).min(64), lot.between(2, 5));
    let work = lot.urgent_work(count * length, pause, 100);
    Part::new("servers", lot.pick(&["nginx", "postgres", "redis"]), "pipe")
        .with("count", count)
        .with("length", length)
        .range("sleep_us", pause / 2, pause * 3 / 2)
        .range("work_us", work.div_ceil(2), work * 3 / 2)
        .with("sync", lot.one_in(2))
        .noticed()
}

/// A shell that forks many short processes at once, which may execute another program.
fn fork_storm(lot: &mut Lot) -> Part {
    let exec = lot.one_in(2);
    let burst = lot.between(4, 16);
    let pause = lot.scale(20_000, 20_000 * burst);
    let work = lot.urgent_work(burst, pause, 20);
    Part::new(if exec { "a storm of programs" } else { "a fork storm" }, "sh", "storm")
        .with("burst", burst)
        .range("sleep_us", pause, 2 * pause)
        .with("pause_us", 200)
        .with("work_us", work)
        .with("exec", exec)
        .noticed()
}

/// A program that computes, then sleeps and wakes up often, and then computes again.
fn changing(lot: &mut Lot) -> Part {
    let sleep = lot.scale(1_000, 8_000);
    let wakeups = lot.between(30, 60);
    Part::new("a program that changes", "editor", "change")
        .with("burst", wakeups)
        .range("sleep_us", sleep, 2 * sleep)
        .with("work_us", 50)
        .with("compute_us", lot.scale(50_000, 500_000))
        .with("pause_us", lot.between(100_000, 500_000))
        .noticed()
}

/// A browser's threads: long sleeps, then some pieces of work with short pauses.
fn bursts(lot: &mut Lot) -> Part {
    let pause = lot.scale(20_000, 150_000);
    let (count, burst) = (lot.between(1, 4), lot.between(4, 12));
    let work = lot.urgent_work(count * burst, 2 * pause, 20);
    Part::new("bursts of work", "firefox", "burst")
        .with("count", count)
        .range("sleep_us", pause, 3 * pause)
        .range("pause_us", 100, 1_000)
        .range("work_us", work.div_ceil(2), work * 3 / 2)
        .with("burst", burst)
        .noticed()
}
