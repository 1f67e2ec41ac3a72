// SPDX-License-Identifier: GPL-2.0-only

//! Everything that a boot needs besides the kernel, found once for a whole run.

use super::cache::Cache;
use super::initramfs::Archive;
use super::programs::{self, Program};
use super::qemu::Qemu;
use super::{command, libraries};
use crate::scenarios::STRANGERS_PROGRAMS;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that replays recordings, for the scenario `record`.
const LAB: &str = "pandemonium_lab";
/// The program that measures one phase.
const PROBE: &str = "pandemonium_probe";
/// The program that runs a benchmark of phases.
const BENCH: &str = "pandemonium_bench";
/// Prefix of the name of a run's own folder, before its process id.
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
    /// A disk for every boot.
    pub disk: Option<PathBuf>,
    /// Further files for the initramfs: names in the guest, and paths here.
    more: Vec<(String, PathBuf)>,
    /// A C compiler for the initramfs.
    compiler: Option<Program>,
    /// Folder of what this run makes for its boots, removed with it.
    pub scratch: PathBuf,
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
        Ok(Assets {
            cache,
            qemu,
            scheduler,
            logs,
            disk: None,
            more: Vec::new(),
            compiler: None,
            scratch,
        })
    }

    pub fn scheduler_name(&self) -> Result<String> {
        let name = self.scheduler.file_name().and_then(|name| name.to_str());
        Ok(name.context("the scheduler's file name is not plain text")?.to_string())
    }

    /// Adds files and a compiler to the initramfs of later boots: names in the guest, and paths
    /// here.
    pub fn add(&mut self, more: Vec<(String, PathBuf)>, compiler: Option<Program>) {
        // Checking a new kernel made an archive without them.
        let _ = fs::remove_file(self.scratch.join(PLAIN));
        (self.more, self.compiler) = (more, compiler);
    }

    /// The initramfs, made at the first use. stress-ng has one of its own, which is larger and
    /// boots slower.
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
            for name in [LAB, PROBE, BENCH].into_iter().chain(STRANGERS_PROGRAMS) {
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

    /// A copy without debug information, which is most of a program and would be unpacked at each
    /// boot; the program itself if there is no `strip`.
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

/// Removes the folders of runs that were killed.
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
    serde_json::from_str(&listed)
        .with_context(|| format!("{} list printed {listed}", probe.display()))
}

/// Fetches the programs of the guest into the cache, so that later runs need no network.
pub fn fetch_programs(cache: &Cache) -> Result<()> {
    Qemu::find(cache)?;
    busybox(cache)?;
    programs::TCC.get(cache)?;
    own_stress_ng().map_or_else(|| programs::STRESS_NG.get(cache).map(drop), |_| Ok(()))
}

/// Another program of the workspace, which cargo builds into the same folder.
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

/// Adds a program of this machine and its libraries, each under the path where the loader finds it.
fn add_program(archive: &mut Archive, name: &str, program: &Path) -> Result<()> {
    archive.file(name, program)?;
    for library in libraries::of(program)? {
        archive.file(&library.to_string_lossy(), &library)?;
    }
    Ok(())
}

/// The machine's busybox if it is static, because it must run without libraries; else Debian's.
fn busybox(cache: &Cache) -> Result<PathBuf> {
    let own = command::find("busybox")
        .filter(|path| libraries::of(path).is_ok_and(|needed| needed.is_empty()));
    match own {
        Some(path) => Ok(path),
        None => Ok(programs::BUSYBOX.get(cache)?.path),
    }
}

/// The machine's stress-ng, if it has the stressor for schedulers.
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

/// Adds a program with its own C library in a folder of its own, and a script of its name that runs
/// it with its own loader.
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
