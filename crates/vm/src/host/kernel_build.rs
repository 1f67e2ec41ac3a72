// SPDX-License-Identifier: GPL-2.0-only

//! Builds Linux 6.12, the oldest kernel with sched_ext, from Debian's source package and
//! kernel-6.12.config, because no distribution packages 6.12 with sched_ext enabled. The result is
//! kept in the cache.

use super::apt::{Apt, PROGRAMS};
use super::cache::Cache;
use super::image::Kernel;
use super::{command, progress};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const SERIES: &str = "6.12";
const ITEM: &str = "kernels/6.12-built-2";
const SOURCE_PACKAGE: &str = "linux-source-6.12";
/// The options, on top of allnoconfig.
const FRAGMENT: &str = include_str!("../../kernel-6.12.config");
/// Programs and headers that the build needs, and the Debian packages that contain them.
const TOOLS: [(&str, &str); 6] = [
    ("make", "make"),
    ("gcc", "gcc"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("pahole", "dwarves"),
];
const HEADERS: [(&str, &str); 2] =
    [("/usr/include/openssl/opensslv.h", "libssl-dev"), ("/usr/include/libelf.h", "libelf-dev")];

/// The built kernel, if the series is 6.12 and the cache has it.
pub fn existing(cache: &Cache, series: &str) -> Option<Kernel> {
    (series == SERIES).then(|| cache.existing(ITEM)).flatten().map(|folder| kernel_in(&folder))
}

/// Builds the kernel unless the cache has it.
pub fn build(cache: &Cache) -> Result<Kernel> {
    let folder = cache.item(ITEM, |folder| {
        expect_tools()?;
        let tree = unpack_source(cache, folder)?;
        progress::step("configuring linux 6.12");
        configure(&tree)?;
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        progress::step(&format!(
            "building linux 6.12 with {jobs} jobs, about {} minutes",
            20 / jobs.min(4)
        ));
        make(&tree, &[&format!("-j{jobs}"), "bzImage"])?;
        fs::rename(tree.join("arch/x86/boot/bzImage"), folder.join("vmlinuz"))
            .context("keeping the kernel")?;
        fs::rename(tree.join(".config"), folder.join("config"))
            .context("keeping its configuration")?;
        fs::remove_dir_all(folder.join("build")).context("removing the build")
    })?;
    Ok(kernel_in(&folder))
}

fn kernel_in(folder: &Path) -> Kernel {
    Kernel { name: SERIES.into(), image: folder.join("vmlinuz") }
}

fn expect_tools() -> Result<()> {
    let tools = TOOLS.iter().filter(|(tool, _)| command::find(tool).is_none());
    let headers = HEADERS.iter().filter(|(header, _)| !Path::new(header).exists());
    let missing: Vec<&str> = tools.chain(headers).map(|(_, package)| *package).collect();
    ensure!(
        missing.is_empty(),
        "building linux 6.12 needs these Debian packages: {}",
        missing.join(" ")
    );
    Ok(())
}

/// Fetches the source package and unpacks the tree inside it.
fn unpack_source(cache: &Cache, folder: &Path) -> Result<PathBuf> {
    progress::step("fetching the source of linux 6.12 (150 MB)");
    let package = folder.join("build/package");
    Apt::open(cache)?.unpack(&[format!("{SOURCE_PACKAGE}/{PROGRAMS}")], &package)?;
    let archive = package.join("usr/src").join(format!("{SOURCE_PACKAGE}.tar.xz"));
    progress::step("unpacking it");
    command::output(
        Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(folder.join("build")),
    )?;
    fs::remove_dir_all(&package).context("removing the source package")?;
    let tree = folder.join("build").join(SOURCE_PACKAGE);
    ensure!(tree.join("Makefile").exists(), "the source package has no {SOURCE_PACKAGE}/Makefile");
    Ok(tree)
}

/// allnoconfig, plus the fragment, plus the options that it implies.
fn configure(tree: &Path) -> Result<()> {
    let fragment = tree.join("vm.config");
    fs::write(&fragment, FRAGMENT).context("writing the configuration")?;
    make(tree, &["allnoconfig"])?;
    command::output(
        Command::new("scripts/kconfig/merge_config.sh")
            .args(["-m", ".config"])
            .arg(&fragment)
            .current_dir(tree),
    )?;
    make(tree, &["olddefconfig"])?;
    // Without a working pahole the build silently drops the BTF option.
    let result = fs::read_to_string(tree.join(".config")).context("reading the configuration")?;
    for option in ["CONFIG_SCHED_CLASS_EXT=y", "CONFIG_DEBUG_INFO_BTF=y"] {
        ensure!(
            result.lines().any(|line| line == option),
            "linux 6.12 cannot be configured with {option} here"
        );
    }
    Ok(())
}

/// Runs make in the kernel tree.
fn make(tree: &Path, arguments: &[&str]) -> Result<()> {
    command::output(
        Command::new("make").args(arguments).current_dir(tree).env("KBUILD_BUILD_USER", "vm"),
    )
    .map(drop)
}
