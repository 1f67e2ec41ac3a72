// SPDX-License-Identifier: GPL-2.0-only

//! A fixed series of statistics: a desktop at rest, a compiler, a burst, and a fault.

use pandemonium_view::sample::{Sample, Tail};
use pandemonium_view::tasks::{Task, TaskList};

const SECONDS: u64 = 48;

/// A number that looks random and is always the same, from `low` to `high`.
fn noise(second: u64, salt: u64, low: u64, high: u64) -> u64 {
    let mixed = (second * 0x9e37_79b9 + salt * 0x85eb_ca6b).wrapping_mul(0xc2b2_ae3d) >> 16;
    low + mixed % (high - low + 1)
}

fn tail(count: u64, p50_us: u64, p99_us: u64) -> Tail {
    let [p50_ns, p99_ns] = [p50_us, p99_us].map(|us| us * 1_000);
    Tail { count, p50_ns, p99_ns, p999_ns: p99_ns * 3 }
}

/// One sample a second.
pub fn samples() -> Vec<Sample> {
    let mut sum = Sample::default();
    (0..SECONDS).map(|second| after(&mut sum, second)).collect()
}

fn after(sum: &mut Sample, second: u64) -> Sample {
    let busy = (14..44).contains(&second);
    let burst = (24..29).contains(&second);
    let regime = match second {
        0..14 => "LIGHT",
        14..18 | 44.. => "MIXED",
        _ => "HEAVY",
    };
    let noisy = |salt, low, high| noise(second, salt, low, high);
    let times = if burst { 4 } else { 1 };
    let (idle, orders, user) = match busy {
        true => (noisy(1, 300, 500), noisy(2, 1_200, 1_500), noisy(3, 700, 900) * times),
        false => (noisy(1, 1_500, 1_800), noisy(2, 80, 200), noisy(3, 60, 120)),
    };
    sum.nr_kernel_dispatches += idle;
    sum.nr_orders += orders;
    sum.nr_user_dispatches += user;
    sum.nr_lat_critical += user / 4;
    sum.nr_interactive += user / 3;
    sum.nr_batch += user - user / 4 - user / 3;
    let scale = if busy { 6 } else { 1 };
    let late = if second == 35 { 400 } else { 1 };
    let tails = [
        (
            "wait_lat_critical",
            tail(noisy(4, 700, 900), noisy(5, 8, 14), noisy(6, 40, 70) * scale / 3),
        ),
        (
            "wait_interactive",
            tail(noisy(7, 500, 700), noisy(8, 12, 25), noisy(9, 80, 160) * scale * late),
        ),
        (
            "wait_batch",
            tail(noisy(10, 90, 200), noisy(11, 40, 90), noisy(12, 500, 1_500) * scale * times),
        ),
        ("stage_received", tail(user, noisy(13, 3, 6), noisy(14, 15, 30))),
        ("stage_decided", tail(user, noisy(15, 1, 2), noisy(16, 4, 9))),
        ("stage_running", tail(user, noisy(17, 6, 12), noisy(18, 30, 90))),
    ];
    let health = match second {
        35 => "an urgent task waited up to 115 ms for a CPU",
        _ => "ok",
    };
    Sample {
        health: health.into(),
        policy: "pandemonium".into(),
        regime: regime.into(),
        profile: if second >= 40 { "gaming" } else { "auto" }.into(),
        profile_by: if second >= 40 { "GameMode" } else { "" }.into(),
        fast_path: "loaded".into(),
        burst: burst.into(),
        longrun: u64::from((30..34).contains(&second)),
        nr_cpus: 4,
        nr_waiting: if busy { noisy(19, 1, 6) } else { 0 },
        nr_knobs_set: u64::from(second >= 40),
        oldest_wait_us: if busy { noisy(20, 1_500, 6_000) * times } else { noisy(20, 20, 90) },
        dispatches_per_sec: idle + user,
        decisions_per_sec: user,
        rescues: if busy { noisy(21, 0, 9) } else { 0 },
        kicks: user / 3,
        own_cpu_pct: user as f64 / 640.0,
        slice_us: if regime == "HEAVY" { 750 } else { 1_000 },
        batch_slice_us: 4_000,
        tails: tails.map(|(name, tail)| (name.to_owned(), tail)).into(),
        ..sum.clone()
    }
}

/// Pid, name, tier, rule, CPU time, wakeups, longest wait, decisions.
const TASKS: &str = "\
4711|cc1plus|batch|order|96.4|2|6900|241
4713|cc1plus|batch|order|94.8|1|7400|238
4715|rustc|batch|sojourn|61.3|9|11200|170
2310|game.exe|interactive|standing order|48.7|240|410|12
2304|wineserver|lat-critical|standing order|11.9|3100|130|98
1822|Xwayland|interactive|standing order|9.4|610|260|25
1790|gnome-shell|interactive|order|8.8|420|900|61
901|pipewire|lat-critical|standing order|1.6|750|95|24
2350|dxvk-submit|lat-critical|standing order|1.2|240|120|9
3001|firefox|interactive|idle CPU|0.9|64|180|0
88|kworker/2:1|lat-critical|order|0.1|31|60|31
4720|make||idle CPU|0.1|3|40|0";

/// The tasks of a second of a busy desktop.
pub fn tasks() -> TaskList {
    let tasks = TASKS.lines().map(task).collect();
    TaskList { policy: "pandemonium".into(), complete: true, tasks }
}

fn task(line: &str) -> Task {
    let cells: Vec<&str> = line.split('|').collect();
    let number = |at: usize| cells[at].parse().expect("the cell is a number");
    Task {
        pid: cells[0].parse().expect("the cell is a pid"),
        name: cells[1].into(),
        tier: cells[2].into(),
        rule: cells[3].into(),
        cpu_pct: cells[4].parse().expect("the cell is a share"),
        wakeups: number(5),
        wait_us: number(6),
        decisions: number(7),
        ..Task::default()
    }
}

/// What the scheduler says of one of them.
pub fn explanation() -> Vec<String> {
    let lines = [
        "game.exe (pid 2310) is Interactive: score 19, it wakes up 240 times a second and runs \
         2.0ms between two sleeps.",
        "In 3000ms it was queued to user space 36 times after a sleep and 2 times after losing its \
         CPU. It was dispatched 38 times (38 by order), after 41 us on average and 410 us at most.",
    ];
    lines.map(str::to_owned).into()
}
