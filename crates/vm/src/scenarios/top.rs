// SPDX-License-Identifier: GPL-2.0-only

//! What watches a running scheduler: the list of its tasks, its metrics, and lines of statistics.

use super::control::ask;
use super::errors::{NOBODY, UNPRIVILEGED, expect_refusal};
use crate::guest::load::{self, Kind, Load};
use crate::guest::scheduler::{self, Scheduler};
use crate::guest::terminal::Terminal;
use crate::guest::{Guest, report, watch};
use crate::scenario::{FULL_SPEED, Scenario};
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::time::Duration;
use std::{fs, thread};

const TEXTFILE: &str = "/tmp/scx.prom";
/// For how long the cost of a view is measured, and what its start takes.
const WATCHED: Duration = Duration::from_secs(2);
const STARTED: Duration = Duration::from_secs(1);
/// Within this time a view has figures, and so long it is waited for.
const UP_MAX: Duration = Duration::from_secs(1);
pub(super) const UP_LIMIT: Duration = Duration::from_secs(5);

pub const ALL: &[Scenario] = &[Scenario {
    name: "watching",
    about: "`top` and `--monitor` in a terminal, beside a mix: each shows figures within 1 s, and \
        takes at most 0.3 and 0.5 % of a CPU of 3,000 instructions a microsecond, with the \
        supervisor's part of it",
    cpus: Some(2),
    limit_s: 90,
    exact: true,
    once: true,
    run: watching,
    // The cost is counted in instructions.
    ..FULL_SPEED
}];

/// Expects the list to have a hog, which computes, and a sleeper, which wakes up every 3 ms.
pub fn tasks(guest: &Guest, hog: &str, sleeper: &str) -> Result<()> {
    let said = ask(guest, &["top", "--once", "--interval", "2", "--rows", "200"])?;
    report::note(said.lines().take(8).collect::<Vec<_>>().join("\n"));
    ensure!(said.contains("tasks ran or waited, sorted by cpu"), "{said}");
    ensure!(said.contains("[2J") && !said.contains('\x1b'), "a name is not escaped: {said:?}");
    let row = |pid: &str| -> Result<Vec<&str>> {
        let rows = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut rows = rows.filter(|words| words.first() == Some(&pid));
        rows.next().with_context(|| format!("no row for {pid}: {said}"))
    };
    // CPU%, WAKE/S, WAIT and DEC/S are the last four.
    let last = |words: &[&str], from_end: usize| -> Result<f64> {
        let word = words.len().checked_sub(from_end).and_then(|at| words.get(at));
        word.and_then(|word| word.parse().ok()).with_context(|| format!("{words:?}"))
    };
    let foreign = said.lines().find(|line| line.contains(" migration/"));
    let waits = foreign.is_some_and(|line| !line.contains(" 0us "));
    ensure!(!waits, "a task of a higher class does not wait: {foreign:?}");
    let of_hog = row(hog)?;
    ensure!(of_hog.contains(&"batch"), "a hog is Batch: {of_hog:?}");
    let (cpu, decisions) = (last(&of_hog, 4)?, last(&of_hog, 1)?);
    ensure!((10.0..=100.0).contains(&cpu) && decisions > 0.0, "{of_hog:?}");
    let of_sleeper = row(sleeper)?;
    let is_urgent = of_sleeper.contains(&"lat-critical") || of_sleeper.contains(&"interactive");
    ensure!(is_urgent, "a sleeper is urgent: {of_sleeper:?}");
    let wakeups = last(&of_sleeper, 3)?;
    ensure!((20.0..=400.0).contains(&wakeups), "{of_sleeper:?}");
    let mut unprivileged = scheduler::command(guest, &["top", "--once"]);
    unprivileged.uid(NOBODY).gid(NOBODY);
    let what = "top without privileges";
    expect_refusal(what, &mut unprivileged, UNPRIVILEGED, &["only the user"])
}

/// The views of `top` and `--monitor`, each with what it shows as soon as it has figures, and the
/// most CPU time that it may take with the supervisor's part of it, in microseconds a second: 0.3
/// and 0.5 % of a CPU.
pub(super) const VIEWS: [(&[&str], &str, u64); 2] =
    [(&["top"], "batch", 3_000), (&["--monitor", "1"], "health:", 5_000)];
/// A CPU of a desktop does 3,000 instructions a microsecond at least, which is one in each cycle;
/// one of the two busy ones here does 500.
const SLOWER: u64 = 6;

fn watching(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let mut plan = load::mix(guest.cpus);
    // The emulator is slow at these, and they would take most of this scenario's time.
    plan.retain(|kind| !matches!(kind, Kind::Execer { .. } | Kind::PipePair));
    let load = Load::start(&plan)?;
    watch::every_worker_moves(&load, 2, |_| scheduler.expect_in_charge())?;
    // The thread that serves a client ends with it, and its time would be lost: so this is first.
    let [alone] = costs(&[scheduler.pid()])?;
    for (arguments, shown, most) in VIEWS {
        let what = arguments.join(" ");
        let terminal = Terminal::start(scheduler::command(guest, arguments))?;
        let up = terminal.await_text(shown, UP_LIMIT).with_context(|| what.clone())?;
        // Its start is not part of what it costs.
        thread::sleep(STARTED);
        let [client, server] = costs(&[terminal.pid(), scheduler.pid()])?;
        let micros = |ns: u64| ns / 1_000 / WATCHED.as_secs();
        let cost = micros((client + server).saturating_sub(alone)) / SLOWER;
        report::note(format!(
            "{what} is up after {} ms and would take a real CPU {cost} us a second; here it took \
             {} us itself, and the supervisor {} instead of {}",
            up.as_millis(),
            micros(client),
            micros(server),
            micros(alone)
        ));
        ensure!(up <= UP_MAX, "{what} was up after {up:?}");
        ensure!(cost <= most, "{what} takes {cost} us a second");
    }
    drop(load);
    scheduler.finish().map(drop)
}

/// The CPU time that processes take while they are watched.
fn costs<const N: usize>(pids: &[libc::pid_t; N]) -> Result<[u64; N]> {
    let mut costs = [0; N];
    for (cost, pid) in costs.iter_mut().zip(pids) {
        *cost = cpu_time_ns(*pid)?;
    }
    thread::sleep(WATCHED);
    for (cost, pid) in costs.iter_mut().zip(pids) {
        *cost = cpu_time_ns(*pid)?.saturating_sub(*cost);
    }
    Ok(costs)
}

/// CPU time of all threads of a process, without its children.
fn cpu_time_ns(pid: libc::pid_t) -> Result<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).context("reading threads")?;
    let times = threads.flatten().map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
    });
    Ok(times.sum())
}

/// Expects metrics in both formats.
pub fn metrics(guest: &Guest) -> Result<()> {
    let said = ask(guest, &["metrics"])?;
    ensure!(said.ends_with("# EOF\n"), "{said}");
    let decided = said.lines().find_map(|line| {
        line.strip_prefix("pandemonium_dispatches_total{path=\"user\"} ")?.parse::<f64>().ok()
    });
    ensure!(decided.is_some_and(|count| count > 100.0), "{decided:?}: {said}");
    ask(guest, &["metrics", "--textfile", TEXTFILE])?;
    let text = fs::read_to_string(TEXTFILE).context("reading the textfile")?;
    let waits = "pandemonium_wakeup_latency_seconds_bucket{tier=\"batch\",le=\"+Inf\"} ";
    ensure!(text.contains(waits) && !text.contains("# EOF"), "{text}");
    report::note(format!("{} lines of metrics", text.lines().count()));
    Ok(())
}

/// Expects `--monitor` to print lines if its output is no terminal.
pub fn lines(guest: &Guest) -> Result<()> {
    let mut client = scheduler::command(guest, &["--monitor", "0.5"]);
    let mut client = client.spawn().context("starting a client")?;
    let output = client.stdout.take().context("stdout is piped")?;
    let lines: Vec<String> = BufReader::new(output).lines().take(2).map_while(Result::ok).collect();
    client.kill().context("ending the client")?;
    client.wait().context("ending the client")?;
    let are_right = lines.len() == 2 && lines.iter().all(|line| line.starts_with("d/s: "));
    ensure!(are_right, "{lines:?}");
    Ok(())
}
