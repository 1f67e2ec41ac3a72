// SPDX-License-Identifier: GPL-2.0-only

//! `bench install`: other schedulers, built by cargo from crates.io.

use super::cli::InstallArguments;
use super::contenders::{self, Contender};
use super::guard::{self, Process};
use super::progress::say;
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One scheduler takes minutes on most machines.
const BUILD_LIMIT: Duration = Duration::from_secs(3 * 3_600);
/// Names the compiler of the BPF half to the schedulers' build scripts, which otherwise take
/// `clang`, however old.
const CLANG_VARIABLE: &str = "BPF_CLANG";
/// The oldest that knows the instructions of today's schedulers (`-mcpu=v4`), and the newest name
/// that is tried.
const CLANG_OLDEST: u32 = 18;
const CLANG_NEWEST: u32 = 30;
const NEEDS: &str = "besides cargo, schedulers want clang 18 or newer, pkg-config, and the headers \
    of libelf, zlib and libseccomp (Debian: clang-19 pkg-config libelf-dev zlib1g-dev \
    libseccomp-dev)";

/// Installs one after the other, and says which could not be; the others do not suffer for it.
pub fn run(arguments: &InstallArguments) -> Result<()> {
    guard::catch_signals()?;
    let root = match &arguments.root {
        Some(root) => root.clone(),
        None => contenders::peers()?.parent().context("the peers have a folder")?.into(),
    };
    fs::create_dir_all(&root).with_context(|| format!("creating {}", root.display()))?;
    let clang = clang()?;
    // In one folder they share what they have in common, which is most of the work, and a second
    // try goes on where the first one ended.
    let build = root.join("build");
    let mut missing = Vec::new();
    for (number, name) in arguments.names.iter().enumerate() {
        say(&format!("[{}/{}] {name}: cargo builds it", number + 1, arguments.names.len()));
        let start = Instant::now();
        match install(name, &root, &build, clang.as_ref()) {
            Ok(version) => {
                let (minutes, seconds) =
                    (start.elapsed().as_secs() / 60, start.elapsed().as_secs() % 60);
                let bin = root.join("bin");
                say(&format!(
                    "{name}: {version}, in {}, {minutes}:{seconds:02} min",
                    bin.display()
                ));
            }
            Err(error) => {
                guard::check_interrupt()?;
                say(&format!("FAILED {name}: {error:#}"));
                missing.push(name.as_str());
            }
        }
    }
    if missing.is_empty() {
        // What is left of it is of no use to anybody.
        let _ = fs::remove_dir_all(&build);
        return Ok(());
    }
    bail!("{} could not be installed; {NEEDS}", missing.join(", "))
}

/// Its version, when it is there and answers.
fn install(name: &str, root: &Path, build: &Path, clang: Option<&OsString>) -> Result<String> {
    let mut command = Command::new("cargo");
    command.args(["install", "--locked", "--root"]).arg(root);
    command.arg("--target-dir").arg(build).arg(name).stdin(Stdio::null());
    command.envs(clang.map(|clang| (CLANG_VARIABLE, clang)));
    let started = Process::start("cargo", &mut command);
    let status = started.context("cargo builds them (https://rustup.rs)")?.wait(BUILD_LIMIT)?;
    ensure!(status.success(), "cargo says why ({status})");
    let program = name.split('@').next().unwrap_or(name);
    let bin = root.join("bin");
    ensure!(bin.join(program).is_file(), "the crate has no program of that name");
    Ok(Contender::parse(program).map_err(anyhow::Error::msg)?.describe(&bin).version)
}

/// What [`CLANG_VARIABLE`] has to be: nothing if `clang` itself is new enough, or if somebody has
/// chosen.
fn clang() -> Result<Option<OsString>> {
    if std::env::var_os(CLANG_VARIABLE).is_some() || is_new_enough("clang") {
        return Ok(None);
    }
    let names = (CLANG_OLDEST..=CLANG_NEWEST).rev().map(|number| format!("clang-{number}"));
    let found = names.into_iter().find(|name| is_new_enough(name));
    Ok(Some(
        found
            .with_context(|| format!("there is no clang {CLANG_OLDEST} or newer: {NEEDS}"))?
            .into(),
    ))
}

fn is_new_enough(name: &str) -> bool {
    let output = Command::new(name).arg("--version").stdin(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.is_ok_and(|text| version_of(&text).is_some_and(|version| version >= CLANG_OLDEST))
}

/// Of `Debian clang version 19.1.7 (3~deb12u1)` the 19.
fn version_of(text: &str) -> Option<u32> {
    let (_, version) = text.split_once("clang version ")?;
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_compiler_is_read() {
        assert_eq!(version_of("Debian clang version 19.1.7 (3)\nTarget: x86_64"), Some(19));
        assert_eq!(version_of("clang version 18.1.0"), Some(18));
        assert_eq!(version_of("gcc 12.2.0"), None);
    }
}
