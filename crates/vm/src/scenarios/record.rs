// SPDX-License-Identifier: GPL-2.0-only

//! What a running scheduler reports: a recording that replays bit for bit, and the explanation of
//! one task.

use super::control::ask;
use super::errors::{NOBODY, UNPRIVILEGED, USAGE, expect_refusal};
use super::top;
use crate::guest::lives::Life;
use crate::guest::load::{Kind, Load, mix};
use crate::guest::memory::{self, Memory};
use crate::guest::scheduler::{self, Scheduler};
use crate::guest::{Guest, clock, report, watch};
use crate::scenario::{FULL_SPEED, Scenario, USUAL};
use anyhow::{Context, Result, bail, ensure};
use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "record",
        about: "a mixed load is recorded while a knob changes; in the replay the policy repeats \
            every decision, and another policy does not",
        limit_s: 180,
        once: true,
        run: record,
        ..USUAL
    },
    Scenario {
        name: "explain",
        about: "the running scheduler explains how it classifies a hog, a sleeper and a task with \
            a hostile name, lists them, and has metrics; only its own user may ask",
        limit_s: 90,
        once: true,
        run: explain,
        ..USUAL
    },
];

/// By name only: its figure is worth minutes.
pub const RECORD_COST: Scenario = Scenario {
    name: "record-cost",
    about: "hogs beside sleepers and programs that fork and execute others keep 98 % \
        of their work while all of it is recorded",
    cpus: Some(2),
    limit_s: 400,
    exact: true,
    once: true,
    run: record_cost,
    ..FULL_SPEED
};

const LAB: &str = "/bin/pandemonium_lab";
const FILE: &str = "/tmp/run.rec";
/// Most memory that the worker may hold, in KiB: 2 MiB are the ring of the recording.
const RESIDENT_MAX: u64 = memory::RESIDENT_MAX + (2 << 10);
const LINK: &str = "/tmp/link.rec";
/// Recorded time before and after the knob changes.
const RECORDED: Duration = Duration::from_secs(3);
/// Replaying some seconds takes less than one second on one virtual CPU.
const REPLAY_LIMIT: Duration = Duration::from_secs(30);

/// Pairs of runs, without and with a recording, and how long each is measured.
const PAIRS: usize = 4;
const MEASURED: Duration = Duration::from_secs(4);
/// A program executes another one so often. Without a pace, what it gets of the machine would move
/// the hogs' work by 9 % from run to run.
const EXEC_PERIOD_US: u64 = 10_000;
/// What a recording may cost, in percent of the hogs' work.
const COST_MAX: f64 = 2.0;

fn record_cost(guest: &Guest) -> Result<()> {
    let mut steps = [0, 0];
    for pair in 1..=PAIRS {
        // What the guest does grows slower from run to run: each way comes first as often.
        let with_first = pair % 2 == 0;
        for with in [with_first, !with_first] {
            let work = hogs_work(guest, if with { &["--record", FILE] } else { &[] })?;
            report::note(format!("pair {pair}: {work}"));
            steps[usize::from(with)] += work.steps;
            if with {
                std::fs::remove_file(FILE).context("removing a recording")?;
            }
        }
    }
    let cost = 100.0 * (1.0 - steps[1] as f64 / steps[0] as f64);
    report::note(format!("a recording costs {cost:.2} % of the hogs' work"));
    ensure!(cost <= COST_MAX, "a recording costs {cost:.2} % of the hogs' work");
    Ok(())
}

/// What hogs did beside a mixed load, and the CPU time that they and the scheduler took for it.
struct Work {
    steps: u64,
    hogs_ns: u64,
    scheduler_ns: u64,
    /// What the scheduler said of its recording.
    told: String,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let [hogs, scheduler] = [self.hogs_ns, self.scheduler_ns].map(Duration::from_nanos);
        let Work { steps, told, .. } = self;
        write!(f, "{steps} units of work in {hogs:.1?}, the scheduler {scheduler:.1?} {told}")
    }
}

fn hogs_work(guest: &Guest, options: &[&str]) -> Result<Work> {
    let scheduler = Scheduler::start(guest, options)?;
    let hogs = 2 * guest.cpus;
    let mut kinds = vec![Kind::Hog; hogs];
    kinds.extend([Kind::Periodic { period_us: 1_000 }; 4]);
    kinds.extend([
        Kind::Storm { children: 8, period_us: 48_000 },
        Kind::Execer { period_us: EXEC_PERIOD_US },
    ]);
    let load = Load::start(&kinds)?;
    std::thread::sleep(Duration::from_secs(1));
    let times = || -> Result<[u64; 2]> {
        let of_hogs = load.workers().iter().take(hogs).map(|hog| clock::cpu_time_ns(hog.pid));
        Ok([of_hogs.sum::<Option<u64>>().context("a hog ended")?, scheduler.cpu_time_ns()?])
    };
    let before = times()?;
    let steps = load.steps_in(MEASURED).iter().take(hogs).sum();
    let after = times()?;
    drop(load);
    let ended = scheduler.finish()?;
    let told = ended.output.into_iter().find(|line| line.starts_with("recorded "));
    let [hogs_ns, scheduler_ns] = [0, 1].map(|at| after[at].saturating_sub(before[at]));
    Ok(Work { steps, hogs_ns, scheduler_ns, told: told.unwrap_or_default() })
}

fn record(guest: &Guest) -> Result<()> {
    std::os::unix::fs::symlink("/etc/elsewhere", LINK).context("making a link")?;
    for (file, part) in [(LINK, "exists"), ("/none/run.rec", "No such file")] {
        let mut refused = scheduler::command(guest, &["--record", file]);
        expect_refusal(file, &mut refused, USAGE, &[file, "cannot be written", part])?;
    }
    let scheduler = Scheduler::start(guest, &["--record", FILE, "--redact"])?;
    let load = Load::start(&mix(guest.cpus))?;
    // Other scenarios check the progress of every worker. Here a busy host may only make the
    // recording longer.
    std::thread::sleep(RECORDED);
    scheduler.expect_in_charge()?;
    ask(guest, &["tune", "batch_slice_us=2500"])?;
    std::thread::sleep(RECORDED);
    scheduler.expect_in_charge()?;
    ensure!(scheduler.statistics()?.count("record_dropped")? == 0, "entries were dropped");
    drop(load);
    Memory::of_scheduler(&scheduler)?.expect_at_most(RESIDENT_MAX)?;
    let ended = scheduler.finish()?;
    let line = ended.output.iter().find(|line| line.starts_with("recorded "));
    let line = line.with_context(|| format!("no message about it: {}", ended.describe()))?;
    report::note(line.as_str());
    ensure!(line.contains(FILE) && !line.contains("dropped"), "it is not complete: {line}");

    let said = expect_to_replay(FILE)?;
    ensure!(decisions(&said)? > 1_000, "too few decisions: {said}");
    let other = lab(&["replay", FILE, "--policy", "fifo"], Some(1))?;
    ensure!(other.contains("fifo differs"), "{other}");
    let why = lab(&["explain", FILE, "--task", "program-0"], None)?;
    ensure!(why.contains("program-0 (pid "), "{why}");
    Ok(())
}

/// The policy repeats each decision of the recording. Returns what the lab tells of it.
pub fn expect_to_replay(file: &str) -> Result<String> {
    let said = lab(&["replay", file], Some(0))?;
    report::note(said.lines().nth(1).unwrap_or_default());
    ensure!(said.contains("pandemonium repeats every one of them"), "{said}");
    Ok(said)
}

fn decisions(said: &str) -> Result<u64> {
    let line = said.lines().find_map(|line| line.split_once(" decisions in "));
    line.and_then(|(count, _)| count.parse().ok()).with_context(|| said.to_owned())
}

/// Runs pandemonium_lab in the guest, and demands this exit code if there is one.
fn lab(arguments: &[&str], code: Option<i32>) -> Result<String> {
    let what = arguments.join(" ");
    report::progress(format!("pandemonium_lab {what}"));
    let mut command = Command::new(LAB);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().context("starting the lab")?;
    let pid = child.id() as libc::pid_t;
    let (done, output) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let Ok(output) = output.recv_timeout(REPLAY_LIMIT) else {
        // SAFETY: a child of this process, not yet waited for.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        bail!("pandemonium_lab {what}: still running after {} s", REPLAY_LIMIT.as_secs());
    };
    let output = output.context("waiting for the lab")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let message = String::from_utf8_lossy(&output.stderr);
    let right = code.is_none_or(|code| output.status.code() == Some(code));
    ensure!(right, "pandemonium_lab {what}: {}, printing: {said} {message}", output.status);
    Ok(said)
}

/// Its name would clear a terminal, and is not UTF-8.
const HOSTILE: Kind =
    Kind::Named { name: c"\x1b[2J\xff", life: Life::Periodic { period_us: 3_000, work_us: 100 } };

fn explain(guest: &Guest) -> Result<()> {
    let without = &mut scheduler::command(guest, &["explain", "1"]);
    expect_refusal("explain without a scheduler", without, 1, &["no scheduler runs here"])?;
    let scheduler = Scheduler::start(guest, &[])?;
    // Hogs of ordinary weight take turns by orders, and have little to explain.
    let mut plan = vec![Kind::NiceHog { nice: 1 }; 2 * guest.cpus];
    plan.extend([Kind::Sleeper { pause_us: 3_000 }, HOSTILE]);
    let load = Load::start(&plan)?;
    watch::every_worker_moves(&load, 2, |_| scheduler.expect_in_charge())?;
    let pid_of = |wanted: fn(&Kind) -> bool| {
        let found = load.workers().iter().find(|worker| wanted(&worker.kind));
        found.map(|worker| worker.pid.to_string()).context("it was started above")
    };
    let hog = pid_of(|kind| matches!(kind, Kind::NiceHog { .. }))?;
    let said = ask(guest, &["explain", &hog, "--over-us", "1"])?;
    report::note(said.trim());
    // On a slow host it slept while it was started, and its behaviour alone may make it Batch.
    ensure!(said.contains("used up its slices") || said.contains("its behaviour"), "{said}");
    let parts = ["is Batch", "losing its CPU", "others came first", "order"];
    for part in parts {
        ensure!(said.contains(part), "the explanation of a hog lacks {part:?}: {said}");
    }
    let sleeper = pid_of(|kind| matches!(kind, Kind::Sleeper { .. }))?;
    let said = ask(guest, &["explain", &sleeper])?;
    report::note(said.trim());
    ensure!(said.contains("is LatCritical") || said.contains("is Interactive"), "{said}");
    ensure!(said.contains("after a sleep"), "{said}");
    let hostile = pid_of(|kind| matches!(kind, Kind::Named { .. }))?;
    let said = ask(guest, &["explain", &hostile])?;
    ensure!(said.contains("[2J") && !said.contains('\x1b'), "a name is not escaped: {said:?}");
    let said = ask(guest, &["explain", "999999", "--for", "1"])?;
    ensure!(said.contains("There is no task 999999"), "{said}");
    let mut unprivileged = scheduler::command(guest, &["explain", &hog]);
    unprivileged.uid(NOBODY).gid(NOBODY);
    let what = "explain without privileges";
    expect_refusal(what, &mut unprivileged, UNPRIVILEGED, &["only the user"])?;
    expect_refusal(
        "explain 0",
        &mut scheduler::command(guest, &["explain", "0"]),
        USAGE,
        &["PID"],
    )?;
    top::tasks(guest, &hog, &sleeper)?;
    top::metrics(guest)?;
    top::lines(guest)?;
    drop(load);
    scheduler.finish().map(drop)
}
