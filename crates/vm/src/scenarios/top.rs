// SPDX-License-Identifier: GPL-2.0-only

//! What watches a running scheduler: the list of its tasks, its metrics, and lines of statistics.

use super::control::ask;
use super::errors::{NOBODY, UNPRIVILEGED, expect_refusal};
use crate::guest::scheduler::{self, Scheduler};
use crate::guest::{Guest, report};
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::time::Duration;
use std::{fs, thread};

const TEXTFILE: &str = "/tmp/scx.prom";
/// For how long the cost of a list every second is measured.
const WATCHED: Duration = Duration::from_secs(3);

/// Expects the list to have a hog, which computes, and a sleeper, which wakes up every 3 ms.
pub fn tasks(guest: &Guest, hog: &str, sleeper: &str) -> Result<()> {
    let said = ask(guest, &["top", "--once", "--interval", "2", "--rows", "200"])?;
    report::note(said.lines().take(8).collect::<Vec<_>>().join("\n"));
    ensure!(said.contains("tasks ran or waited, sorted by cpu"), "{said}");
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

/// Notes what a list every second costs the client, and the supervisor that makes it.
pub fn cost(guest: &Guest, scheduler: &Scheduler) -> Result<()> {
    let server = scheduler.pid();
    // The thread that serves a client ends with it, and its time would be lost: so this is first.
    let alone = cpu_time_ns(server)?;
    thread::sleep(WATCHED);
    let alone = cpu_time_ns(server)?.saturating_sub(alone);
    let mut client = scheduler::command(guest, &["top", "--rows", "20"]);
    let mut client = client.spawn().context("starting top")?;
    // Its start is not part of what it costs.
    thread::sleep(Duration::from_secs(2));
    let pid = client.id() as libc::pid_t;
    let before = (cpu_time_ns(pid)?, cpu_time_ns(server)?);
    thread::sleep(WATCHED);
    let after = (cpu_time_ns(pid)?, cpu_time_ns(server)?);
    client.kill().context("ending top")?;
    client.wait().context("ending top")?;
    let micros = |ns: u64| ns / 1_000 / WATCHED.as_secs();
    report::note(format!(
        "a list of tasks every second takes {} us a second of the client, and the supervisor {} us \
         instead of {} us",
        micros(after.0.saturating_sub(before.0)),
        micros(after.1.saturating_sub(before.1)),
        micros(alone)
    ));
    Ok(())
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
