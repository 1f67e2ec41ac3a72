// SPDX-License-Identifier: GPL-2.0-only

//! `bench install`: builds other schedulers from crates.io with cargo.

use super::cli::InstallArguments;
use super::contenders::{self, Contender};
use super::guard::{self, Process};
use anyhow::{Context, Result, bail, ensure};
use pandemonium_host::print::print;
use pandemonium_host::program::{self, Program};
use pandemonium_host::trust::Trusted;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest build of one scheduler. It takes minutes on most machines.
const BUILD_LIMIT: Duration = Duration::from_secs(3 * 3_600);
/// The variable from which the schedulers' build scripts take the compiler of their BPF code.
/// Without it they take `clang`, however old it is.
const CLANG_VARIABLE: &str = "BPF_CLANG";
/// The variables that name folders out of which cargo takes programs and sources.
const CARGO_VARIABLES: [&str; 2] = ["CARGO_HOME", "RUSTUP_HOME"];
/// The oldest clang that has the BPF instructions of current schedulers (`-mcpu=v4`).
const CLANG_OLDEST: u32 = 18;
/// The newest `clang-N` that is searched.
const CLANG_NEWEST: u32 = 30;
/// What the builds need.
const NEEDS: &str = "besides cargo, the builds need clang 18 or newer, pkg-config, and the headers \
    of libelf, zlib and libseccomp (Debian: clang-19 pkg-config libelf-dev zlib1g-dev \
    libseccomp-dev)";

/// Installs one scheduler after the other. A failure does not stop the others; the error names all
/// that failed.
pub fn run(arguments: &InstallArguments) -> Result<()> {
    guard::catch_signals()?;
    let (root, build) = folders(arguments)?;
    let clang = clang()?;
    let mut missing = Vec::new();
    for (number, name) in arguments.names.iter().enumerate() {
        print(&format!("[{}/{}] {name}: cargo builds it", number + 1, arguments.names.len()));
        let start = Instant::now();
        match install(name, &root, &build, clang.as_ref()) {
            Ok(version) => {
                let (minutes, seconds) =
                    (start.elapsed().as_secs() / 60, start.elapsed().as_secs() % 60);
                let bin = root.join("bin");
                print(&format!(
                    "{name}: {version}, in {}, {minutes}:{seconds:02} min",
                    bin.display()
                ));
            }
            Err(error) => {
                guard::check_interrupt()?;
                print(&format!("FAILED {name}: {error:#}"));
                missing.push(name.as_str());
            }
        }
    }
    if missing.is_empty() {
        // After a complete installation the build folder is not needed any more.
        let _ = fs::remove_dir_all(&build);
        return Ok(());
    }
    bail!("{} could not be installed; {NEEDS}", missing.join(", "))
}

/// The folder of the programs, and below it that of all builds, because most of their dependencies
/// are the same; a second try continues where the first one stopped. Root builds only in folders
/// that no other user can write to: cargo executes what it builds there.
fn folders(arguments: &InstallArguments) -> Result<(PathBuf, PathBuf)> {
    let mut root = match &arguments.root {
        Some(root) => root.clone(),
        None => {
            contenders::peers()?.parent().context("the folder of schedulers has no parent")?.into()
        }
    };
    let mut build = root.join("build");
    fs::create_dir_all(&build).with_context(|| format!("creating {}", build.display()))?;
    if let Some(trusted) = Trusted::of_root() {
        let set = CARGO_VARIABLES.into_iter().filter_map(std::env::var_os).map(PathBuf::from);
        for folder in set.filter(|folder| folder.exists()) {
            trusted.check("build with", &folder)?;
        }
        build = trusted.check("build in", &build)?;
        root = trusted.check("build in", &root)?;
    }
    Ok((root, build))
}

/// Installs one scheduler and returns its version.
fn install(name: &str, root: &Path, build: &Path, clang: Option<&OsString>) -> Result<String> {
    let mut command =
        program::command("cargo".as_ref()).context("cargo builds them (https://rustup.rs)")?;
    command.args(["install", "--locked", "--root"]).arg(root);
    command.arg("--target-dir").arg(build).arg(name).stdin(Stdio::null());
    command.envs(clang.map(|clang| (CLANG_VARIABLE, clang)));
    if Trusted::of_root().is_some() {
        // A file in the current folder can name the toolchain to execute.
        command.current_dir(root);
    }
    let started = Process::start("cargo", &mut command);
    let status = started.context("cargo builds them (https://rustup.rs)")?.wait(BUILD_LIMIT)?;
    ensure!(status.success(), "cargo failed ({status})");
    let program = name.split('@').next().unwrap_or(name);
    let bin = root.join("bin");
    ensure!(bin.join(program).is_file(), "the crate has no program of that name");
    Ok(Contender::parse(program).map_err(anyhow::Error::msg)?.describe(&bin).version)
}

/// The value for [`CLANG_VARIABLE`]: what the user has set, if root may execute it. `None` if
/// `clang` itself is new enough.
fn clang() -> Result<Option<OsString>> {
    if let Some(set) = std::env::var_os(CLANG_VARIABLE) {
        let program = Program::search(set.as_ref()).context(CLANG_VARIABLE)?;
        return Ok(Some(program.path().into()));
    }
    if is_new_enough("clang") {
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
    let command = program::command(name.as_ref()).ok();
    let run = |mut command: Command| command.arg("--version").stdin(Stdio::null()).output().ok();
    let text =
        command.and_then(run).map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.is_some_and(|text| version_of(&text).is_some_and(|version| version >= CLANG_OLDEST))
}

/// The major version: 19 from `Debian clang version 19.1.7 (3~deb12u1)`.
fn version_of(text: &str) -> Option<u32> {
    let (_, version) = text.split_once("clang version ")?;
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_of_clang_is_parsed() {
        assert_eq!(version_of("Debian clang version 19.1.7 (3)\nTarget: x86_64"), Some(19));
        assert_eq!(version_of("clang version 18.1.0"), Some(18));
        assert_eq!(version_of("gcc 12.2.0"), None);
    }
}
