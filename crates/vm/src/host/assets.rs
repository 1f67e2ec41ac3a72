// SPDX-License-Identifier: GPL-2.0-only

//! Everything a boot needs besides the kernel, found once for a whole run.

use super::cache::Cache;
use super::initramfs::Archive;
use super::programs::{self, Program};
use super::qemu::Qemu;
use super::{command, libraries};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What replays recordings, for the scenario that makes one.
const LAB: &str = "pandemonium_lab";
/// What measures, and what decides when to measure what.
const PROBE: &str = "pandemonium_probe";
const BENCH: &str = "pandemonium_bench";
/// Start of the name of a run's own folder; the rest is its process id.
const SCRATCH: &str = "run-";
/// The initramfs of most boots.
const PLAIN: &str = "plain.cpio";

pub struct Assets {
    pub cache: Cache,
    pub qemu: Qemu,
    /// The program under test.
    pub scheduler: PathBuf,
    /// Folder of the console logs, kept after the run.
    pub logs: PathBuf,
    /// What else a boot takes along: names in the guest, and where they are here.
    more: Vec<(String, PathBuf)>,
    /// A C compiler, if a boot takes one along.
    compiler: Option<Program>,
    /// Folder of this run's initramfs, removed with it.
    scratch: PathBuf,
}

impl Assets {
    pub fn find(scheduler: Option<&Path>) -> Result<Assets> {
        let scheduler = match scheduler {
            Some(path) => path.to_path_buf(),
            None => built("scx_pandemonium_user")?.unwrap_or_default(),
        };
        ensure!(
            scheduler.is_file(),
            "there is no scheduler {}: build it with `cargo build --release --workspace`, or pass \
                --scheduler PATH",
            scheduler.display()
        );
        let cache = Cache::open()?;
        let qemu = Qemu::find(&cache)?;
        let logs = log_folder()?;
        remove_abandoned(&logs);
        let scratch = logs.join(format!("{SCRATCH}{}", std::process::id()));
        fs::create_dir_all(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
        Ok(Assets { cache, qemu, scheduler, logs, more: Vec::new(), compiler: None, scratch })
    }

    pub fn scheduler_name(&self) -> Result<String> {
        let name = self.scheduler.file_name().and_then(|name| name.to_str());
        Ok(name.context("the scheduler's file name is not plain text")?.to_string())
    }

    /// Has the boots from now on take this along too: names in the guest, and where the files are
    /// here.
    pub fn take(&mut self, more: Vec<(String, PathBuf)>, compiler: Option<Program>) {
        // A kernel that had to be checked was booted with what there was then.
        let _ = fs::remove_file(self.scratch.join(PLAIN));
        (self.more, self.compiler) = (more, compiler);
    }

    /// The root file system, made at the first use; the one with stress-ng is larger and boots
    /// slower.
    pub fn initramfs(&self, stress_ng: bool) -> Result<PathBuf> {
        let path = self.scratch.join(if stress_ng { "stress.cpio" } else { PLAIN });
        if !path.exists() {
            let mut archive = Archive::new();
            let agent = std::env::current_exe().context("looking for this program")?;
            add_program(&mut archive, "/init", &self.stripped(&agent, "init")?)?;
            let name = self.scheduler_name()?;
            let scheduler = self.stripped(&self.scheduler, &name)?;
            add_program(&mut archive, &format!("/bin/{name}"), &scheduler)?;
            archive.file("/bin/busybox", &busybox(&self.cache)?)?;
            for name in [LAB, PROBE, BENCH] {
                if let Some(tool) = built(name)? {
                    let tool = self.stripped(&tool, name)?;
                    add_program(&mut archive, &format!("/bin/{name}"), &tool)?;
                }
            }
            for (name, source) in &self.more {
                match name.starts_with("/bin/") {
                    true => add_program(&mut archive, name, source)?,
                    false => archive.file(name, source)?,
                }
            }
            if let Some(compiler) = &self.compiler {
                add_private(&mut archive, "tcc", compiler, &self.scratch)?;
            }
            if stress_ng {
                add_stress_ng(&mut archive, &self.cache, &self.scratch)?;
            }
            archive.write(&path)?;
        }
        Ok(path)
    }

    /// A copy without debug information, which is most of a program and is unpacked at each boot;
    /// the program itself where there is no tool for it.
    fn stripped(&self, program: &Path, name: &str) -> Result<PathBuf> {
        if command::find("strip").is_none() {
            return Ok(program.to_path_buf());
        }
        let copy = self.scratch.join(name);
        command::output(Command::new("strip").arg("-o").arg(&copy).arg(program))?;
        Ok(copy)
    }
}

impl Drop for Assets {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// A run that was killed could not remove its folder.
fn remove_abandoned(logs: &Path) {
    let Ok(entries) = fs::read_dir(logs) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(SCRATCH));
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Names of all phases of the benchmark.
pub fn phases() -> Result<Vec<String>> {
    let probe = built(PROBE)?.with_context(|| format!("{PROBE} is not built"))?;
    let listed = command::output(Command::new(&probe).arg("list"))?;
    serde_json::from_str(&listed).with_context(|| format!("{} list said {listed}", probe.display()))
}

/// Fills the cache with the programs of the guest, so that later runs need no network.
pub fn fetch_programs(cache: &Cache) -> Result<()> {
    Qemu::find(cache)?;
    busybox(cache)?;
    programs::TCC.get(cache)?;
    own_stress_ng().map_or_else(|| programs::STRESS_NG.get(cache).map(drop), |_| Ok(()))
}

/// Another program of the workspace, which cargo builds into the folder of this one.
fn built(name: &str) -> Result<Option<PathBuf>> {
    let program = std::env::current_exe().context("looking for this program")?;
    let path = program.with_file_name(name);
    Ok(path.is_file().then_some(path))
}

fn log_folder() -> Result<PathBuf> {
    let program = std::env::current_exe().context("looking for this program")?;
    let target = program.ancestors().nth(2).context("this program lies in target/PROFILE")?;
    match writable(target.join("vm")) {
        Some(folder) => Ok(folder),
        // Built by one user, run by another.
        None => writable(std::env::temp_dir().join("scx_pandemonium_user-vm"))
            .context("no folder for the console logs"),
    }
}

fn writable(folder: PathBuf) -> Option<PathBuf> {
    let probe = folder.join(format!("probe-{}", std::process::id()));
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&probe, ""))
        .and_then(|()| fs::remove_file(&probe))
        .ok()?;
    Some(folder)
}

/// A program of this machine and its libraries, each under the name where the loader looks for it.
fn add_program(archive: &mut Archive, name: &str, program: &Path) -> Result<()> {
    archive.file(name, program)?;
    for library in libraries::of(program)? {
        archive.file(&library.to_string_lossy(), &library)?;
    }
    Ok(())
}

/// The machine's own if it is static, as it must run without libraries.
fn busybox(cache: &Cache) -> Result<PathBuf> {
    let own = command::find("busybox")
        .filter(|path| libraries::of(path).is_ok_and(|needed| needed.is_empty()));
    match own {
        Some(path) => Ok(path),
        None => Ok(programs::BUSYBOX.get(cache)?.path),
    }
}

/// The machine's own if it knows the stressor that was written for schedulers.
fn own_stress_ng() -> Option<PathBuf> {
    let path = command::find("stress-ng")?;
    let help = command::output(Command::new(&path).arg("--help")).ok()?;
    help.contains("--race-sched").then_some(path)
}

fn add_stress_ng(archive: &mut Archive, cache: &Cache, scratch: &Path) -> Result<()> {
    match own_stress_ng() {
        Some(path) => add_program(archive, "/bin/stress-ng", &path),
        None => add_private(archive, "stress-ng", &programs::STRESS_NG.get(cache)?, scratch),
    }
}

/// A program with its own C library lives apart, and a script of its name runs it with its own
/// loader.
fn add_private(archive: &mut Archive, name: &str, program: &Program, scratch: &Path) -> Result<()> {
    let home = format!("/opt/{name}");
    archive.file(&format!("{home}/{name}"), &program.path)?;
    archive.file(&format!("{home}/loader"), &program.loader())?;
    for library in program.libraries()? {
        let file = library
            .file_name()
            .and_then(|file| file.to_str())
            .context("a library with a plain name")?;
        archive.file(&format!("{home}/lib/{file}"), &library)?;
    }
    let script = scratch.join(name);
    let text = format!(
        "#!/bin/busybox sh\nexec {home}/loader --library-path {home}/lib {home}/{name} \"$@\"\n"
    );
    fs::write(&script, text).with_context(|| format!("writing {}", script.display()))?;
    make_executable(&script)?;
    archive.file(&format!("/bin/{name}"), &script)
}

fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("marking {}", path.display()))
}
