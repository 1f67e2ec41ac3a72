// SPDX-License-Identifier: GPL-2.0-only

//! Finds kernels with a working sched_ext: the newest of a series first. Each is checked before
//! use.

use super::apt::Apt;
use super::assets::Assets;
use super::cache::Cache;
use super::image::Kernel;
use super::runner::{Boot, Outcome};
use super::{kernel_build, progress};
use crate::protocol::Mode;
use crate::scenarios;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// The series that the suite runs on by default, newest first.
pub const SERIES: [&str; 2] = ["7.3", "7.2"];
/// Debian's flavour for virtual machines: all drivers that a boot needs are built in.
const FLAVOUR: &str = "-cloud-amd64";
/// Both kinds of package contain the same kernel, signed and unsigned; not every suite has both.
const PACKAGES: [&str; 2] = ["linux-binary-", "linux-binary-unsigned-"];
const OPTIONS: [&str; 2] = ["CONFIG_SCHED_CLASS_EXT=y", "CONFIG_DEBUG_INFO_BTF=y"];
/// The word in every loader's error when the types of the kernel's own functions are malformed.
const BTF_REFUSAL: &str = "BTF";

/// An image given by path, named by the version in its header.
pub fn of_user(path: &Path) -> Result<Kernel> {
    let bytes =
        fs::read(path).with_context(|| format!("cannot read the kernel {}", path.display()))?;
    let name = image_version(&bytes).with_context(|| {
        format!("{} is not a bootable x86 kernel image (bzImage or vmlinuz)", path.display())
    })?;
    Ok(Kernel {
        name: short_name(&name),
        image: path.canonicalize().context("resolving the kernel's path")?,
    })
}

/// A good kernel of a series: from the cache if there is one, else the newest that passes the
/// checks.
pub fn of_series(assets: &Assets, series: &str) -> Result<Kernel> {
    if let Some(built) = kernel_build::existing(&assets.cache, series) {
        return Ok(built);
    }
    if let Some(release) = cached_releases(&assets.cache, series)
        .into_iter()
        .find(|release| is_good(&assets.cache, release))
    {
        return Ok(kernel_at(&assets.cache.folder().join("kernels").join(&release), &release));
    }
    if series == kernel_build::SERIES {
        bail!("no kernel {series} in the cache: build it with `pandemonium_vm build-kernel`");
    }
    let releases =
        Apt::open(&assets.cache)?.names(PACKAGES[0]).map(|names| releases_of(&names, series))?;
    if releases.is_empty() {
        bail!(
            "Debian has no {FLAVOUR} kernel of series {series}: name another with --series, or \
                pass --kernel PATH"
        );
    }
    for release in &releases {
        match check(assets, release)? {
            Verdict::Good(kernel) => return Ok(kernel),
            Verdict::Skipped(reason) => {
                progress::line(&format!("skipped linux-{release}: {reason}"))
            }
        }
    }
    bail!("none of Debian's {} kernels of series {series} runs the scheduler", releases.len())
}

enum Verdict {
    Good(Kernel),
    Skipped(String),
}

/// Fetches one kernel, checks its options, boots it once, and stores the verdict.
fn check(assets: &Assets, release: &str) -> Result<Verdict> {
    let record = verdict_path(&assets.cache, release);
    if let Ok(reason) = fs::read_to_string(&record)
        && reason != GOOD
    {
        return Ok(Verdict::Skipped(reason));
    }
    let folder = match fetch(&assets.cache, release) {
        Ok(folder) => folder,
        Err(error) => return Ok(Verdict::Skipped(format!("{error:#}"))),
    };
    let config = fs::read_to_string(folder.join("config")).unwrap_or_default();
    if let Some(option) = OPTIONS.iter().find(|option| !config.lines().any(|line| line == **option))
    {
        return remember(&record, format!("built without {option}"));
    }
    let kernel = kernel_at(&folder, release);
    progress::step(&format!("checking that linux-{release} runs the scheduler"));
    let scenario = scenarios::find("kernel-check").context("the scenario that checks kernels")?;
    let boot = Boot {
        assets,
        kernel: &kernel,
        scenario,
        cpus: 2,
        mode: Mode::Fast,
        detail: "",
        limit_s: scenario.limit_s,
    };
    match boot.run(&mut |_| {})? {
        Outcome::Passed => {
            write_verdict(&record, GOOD)?;
            Ok(Verdict::Good(kernel))
        }
        Outcome::Failed(reason) if reason.contains(BTF_REFUSAL) => {
            remember(&record, "its BTF refuses sched_ext schedulers".into())
        }
        Outcome::Interrupted => bail!("interrupted"),
        // The scheduler has another fault, which the suite is to find.
        Outcome::Failed(_) | Outcome::KernelWarned(_) => Ok(Verdict::Good(kernel)),
        other => Ok(Verdict::Skipped(format!("{}: {}", other.name(), other.reason()))),
    }
}

const GOOD: &str = "good";

fn remember(record: &Path, reason: String) -> Result<Verdict> {
    write_verdict(record, &reason)?;
    Ok(Verdict::Skipped(reason))
}

fn write_verdict(record: &Path, text: &str) -> Result<()> {
    let partial = record.with_extension(format!("partial-{}", std::process::id()));
    fs::write(&partial, text)
        .and_then(|()| fs::rename(&partial, record))
        .with_context(|| format!("writing {}", record.display()))
}

fn verdict_path(cache: &Cache, release: &str) -> PathBuf {
    cache.folder().join("kernels").join(format!("{release}.verdict"))
}

fn is_good(cache: &Cache, release: &str) -> bool {
    fs::read_to_string(verdict_path(cache, release)).is_ok_and(|verdict| verdict == GOOD)
}

/// Fetches image and configuration of one release.
fn fetch(cache: &Cache, release: &str) -> Result<PathBuf> {
    cache.item(&format!("kernels/{release}"), |folder| {
        let apt = Apt::open(cache)?;
        progress::step(&format!("fetching linux-{release}"));
        let unpacked = folder.join("unpacked");
        let known = apt.names("linux-binary-")?;
        // The package lists may name packages that the archive has dropped, so the second kind is
        // tried if the first fails.
        let binaries = PACKAGES
            .iter()
            .map(|prefix| format!("{prefix}{release}"))
            .filter(|name| known.contains(name));
        let mut result = Err(anyhow::anyhow!("Debian has no package of it"));
        for binary in binaries {
            result = apt.unpack(&[binary, format!("linux-base-{release}")], &unpacked);
            if result.is_ok() {
                break;
            }
        }
        result?;
        let modules = unpacked.join("usr/lib/modules").join(release);
        let images = ["vmlinuz", "vmlinuz.unsigned"].map(|name| modules.join(name));
        let image =
            images.into_iter().find(|path| path.exists()).context("the package has no vmlinuz")?;
        fs::rename(image, folder.join("vmlinuz")).context("keeping the kernel")?;
        fs::rename(modules.join("config"), folder.join("config"))
            .context("the package has no config")?;
        fs::remove_dir_all(unpacked).context("removing the unpacked package")
    })
}

fn kernel_at(folder: &Path, release: &str) -> Kernel {
    Kernel { name: short_name(release), image: folder.join("vmlinuz") }
}

/// Releases in the cache, newest first.
fn cached_releases(cache: &Cache, series: &str) -> Vec<String> {
    let Ok(folder) = fs::read_dir(cache.folder().join("kernels")) else { return Vec::new() };
    let names =
        folder.flatten().filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name());
    newest_first(names.filter_map(|name| name.into_string().ok()), series)
}

fn releases_of(packages: &[String], series: &str) -> Vec<String> {
    // The longer prefix first: the shorter one would leave "unsigned-" in the release.
    let release = |package: &String| {
        PACKAGES.iter().rev().find_map(|prefix| package.strip_prefix(prefix).map(String::from))
    };
    newest_first(packages.iter().filter_map(release), series)
}

fn newest_first(releases: impl Iterator<Item = String>, series: &str) -> Vec<String> {
    let wanted = numbers(series);
    let mut releases: Vec<String> = releases
        .filter(|name| name.ends_with(FLAVOUR) && numbers(name).starts_with(&wanted))
        .collect();
    releases.sort_by_key(|name| std::cmp::Reverse(numbers(name)));
    releases.dedup();
    releases
}

/// "7.2.13+deb14-cloud-amd64" is 7, 2, 13, 14, 64: enough to order releases of one flavour.
fn numbers(release: &str) -> Vec<u32> {
    release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

fn short_name(release: &str) -> String {
    release.split(['+', '-', ' ']).next().unwrap_or(release).to_string()
}

/// The version text of a bzImage: the header's field at 0x20e points to it, counted from 0x200.
fn image_version(image: &[u8]) -> Option<String> {
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let start = 0x200 + usize::from(u16::from_le_bytes(image.get(0x20e..0x210)?.try_into().ok()?));
    let text = image.get(start..)?.split(|&byte| byte == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}
