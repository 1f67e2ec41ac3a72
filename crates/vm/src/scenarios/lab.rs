// SPDX-License-Identifier: GPL-2.0-only

//! The benchmark in the guest: the same `bench run` that users run. Its results go to the host as
//! soon as each is saved. Further scenarios check the benchmark itself.

use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::{self, Scheduler};
use crate::guest::{Guest, kernel, quiet, report};
use crate::lab::{self, Sender};
use crate::protocol::Mode;
use crate::scenario::{FULL_SPEED, Scenario, USUAL};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The scenario of `pandemonium_vm lab`.
pub const LAB: Scenario = Scenario {
    name: "lab",
    about: "`bench run` with the arguments that the host has sent",
    run: measure,
    ..FULL_SPEED
};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "bench",
        about: "a small benchmark on two CPU counts ends with results of both schedulers and with \
            every CPU online; a scheduler that does not load is reported with its own message",
        limit_s: 120,
        once: true,
        run: small,
        ..USUAL
    },
    Scenario {
        name: "bench-refuses",
        about: "no benchmark starts while a scheduler is loaded, and nothing is changed",
        once: true,
        run: refuses,
        ..USUAL
    },
    Scenario {
        name: "bench-interrupted",
        about: "SIGINT and SIGTERM end a benchmark: CPUs are online again, the scheduler is \
            unloaded, no process is left, the results so far are kept",
        limit_s: 120,
        once: true,
        run: interrupted,
        ..USUAL
    },
];

/// Takes ten minutes, and tests the benchmark, not the scheduler.
pub const BENCH_TRUST: Scenario = Scenario {
    name: "bench-trust",
    about: "the benchmark shows no difference between a scheduler and itself, and sees one \
        that decides 2 ms late",
    cpus: Some(2),
    limit_s: 200,
    exact: true,
    once: true,
    run: trust,
    ..FULL_SPEED
};

/// The same scheduler under another name, and one that decides late.
const AGAIN: &str = "again=scx_pandemonium_user";
const LATE: &str = "late=scx_pandemonium_user --plant-delay-us 2000";

const OUTPUT: &str = "/tmp/bench";
/// Time between two looks at a benchmark.
const GLANCE: Duration = Duration::from_millis(200);
/// From a signal to the end. The scheduler must be unloaded first.
const END_LIMIT: Duration = Duration::from_secs(20);
/// Until a benchmark has switched a CPU offline and loaded a scheduler.
const BEGIN_LIMIT: Duration = Duration::from_secs(60);

fn measure(guest: &Guest) -> Result<()> {
    quiet::wait()?;
    let words = lab::from_word(&guest.orders.detail);
    let mut bench = Bench::start(guest, &words)?;
    let mut sender = Sender::default();
    let status = loop {
        let ended = bench.child.try_wait().context("looking at the benchmark")?;
        if (bench.prints_within(GLANCE) || ended.is_some())
            && let Ok(results) = results()
            && let Some(news) = sender.news(&results)
        {
            report::results(news);
        }
        if let Some(status) = ended {
            break status;
        }
    };
    let output = bench.output();
    let complete = results()?["complete"] == true;
    ensure!(complete, "the benchmark ended early ({status}): {output}");
    Ok(())
}

fn small(guest: &Guest) -> Result<()> {
    let cpus = format!("1,{}", guest.cpus);
    let missing = "missing=scx_missing";
    let words = ["--cpus", &cpus, "--phases", "wake,fairness", "--seconds", "0.5"];
    let more = ["--iterations", "2", "--warm-up", "0", "--with", missing];
    let (status, said) = run(guest, &[&words[..], &more].concat())?;
    // The exit code also reports what could not be measured.
    ensure!(status.code() == Some(1), "{status}: {said}");
    let results = results()?;
    expect_runs(&results, 16)?;
    let failures = results["failures"].as_array().context("failures")?;
    let messages = failures.iter().map(|failure| failure["words"].to_string());
    let messages: Vec<String> = messages.collect();
    ensure!(
        messages.len() == 2 && messages.iter().all(|text| text.contains("bench install")),
        "one failure for each number of CPUs was expected, not {messages:?}"
    );
    expect_untouched(guest)?;
    for part in ["left", "iteration 2 of 2"] {
        ensure!(said.contains(part), "the progress does not say {part:?}: {said}");
    }
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
        ensure!(own != kernel, "own_cpu is missing, or reported for the kernel: {run}");
    }
    Ok(())
}

/// Checks the verdicts of `bench report`. By chance one report in twenty claims a difference where
/// there is none; the same difference in a second benchmark is not chance.
fn trust(guest: &Guest) -> Result<()> {
    quiet::wait()?;
    let said = verdicts(guest, "1", &["--with", AGAIN, "--with", LATE])?;
    let late = ["late", "p99", "worse"].map(str::to_string);
    ensure!(said.contains(&late), "the delay of 2 ms was not found: {said:?}");
    let of_again = |said: &[Difference]| -> Vec<Difference> {
        said.iter().filter(|[scheduler, ..]| scheduler == "again").cloned().collect()
    };
    let differs = of_again(&said);
    if !differs.is_empty() {
        report::note(format!("perhaps by chance: {differs:?}; second try"));
        let said = of_again(&verdicts(guest, "2", &["--with", AGAIN])?);
        let both: Vec<&Difference> = said.iter().filter(|one| differs.contains(one)).collect();
        ensure!(both.is_empty(), "the same scheduler differs from itself twice: {both:?}");
    }
    Ok(())
}

/// A scheduler, a figure, and `better` or `worse`.
type Difference = [String; 3];

/// Runs a benchmark and returns the differences that its report claims for schedulers beside ours.
fn verdicts(guest: &Guest, seed: &str, with: &[&str]) -> Result<Vec<Difference>> {
    let words = ["--phases", "wake", "--seconds", "1", "--iterations", "5", "--warm-up", "0"];
    let (status, said) = run(guest, &[&words[..], &["--seed", seed], with].concat())?;
    ensure!(status.success(), "{status}: {said}");
    let path = results_path()?;
    let path = path.to_str().context("the results have a plain name")?;
    let words = ["bench", "report", path, "--json", "--beside", &guest.orders.scheduler];
    let output = scheduler::command(guest, &words).output().context("reporting")?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the report: {}: {message}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout).context("the report is not JSON")?;
    fs::remove_dir_all(OUTPUT).context("removing the results")?;
    let rows = report["rows"].as_array().context("the report has rows")?;
    for row in rows.iter().filter(|row| row["figure"] == "p99") {
        report::note(format!("{} p99: {} us, {}", row["scheduler"], row["median"], row["verdict"]));
    }
    let differ = rows.iter().filter(|row| row["verdict"] == "better" || row["verdict"] == "worse");
    let of_others = |row: &&Value| row["scheduler"] != "kernel";
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let texts = |row: &Value| ["scheduler", "figure", "verdict"].map(|name| text(&row[name]));
    Ok(differ.filter(of_others).map(texts).collect())
}

fn refuses(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let (status, said) = run(guest, &["--cpus", "1", "--phases", "wake"])?;
    ensure!(status.code() == Some(5), "{status}: {said}");
    ensure!(said.contains("pandemonium_user") && said.contains("already loaded"), "{said}");
    ensure!(kernel::online_cpus()? == guest.cpus, "it switched a CPU offline");
    ensure!(results().is_err(), "it wrote results");
    scheduler.finish().map(drop)
}

fn interrupted(guest: &Guest) -> Result<()> {
    for (name, signal) in [("SIGINT", libc::SIGINT), ("SIGTERM", libc::SIGTERM)] {
        let words = ["--cpus", "1", "--phases", "fairness", "--seconds", "1", "--warm-up", "0"];
        let words = words.map(str::to_string);
        let mut bench = Bench::start(guest, &words)?;
        let start = Instant::now();
        // By then the kernel's own scheduler has been measured, and ours is being measured.
        while kernel::sched_ext_state()? != "enabled" {
            ensure!(start.elapsed() < BEGIN_LIMIT, "it loads no scheduler: {}", bench.output());
            std::thread::sleep(GLANCE);
        }
        ensure!(kernel::online_cpus()? == 1, "it switched no CPU offline");
        // SAFETY: a child of this process, not yet waited for.
        unsafe { libc::kill(bench.child.id() as libc::pid_t, signal) };
        let status = scheduler::wait_with_limit(&mut bench.child, END_LIMIT)?;
        let said = bench.output();
        let status = status.with_context(|| format!("{name}: it still runs: {said}"))?;
        ensure!(status.code() == Some(130), "{name}: {status}: {said}");
        expect_runs(&results()?, 1).with_context(|| format!("after {name}"))?;
        expect_untouched(guest).with_context(|| format!("after {name}"))?;
        fs::remove_dir_all(OUTPUT).context("removing the results")?;
    }
    // Every CPU still works.
    let load = Load::start(&vec![Kind::Hog; guest.cpus])?;
    let done = load.steps_in(Duration::from_millis(500));
    ensure!(done.iter().all(|&units| units > 0), "the CPUs do not work: {done:?}");
    Ok(())
}

/// Fails unless every CPU is online, the kernel's own scheduler is in charge, and no probe runs.
fn expect_untouched(guest: &Guest) -> Result<()> {
    let online = kernel::online_cpus()?;
    ensure!(online == guest.cpus, "{online} CPUs are online, not {}", guest.cpus);
    kernel::wait_for_state("disabled", Duration::from_secs(1))?;
    for process in fs::read_dir("/proc").context("reading /proc")?.flatten() {
        let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        if name.starts_with("pandemonium_pro") {
            bail!("a probe still runs: {}", process.path().display());
        }
    }
    Ok(())
}

/// A running benchmark.
struct Bench {
    child: Child,
    readers: Vec<JoinHandle<Vec<String>>>,
    /// One item for each line that it has printed.
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
                let pass_on = |line: &String| {
                    report::note(line.as_str());
                    // The receiver may be gone.
                    let _ = sender.send(());
                };
                lines.inspect(pass_on).collect()
            })
        });
        Ok(Bench { child, readers: readers.collect(), lines })
    }

    /// Whether it prints a line within this time. At that moment its last result is saved and the
    /// next phase has not started: reading the results takes milliseconds of a real-time task,
    /// which would disturb a measurement.
    fn prints_within(&self, limit: Duration) -> bool {
        match self.lines.recv_timeout(limit) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(limit);
                false
            }
        }
    }

    /// Everything that it has printed. Kills it if it still runs.
    fn output(&mut self) -> String {
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
    Ok((status, bench.output()))
}

/// The results file as it is now.
fn results() -> Result<Value> {
    let text = fs::read_to_string(results_path()?).context("reading the results")?;
    serde_json::from_str(&text).context("the results are not JSON")
}

fn results_path() -> Result<PathBuf> {
    let folder = fs::read_dir(Path::new(OUTPUT)).context("looking for results")?;
    let mut files = folder.flatten().map(|entry| entry.path());
    let is_whole = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
    files.find(is_whole).context("there are no results")
}
