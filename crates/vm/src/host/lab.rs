// SPDX-License-Identifier: GPL-2.0-only

//! The lab: `bench run` in exact mode, one boot for each number of CPUs, all results in one file.

use super::assets::{self, Assets};
use super::cli::LabArguments;
use super::image::Kernel;
use super::programs::{self, Program};
use super::progress;
use super::runner::{self, Boot, Outcome};
use crate::lab::{self, Receiver};
use crate::protocol::{Message, Mode};
use crate::scenarios;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime};

/// Limit for the boot and the waits for an idle machine, in seconds of fast mode.
const LIMIT_S: f64 = 120.0;
/// Limits for a phase beyond its own seconds, and for loading a scheduler, likewise.
const LIMIT_S_PHASE: f64 = 6.0;
const LIMIT_S_LOAD: f64 = 15.0;

/// Returns whether every boot reached its end.
pub fn run(arguments: &LabArguments) -> Result<bool> {
    let (mut assets, kernel) = arguments.subject.find()?;
    let peers = match &arguments.with {
        Some(folder) => programs(folder)?,
        None => Vec::new(),
    };
    let words = words(arguments, &peers)?;
    let detail = lab::to_word(&words)?;
    let schedulers = 2 + peers.len() + arguments.contender.len();
    let compiler = compiler(&assets, arguments);
    assets.add(more_files(&kernel, peers), compiler);
    let path = output(&arguments.output)?;
    let mut receiver = Receiver::default();
    let mut finished = true;
    for &cpus in &arguments.cpus {
        let boot = boot(&assets, &kernel, arguments, cpus, schedulers, &detail)?;
        finished &= measure(&boot, &mut receiver, &path)?;
        if runner::was_interrupted() {
            break;
        }
    }
    ensure!(path.is_file(), "nothing was measured");
    println!("\nresults: {}", path.display());
    let met = report(&assets, &path, arguments)? || !arguments.strict;
    Ok(finished && met && !runner::was_interrupted())
}

/// A compiler for the phase `compile`. If it cannot be fetched, the other phases still run.
fn compiler(assets: &Assets, arguments: &LabArguments) -> Option<Program> {
    let phases = &arguments.phases;
    if arguments.mix.is_some() && phases.is_empty() {
        return None;
    }
    if !phases.is_empty() && !phases.iter().any(|phase| phase == "compile") {
        return None;
    }
    let fetched = programs::TCC.get(&assets.cache);
    let warn = |error: &anyhow::Error| {
        progress::line(&format!("no compiler for the guest, so `compile` will fail: {error:#}"));
    };
    fetched.inspect_err(warn).ok()
}

/// The arguments of `bench run` in the guest.
fn words(arguments: &LabArguments, peers: &[(String, PathBuf)]) -> Result<Vec<String>> {
    let mut words: Vec<String> = Vec::new();
    let mut add = |option: &str, value: String| words.extend([option.to_string(), value]);
    add("--iterations", arguments.iterations.to_string());
    add("--warm-up", arguments.warm_up.to_string());
    add("--seconds", arguments.seconds.to_string());
    add("--seed", arguments.seed.to_string());
    if !arguments.phases.is_empty() {
        add("--phases", arguments.phases.join(","));
    }
    if let Some(mix) = arguments.mix {
        add("--mix", mix.to_string());
    }
    if !arguments.scheduler_args.is_empty() {
        // In one word, because the value begins with a dash.
        words.push(format!("--scheduler-args={}", arguments.scheduler_args));
    }
    for (name, _) in peers {
        words.extend(["--with".into(), name.rsplit('/').next().unwrap_or(name).to_string()]);
    }
    for contender in &arguments.contender {
        words.extend(["--with".into(), contender.clone()]);
    }
    if arguments.kernel_only {
        words.push("--kernel-only".into());
    }
    Ok(words)
}

fn boot<'a>(
    assets: &'a Assets,
    kernel: &'a Kernel,
    arguments: &LabArguments,
    cpus: u32,
    schedulers: usize,
    detail: &'a str,
) -> Result<Boot<'a>> {
    let mixes = arguments.mix.map_or(0, |mix| mix.iter().count());
    let phases = match arguments.phases.len() {
        0 if mixes == 0 => assets::phases()?.len(),
        chosen => chosen + mixes,
    } as f64;
    let loaded = LIMIT_S_LOAD + phases * (2.0 * arguments.seconds + LIMIT_S_PHASE);
    let rounds = f64::from(arguments.iterations + arguments.warm_up);
    Ok(Boot {
        assets,
        kernel,
        scenario: scenarios::find("lab").context("the scenario of the lab")?,
        cpus,
        mode: Mode::Exact,
        detail,
        limit_s: (LIMIT_S + rounds * schedulers as f64 * loaded) as u64,
    })
}

/// One boot. Writes the results file at every piece that arrives.
fn measure(boot: &Boot, receiver: &mut Receiver, path: &Path) -> Result<bool> {
    progress::line(&format!("Linux {}, {} CPUs: booting", boot.kernel.name, boot.cpus));
    let start = Instant::now();
    let mut trouble = None;
    let outcome = boot.run(&mut |message| match message {
        Message::Note { text } => {
            progress::line(&format!("{:5} s  {text}", start.elapsed().as_secs()));
        }
        Message::Results { piece } => {
            let kept = receiver.take(piece).and_then(|()| keep(receiver, path));
            trouble = trouble.take().or(kept.err());
        }
        _ => {}
    })?;
    if let Some(trouble) = trouble {
        return Err(trouble.context("keeping the results"));
    }
    let passed = outcome == Outcome::Passed;
    if !passed {
        let console = boot.console_path();
        progress::line(&format!("{}: {}", outcome.name(), outcome.reason()));
        progress::line(&format!("console: {}", console.display()));
    }
    Ok(passed)
}

/// Replaces the file in one step, so that a reader finds a complete one at any time.
fn keep(receiver: &mut Receiver, path: &Path) -> Result<()> {
    let results = receiver.results().context("there are no results")?;
    results["command"] = Value::String(command_line());
    let partial = path.with_extension("partial");
    fs::write(&partial, results.to_string())
        .and_then(|()| fs::rename(&partial, path))
        .with_context(|| format!("writing {}", path.display()))
}

fn command_line() -> String {
    let words = std::env::args().skip(1).map(|word| match word.contains(' ') {
        true => format!("'{word}'"),
        false => word,
    });
    format!("pandemonium_vm {}", words.collect::<Vec<_>>().join(" "))
}

/// Schedulers in a folder, with their paths in the guest.
fn programs(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("scx_")).collect();
    names.sort_unstable();
    ensure!(!names.is_empty(), "there is no program scx_* in {}", folder.display());
    Ok(names.into_iter().map(|name| (format!("/bin/{name}"), folder.join(&name))).collect())
}

/// The schedulers, and the kernel's configuration at the path where programs expect it.
fn more_files(kernel: &Kernel, peers: Vec<(String, PathBuf)>) -> Vec<(String, PathBuf)> {
    let config = kernel.image.with_file_name("config");
    let release = kernel.image.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let config = release
        .filter(|_| config.is_file())
        .map(|release| (format!("/boot/config-{release}"), config.clone()));
    peers.into_iter().chain(config).collect()
}

fn output(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Ok(folder.join(format!("lab-{}.json", now.map_or(0, |since| since.as_secs()))))
}

/// Prints the tables of `bench report`, and returns whether all bars are met.
fn report(assets: &Assets, path: &Path, arguments: &LabArguments) -> Result<bool> {
    let mut command = Command::new(&assets.scheduler);
    command.args(["bench", "report"]).arg(path);
    if let Some(bars) = &arguments.bars {
        command.arg("--strict").arg("--bars").arg(bars);
    }
    let shown = command.status().context("showing the results")?;
    let met = match shown.code() {
        Some(code @ (0 | 1)) => code == 0,
        _ => bail!("`{} bench report` failed", assets.scheduler.display()),
    };
    if arguments.mix.is_some() && !arguments.kernel_only {
        show_mixes(assets, path)?;
    }
    Ok(met)
}

/// Prints what `bench mixes` makes of the results, and writes its picture beside them.
fn show_mixes(assets: &Assets, path: &Path) -> Result<()> {
    let picture = path.with_extension("svg");
    let mut command = Command::new(&assets.scheduler);
    command.args(["bench", "mixes"]).arg(path).arg("--picture").arg(&picture);
    let shown = command.status().context("showing the mixes")?;
    ensure!(shown.success(), "`{} bench mixes` failed", assets.scheduler.display());
    println!("\npicture: {}", picture.display());
    Ok(())
}
