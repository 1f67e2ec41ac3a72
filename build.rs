// SPDX-License-Identifier: GPL-2.0-only

//! Generates and compiles the BPF backend and the fast path into `OUT_DIR`.
//!
//! This program starts itself again for each of the two, because their builders take arguments from
//! the environment and the current directory, and print directives for cargo themselves.

use sha2::{Digest, Sha256};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The oldest clang that compiles the backend: it needs `-mcpu=v4`.
const CLANG_OLDEST: u32 = 18;
/// The newest version that is looked for by its number.
const CLANG_NEWEST: u32 = 30;
/// The environment variable that names which of the two a child builds.
const STEP: &str = "PANDEMONIUM_BUILD_STEP";
const BACKEND: &str = "backend";
const FAST_PATH: &str = "fast path";

/// The backend's sources for which the patches are written, by SHA-256, and what to review when
/// another version has other sources.
const REVIEWED: [Reviewed; 2] = [
    Reviewed {
        source: "main.bpf.c",
        sha256: "3f8a94dde19fc0cb6bb8202257e6867707c8c310695acd0b2d83b790f3481d67",
        look_at: "every patch in src/bpf/backend_patches/ (offline_cpu, drain_race, drain_many, \
            not_deciding, round_in_progress, domain_return, exiting_task, ring_wakeup, self_kick, \
            named_cpu, orders, process_domain, hotplug)",
    },
    Reviewed {
        source: "src/bpf.rs",
        sha256: "60ac9e286e7c3ca24cd69d06082f58628fd9bb47a8af870cca14ea12710dc487",
        look_at: "src/backend.rs and the patches that rest on what user space does \
            (not_deciding, round_in_progress, ring_wakeup in src/bpf/backend_patches/)",
    },
];

/// A reviewed source of the backend.
struct Reviewed {
    /// The path at which the backend's builder writes it.
    source: &'static str,
    sha256: &'static str,
    look_at: &'static str,
}

fn main() -> ExitCode {
    // docs.rs has no clang. With `--cfg docsrs` the crate leaves out everything that needs BPF.
    if env::var_os("DOCS_RS").is_some() {
        return ExitCode::SUCCESS;
    }
    let built = match env::var(STEP).as_deref() {
        Ok(BACKEND) => build_backend(),
        Ok(FAST_PATH) => build_fast_path(),
        _ => {
            pack_relocations();
            build_both()
        }
    };
    match built {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Cargo shows no more than the first line of an error.
            println!("cargo::error={}", format!("{error:#}").replace('\n', "; "));
            ExitCode::FAILURE
        }
    }
}

/// Has the linker pack the list of addresses that are relocated at the start, which takes half a
/// megabyte otherwise. The program's C library must know that form, as glibc does from 2.36 on.
fn pack_relocations() {
    let is_gnu = env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    if is_gnu && env::var_os("TARGET") == env::var_os("HOST") && glibc_minor() >= 36 {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The N of glibc 2.N on this machine; 0 if there is none.
fn glibc_minor() -> u32 {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let minor = text.ok().and_then(|text| text.trim().strip_prefix("glibc 2.")?.parse().ok());
    minor.unwrap_or(0)
}

fn build_both() -> anyhow::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    let clang = find_clang()?;
    let root = env::current_dir()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Both builders write files of the same names, so each has its own folder.
    let own = out.join("fast_path");
    fs::create_dir_all(&own)?;
    build(
        FAST_PATH,
        Command::new(env::current_exe()?).env("OUT_DIR", &own).env("BPF_CLANG", &clang),
        &root,
    )?;
    // The backend's builder writes C and Rust sources into the current directory, which must not be
    // the source tree. The patches wrap the functions that the backend calls: its source stays as
    // it is.
    fs::create_dir_all(out.join("src"))?;
    let patches = root.join("src/bpf/backend_patches.h");
    let flags = env::var("BPF_EXTRA_CFLAGS_PRE_INCL").unwrap_or_default();
    let flags = format!("{flags} -include {}", patches.display());
    let mut command = Command::new(env::current_exe()?);
    command.current_dir(&out).env("BPF_EXTRA_CFLAGS_PRE_INCL", flags).env("BPF_CLANG", &clang);
    build(BACKEND, &mut command, &root)
}

/// Builds one of the two, and passes its directives on to cargo. Except for a file that does not
/// exist below `root`: cargo would not find it, and would build everything again each time.
fn build(step: &str, command: &mut Command, root: &Path) -> anyhow::Result<()> {
    let output = command.env(STEP, step).output()?;
    let directives = String::from_utf8_lossy(&output.stdout);
    let watched = |line: &str| line.strip_prefix("cargo:rerun-if-changed=").map(|f| root.join(f));
    for line in directives.lines().filter(|line| watched(line).is_none_or(|file| file.exists())) {
        println!("{line}");
    }
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    anyhow::ensure!(output.status.success(), "the {step} cannot be built");
    Ok(())
}

fn build_backend() -> anyhow::Result<()> {
    let built = scx_rustland_core::RustLandBuilder::new()?.build();
    // The builder writes the sources before it compiles them. Another version may not compile, and
    // the compiler's error would hide the reason.
    REVIEWED.iter().try_for_each(check_reviewed)?;
    built
}

/// Fails if the backend's builder wrote another source than the reviewed one.
fn check_reviewed(file: &Reviewed) -> anyhow::Result<()> {
    let digest = Sha256::digest(fs::read(file.source)?);
    let sha256: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    anyhow::ensure!(
        sha256 == file.sha256,
        "{} of scx_rustland_core is not the reviewed one: review {}, compare docs/upstream.md, and \
         then put {sha256} into build.rs",
        file.source,
        file.look_at
    );
    Ok(())
}

fn build_fast_path() -> anyhow::Result<()> {
    scx_cargo::BpfBuilder::new()?
        .enable_intf("src/bpf/fast_path.h", "bpf_intf.rs")
        .enable_skel("src/bpf/fast_path.bpf.c", "fast_path")
        .build()
}

/// A compiler that is new enough: what `BPF_CLANG` names, else `clang`, else the newest `clang-N`.
fn find_clang() -> anyhow::Result<String> {
    const ADVICE: &str =
        "install the package clang-19, or any clang from 18 on, to compile the BPF";
    if let Ok(chosen) = env::var("BPF_CLANG") {
        return match clang_version(&chosen) {
            Some(version) if version >= CLANG_OLDEST => Ok(chosen),
            Some(version) => anyhow::bail!("{chosen} is version {version}, too old: {ADVICE}"),
            None => anyhow::bail!("{chosen} does not run: {ADVICE}"),
        };
    }
    let newest_first =
        (CLANG_OLDEST..=CLANG_NEWEST).rev().map(|version| format!("clang-{version}"));
    let mut names = std::iter::once("clang".to_owned()).chain(newest_first);
    let fits = |name: &String| clang_version(name).is_some_and(|version| version >= CLANG_OLDEST);
    names.find(fits).ok_or_else(|| anyhow::anyhow!("no clang is new enough: {ADVICE}"))
}

/// The major version that `name --version` prints, or `None` when it does not run.
fn clang_version(name: &str) -> Option<u32> {
    let output = Command::new(name).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, after) = text.split_once("clang version ")?;
    after.split('.').next()?.trim().parse().ok()
}
