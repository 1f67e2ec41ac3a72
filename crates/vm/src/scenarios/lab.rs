// SPDX-License-Identifier: GPL-2.0-only

//! The benchmark in the guest: the very `bench run` that users run, with every result sent to the
//! host as soon as it is saved; and that it behaves.

use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::{self, Scheduler};
use crate::guest::{Guest, kernel, quiet, report};
use crate::lab::{self, Sender};
use crate::protocol::Mode;
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The benchmark for the `lab` command.
pub const LAB: Scenario = Scenario {
    name: "lab",
    about: "`bench run` with the words that the host has sent",
    run: measure,
    ..USUAL
};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "bench",
        about: "a small benchmark of two CPU counts ends with results of both schedulers and with \
            every CPU back; a scheduler that does not load is reported in its own words",
        limit_s: 120,
        once: true,
        run: small,
        ..USUAL
    },
    Scenario {
        name: "bench-refuses",
        about: "no benchmark starts while a scheduler is loaded, and nothing is touched",
        once: true,
        run: refuses,
        ..USUAL
    },
    Scenario {
        name: "bench-interrupted",
        about: "SIGINT and SIGTERM end a benchmark: CPUs come back, the scheduler leaves, nothing \
            goes on running, what was measured is kept",
        limit_s: 120,
        once: true,
        run: interrupted,
        ..USUAL
    },
    Scenario {
        name: "bench-trust",
        about: "the benchmark shows no difference between a scheduler and itself, and sees one \
            that decides 2 ms late",
        cpus: Some(2),
        limit_s: 200,
        exact: true,
        once: true,
        run: trust,
        ..USUAL
    },
];

/// Ours under another name, and one that decides late.
const AGAIN: &str = "again=scx_pandemonium_user";
const LATE: &str = "late=scx_pandemonium_user --plant-delay-us 2000";

const OUTPUT: &str = "/tmp/bench";
/// How often a benchmark is looked at.
const GLANCE: Duration = Duration::from_millis(200);
/// From a signal to the end: the scheduler has to be unloaded.
const END_LIMIT: Duration = Duration::from_secs(20);
/// Until a benchmark has taken a CPU away and loaded a scheduler.
const BEGIN_LIMIT: Duration = Duration::from_secs(60);

fn measure(guest: &Guest) -> Result<()> {
    quiet::wait()?;
    let words = lab::from_word(&guest.orders.detail);
    let mut bench = Bench::start(guest, &words)?;
    let mut sender = Sender::default();
    let status = loop {
        let ended = bench.child.try_wait().context("looking at the benchmark")?;
        if (bench.says_something(GLANCE) || ended.is_some())
            && let Ok(results) = results()
            && let Some(news) = sender.news(&results)
        {
            report::results(news);
        }
        if let Some(status) = ended {
            break status;
        }
    };
    let said = bench.said();
    let complete = results()?["complete"] == true;
    ensure!(complete, "the benchmark ended early ({status}): {said}");
    Ok(())
}

fn small(guest: &Guest) -> Result<()> {
    let cpus = format!("1,{}", guest.cpus);
    let missing = "nobody=scx_nobody_has_this";
    let words = ["--cpus", &cpus, "--phases", "wake,fairness", "--seconds", "0.5"];
    let more = ["--iterations", "2", "--warm-up", "0", "--with", missing];
    let (status, said) = run(guest, &[&words[..], &more].concat())?;
    // What could not be measured is told by the exit code too.
    ensure!(status.code() == Some(1), "{status}: {said}");
    let results = results()?;
    expect_runs(&results, 16)?;
    let failures = results["failures"].as_array().context("failures")?;
    let words = failures.iter().map(|failure| failure["words"].to_string());
    let words: Vec<String> = words.collect();
    ensure!(
        words.len() == 2 && words.iter().all(|words| words.contains("bench install")),
        "one failure for each number of CPUs was expected, not {words:?}"
    );
    expect_untouched(guest)?;
    let violations = (said.contains("left"), said.contains("iteration 2 of 2"));
    ensure!(violations == (true, true), "the progress does not say how far it is: {said}");
    Ok(())
}

fn expect_runs(results: &Value, wanted: usize) -> Result<()> {
    let runs = results["runs"].as_array().context("runs")?;
    ensure!(runs.len() == wanted, "{} runs, not {wanted}", runs.len());
    for run in runs {
        let figures = run["figures"].as_array().map_or(0, Vec::len);
        ensure!(figures > 1, "a run without figures: {run}");
        let own = run["figures"]
            .as_array()
            .is_some_and(|figures| figures.iter().any(|figure| figure["name"] == "own_cpu"));
        let kernel = run["scheduler"] == "kernel";
        ensure!(own != kernel, "the cost of the scheduler is missing, or invented: {run}");
    }
    Ok(())
}

/// Judged by what users read, `bench report`. Chance makes one report in twenty speak of a
/// difference where there is none; that it says the same of the same figure again is no chance.
fn trust(guest: &Guest) -> Result<()> {
    quiet::wait()?;
    let said = verdicts(guest, "1", &["--with", AGAIN, "--with", LATE])?;
    let late = ["late", "p99", "worse"].map(str::to_string);
    ensure!(said.contains(&late), "2 ms more were not seen: {said:?}");
    let of_again = |said: &[Said]| -> Vec<Said> {
        said.iter().filter(|[scheduler, ..]| scheduler == "again").cloned().collect()
    };
    let differs = of_again(&said);
    if !differs.is_empty() {
        report::note(format!("perhaps by chance: {differs:?}; once more"));
        let said = of_again(&verdicts(guest, "2", &["--with", AGAIN])?);
        let both: Vec<&Said> = said.iter().filter(|one| differs.contains(one)).collect();
        ensure!(both.is_empty(), "the same scheduler twice differs: {both:?}");
    }
    Ok(())
}

/// A scheduler, a figure of it, and `better` or `worse`.
type Said = [String; 3];

/// What the report of a benchmark says of schedulers beside ours, where it says anything.
fn verdicts(guest: &Guest, seed: &str, with: &[&str]) -> Result<Vec<Said>> {
    let words = ["--phases", "wake", "--seconds", "1.5", "--iterations", "5", "--warm-up", "0"];
    let (status, said) = run(guest, &[&words[..], &["--seed", seed], with].concat())?;
    ensure!(status.success(), "{status}: {said}");
    let path = results_path()?;
    let path = path.to_str().context("the results have a plain name")?;
    let words = ["bench", "report", path, "--json", "--beside", &guest.orders.scheduler];
    let output = scheduler::command(guest, &words).output().context("reporting")?;
    let violation = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the report: {}: {violation}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout).context("the report is no JSON")?;
    fs::remove_dir_all(OUTPUT).context("removing the results")?;
    let rows = report["rows"].as_array().context("the report has rows")?;
    for row in rows.iter().filter(|row| row["figure"] == "p99") {
        report::note(format!("{} p99: {} us, {}", row["scheduler"], row["median"], row["verdict"]));
    }
    let spoken = rows.iter().filter(|row| row["verdict"] == "better" || row["verdict"] == "worse");
    let of_others = |row: &&Value| row["scheduler"] != "kernel";
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let said = |row: &Value| ["scheduler", "figure", "verdict"].map(|name| text(&row[name]));
    Ok(spoken.filter(of_others).map(said).collect())
}

fn refuses(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let (status, said) = run(guest, &["--cpus", "1", "--phases", "wake"])?;
    ensure!(status.code() == Some(5), "{status}: {said}");
    ensure!(said.contains("pandemonium_user") && said.contains("already loaded"), "{said}");
    ensure!(kernel::online_cpus()? == guest.cpus, "it took a CPU away");
    ensure!(results().is_err(), "it wrote results");
    scheduler.finish().map(drop)
}

fn interrupted(guest: &Guest) -> Result<()> {
    for (name, signal) in [("SIGINT", libc::SIGINT), ("SIGTERM", libc::SIGTERM)] {
        let words = ["--cpus", "1", "--phases", "fairness", "--seconds", "1", "--warm-up", "0"];
        let words = words.map(str::to_string);
        let mut bench = Bench::start(guest, &words)?;
        let start = Instant::now();
        // The kernel's own has been measured, and ours is being.
        while kernel::sched_ext_state()? != "enabled" {
            ensure!(start.elapsed() < BEGIN_LIMIT, "it did not begin: {}", bench.said());
            std::thread::sleep(GLANCE);
        }
        ensure!(kernel::online_cpus()? == 1, "it did not take a CPU away");
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(bench.child.id() as libc::pid_t, signal) };
        let status = scheduler::wait_with_limit(&mut bench.child, END_LIMIT)?;
        let said = bench.said();
        let status = status.with_context(|| format!("{name}: it goes on: {said}"))?;
        ensure!(status.code() == Some(130), "{name}: {status}: {said}");
        expect_runs(&results()?, 1).with_context(|| format!("after {name}"))?;
        expect_untouched(guest).with_context(|| format!("after {name}"))?;
        fs::remove_dir_all(OUTPUT).context("removing the results")?;
    }
    // The machine still works.
    let load = Load::start(&vec![Kind::Hog; guest.cpus])?;
    let done = load.steps_in(Duration::from_millis(500));
    ensure!(done.iter().all(|&units| units > 0), "the CPUs do not work: {done:?}");
    Ok(())
}

/// Every CPU is there, the kernel's own scheduler is in charge, and nothing was left running.
fn expect_untouched(guest: &Guest) -> Result<()> {
    let online = kernel::online_cpus()?;
    ensure!(online == guest.cpus, "{online} CPUs are online, not {}", guest.cpus);
    kernel::wait_for_state("disabled", Duration::from_secs(1))?;
    for process in fs::read_dir("/proc").context("reading /proc")?.flatten() {
        let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        if name.starts_with("pandemonium_pro") {
            bail!("a probe goes on running: {}", process.path().display());
        }
    }
    Ok(())
}

/// A benchmark that runs.
struct Bench {
    child: Child,
    readers: Vec<JoinHandle<Vec<String>>>,
    /// One for each line that it has printed.
    lines: Receiver<()>,
}

impl Bench {
    fn start(guest: &Guest, words: &[String]) -> Result<Bench> {
        fs::create_dir_all(OUTPUT).context("making a folder for the results")?;
        let mut all = vec!["bench", "run", "--output", OUTPUT];
        if guest.orders.mode == Mode::Exact {
            all.push("--exact");
        }
        all.extend(words.iter().map(String::as_str));
        let mut child =
            scheduler::command(guest, &all).spawn().context("starting the benchmark")?;
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|stream| Box::new(stream) as _),
            child.stderr.take().map(|stream| Box::new(stream) as _),
        ];
        let (sender, lines) = channel();
        let readers = streams.into_iter().flatten().map(|stream| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let lines = BufReader::new(stream).lines().map_while(Result::ok);
                let tell = |line: &String| {
                    report::note(line.as_str());
                    // Nobody may be interested.
                    let _ = sender.send(());
                };
                lines.inspect(tell).collect()
            })
        });
        Ok(Bench { child, readers: readers.collect(), lines })
    }

    /// Whether it prints a line within this time. When it does, what it has measured is saved, and
    /// the next phase has not begun: reading the results takes milliseconds, and whoever does is a
    /// real-time task that would take them from what is measured.
    fn says_something(&self, limit: Duration) -> bool {
        match self.lines.recv_timeout(limit) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(limit);
                false
            }
        }
    }

    /// What it has printed, when it has ended; one that has not is ended.
    fn said(&mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let lines = self.readers.drain(..).flat_map(|reader| reader.join().unwrap_or_default());
        lines.collect::<Vec<_>>().join(" | ")
    }
}

fn run(guest: &Guest, words: &[&str]) -> Result<(ExitStatus, String)> {
    let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
    let mut bench = Bench::start(guest, &words)?;
    let status = bench.child.wait().context("waiting for the benchmark")?;
    Ok((status, bench.said()))
}

/// The results file as it is now.
fn results() -> Result<Value> {
    let text = fs::read_to_string(results_path()?).context("reading the results")?;
    serde_json::from_str(&text).context("the results are no JSON")
}

fn results_path() -> Result<PathBuf> {
    let folder = fs::read_dir(Path::new(OUTPUT)).context("looking for results")?;
    let mut files = folder.flatten().map(|entry| entry.path());
    let is_whole = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
    files.find(is_whole).context("there are no results")
}
