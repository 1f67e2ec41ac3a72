// SPDX-License-Identifier: GPL-2.0-only

//! Generates and compiles the BPF backend into `OUT_DIR`.
//!
//! `RustLandBuilder` writes its C and Rust sources relative to the current directory. Stepping
//! into `OUT_DIR` first keeps the source tree clean.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// The oldest clang that compiles the backend: it needs `-mcpu=v4`.
const CLANG_OLDEST: u32 = 18;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    if let Err(sentence) = check_clang() {
        fail(&sentence);
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
    build_fast_path(&out_dir)?;
    // The backend's source stays as it is; what it calls is wrapped (see the header).
    let guard = env::current_dir()?.join("src/bpf/backend_guard.h");
    let flags = env::var("BPF_EXTRA_CFLAGS_PRE_INCL").unwrap_or_default();
    let flags = format!("{flags} -include {}", guard.display());
    // SAFETY: a build script has one thread at this point.
    unsafe { env::set_var("BPF_EXTRA_CFLAGS_PRE_INCL", flags) };
    env::set_current_dir(&out_dir)?;
    scx_rustland_core::RustLandBuilder::new()?.build()
}

/// The fast path is an object of its own. The builder's file names are fixed, so it gets a folder
/// of its own too.
fn build_fast_path(out_dir: &Path) -> anyhow::Result<()> {
    let own = out_dir.join("fast_path");
    fs::create_dir_all(&own)?;
    // SAFETY: a build script has one thread at this point.
    unsafe { env::set_var("OUT_DIR", &own) };
    let built = scx_cargo::BpfBuilder::new()?
        .enable_intf("src/bpf/fast_path.h", "bpf_intf.rs")
        .enable_skel("src/bpf/fast_path.bpf.c", "fast_path")
        .build();
    // SAFETY: as above.
    unsafe { env::set_var("OUT_DIR", out_dir) };
    built
}

/// Checks the compiler before anything fails in a less friendly way. `.cargo/config.toml` sets
/// `BPF_CLANG` to a script that looks for a versioned name too.
fn check_clang() -> Result<(), String> {
    let name = env::var("BPF_CLANG").unwrap_or_else(|_| "clang".into());
    match clang_version(&name) {
        Some(version) if version >= CLANG_OLDEST => Ok(()),
        Some(version) => Err(format!(
            "{name} is version {version}, too old to compile the BPF backend: install the \
             package clang-19, or any clang from {CLANG_OLDEST} on"
        )),
        None => Err(format!(
            "{name} does not run: install the package clang-19, or any clang from \
             {CLANG_OLDEST} on, to compile the BPF backend"
        )),
    }
}

/// The major version that `name --version` prints, or `None` when it does not run.
fn clang_version(name: &str) -> Option<u32> {
    let output = Command::new(name).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, after) = text.split_once("clang version ")?;
    after.split('.').next()?.trim().parse().ok()
}
