// SPDX-License-Identifier: GPL-2.0-only

//! Generates and compiles the BPF backend into `OUT_DIR`.
//!
//! `RustLandBuilder` writes its C and Rust sources relative to the current directory. Stepping
//! into `OUT_DIR` first keeps the source tree clean.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, exit};

/// The oldest clang that compiles the backend: it needs `-mcpu=v4`.
const CLANG_OLDEST: u32 = 18;
/// Versioned names to look for, newest first, when plain `clang` is missing or too old.
const CLANG_NEWEST: u32 = 30;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    match find_clang() {
        // SAFETY: a build script has one thread at this point.
        Ok(clang) => unsafe { env::set_var("BPF_CLANG", clang) },
        Err(sentence) => fail(&sentence),
    }
    if let Err(error) = build_backend() {
        fail(&format!("cannot build the BPF backend: {error:#}"));
    }
}

fn fail(sentence: &str) -> ! {
    println!("cargo::error={sentence}");
    exit(1);
}

fn build_backend() -> anyhow::Result<()> {
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    fs::create_dir_all(out_dir.join("src"))?;
    env::set_current_dir(&out_dir)?;
    scx_rustland_core::RustLandBuilder::new()?.build()
}

/// `$BPF_CLANG` if set, else plain `clang`, else the newest `clang-N`.
fn find_clang() -> Result<String, String> {
    if let Ok(named) = env::var("BPF_CLANG") {
        return match clang_version(&named) {
            Some(version) if version >= CLANG_OLDEST => Ok(named),
            Some(version) => Err(too_old(&named, version)),
            None => Err(format!(
                "BPF_CLANG names {named:?}, which does not run: install the package clang-19 (or \
                 any clang from {CLANG_OLDEST} on) and set BPF_CLANG to it"
            )),
        };
    }
    let plain = clang_version("clang");
    if plain.is_some_and(|version| version >= CLANG_OLDEST) {
        return Ok("clang".into());
    }
    let versioned = (CLANG_OLDEST..=CLANG_NEWEST).rev().map(|n| format!("clang-{n}"));
    if let Some(found) = versioned.into_iter().find(|name| clang_version(name).is_some()) {
        return Ok(found);
    }
    Err(match plain {
        Some(version) => too_old("clang", version),
        None => format!(
            "clang is missing: install the package clang-19 (or any clang from {CLANG_OLDEST} on)"
        ),
    })
}

fn too_old(name: &str, version: u32) -> String {
    format!(
        "{name} is version {version}, too old to compile the BPF backend: install the package \
         clang-19 (or any clang from {CLANG_OLDEST} on)"
    )
}

/// The major version that `name --version` prints, or `None` when it does not run.
fn clang_version(name: &str) -> Option<u32> {
    let output = Command::new(name).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, after) = text.split_once("clang version ")?;
    after.split('.').next()?.trim().parse().ok()
}
