// SPDX-License-Identifier: GPL-2.0-only

//! A whole Debian as a disk: systemd as process 1, and what a user's machine has besides.
//!
//! mmdebstrap installs it once, from the mirror and the keys of this machine. The cache keeps the
//! disk, and a boot writes to a copy that vanishes with it.

use super::apt::{PROGRAMS, machine_transport};
use super::cache::Cache;
use super::sources::{self, Mirror};
use super::{command, progress};
use crate::scenarios::distribution::EXCLUSIVE_FOLDER;
use anyhow::{Context, Result, bail, ensure};
use pandemonium_host::trust::effective_user;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the cache item. It changes with the packages.
const ITEM: &str = "debian-4";
/// Beside what every Debian has: process 1 and its helpers, what a user types and in which shells,
/// what `make install` runs, what collects metrics, what the profile follows, and the libraries
/// that the scheduler's package depends on, because the guest has no network to fetch them from.
const PACKAGES: [&str; 22] = [
    "bash-completion",
    "binutils",
    "dbus",
    "dbus-user-session",
    "fish",
    "gamemode",
    "init-system-helpers",
    "libelf1t64",
    "libseccomp2",
    "make",
    "man-db",
    "power-profiles-daemon",
    "procps",
    "prometheus",
    "prometheus-node-exporter",
    "python3-pyinotify",
    "sudo",
    "systemd-sysv",
    "tuned",
    "udev",
    "zlib1g",
    "zsh",
];
/// Of two packages that conflict with each other, one is installed. On the disk are the files of
/// both, in [`EXCLUSIVE_FOLDER`].
const EXCLUSIVE: [&str; 2] = ["power-profiles-daemon", "tuned-ppd"];
/// A machine id and a name: without them the first boot asks for both.
const IDENTITY: &str = "echo 5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e >\"$1/etc/machine-id\" && \
    echo debian >\"$1/etc/hostname\" && echo '127.0.0.1 localhost debian' >\"$1/etc/hosts\"";
/// The services that a step starts when it needs them: at a boot they would only slow it down.
const DISABLE: &str = "chroot \"$1\" systemctl disable prometheus prometheus-node-exporter tuned";
/// Of the disk. Its file takes no more room than what is on it.
const SIZE: &str = "1G";
const TOOLS: [&str; 2] = ["mmdebstrap", "mkfs.ext4"];

/// The disk, made at the first use.
pub fn disk(cache: &Cache) -> Result<PathBuf> {
    let folder = cache.item(ITEM, |folder| {
        expect_means(cache)?;
        progress::step(&format!("installing a Debian {PROGRAMS} into the cache (some minutes)"));
        let root = folder.join("root");
        install(&sources::find_mirror()?, folder, &root)?;
        make_disk(&root, &folder.join("disk"))?;
        fs::remove_dir_all(&root).context("removing the folder that is on the disk now")
    })?;
    Ok(folder.join("disk"))
}

/// The owners of the files on the disk are other users than the one who makes it.
fn expect_means(cache: &Cache) -> Result<()> {
    if effective_user() != 0 {
        bail!(
            "only root can install a Debian: run this once with `sudo env SCX_VM_CACHE={}` in \
                front, and later without",
            cache.folder().display()
        );
    }
    for tool in TOOLS {
        ensure!(find(tool).is_some(), "there is no {tool}: `.ci/setup distribution` installs it");
    }
    Ok(())
}

/// Some users have no `sbin` in their PATH.
fn find(tool: &str) -> Option<PathBuf> {
    let sbin = ["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(tool));
    command::find(tool).or_else(|| sbin.into_iter().find(|path| path.is_file()))
}

fn install(mirror: &Mirror, folder: &Path, root: &Path) -> Result<()> {
    // A frozen mirror serves lists past their date. Their signatures are checked all the same.
    let settings = machine_transport() + "Acquire::Check-Valid-Until \"false\";\n";
    let settings_file = folder.join("apt.conf");
    fs::write(&settings_file, settings).context("writing the settings of apt")?;
    let sources = format!(
        "Types: deb\nURIs: {}\nSuites: {PROGRAMS}\nComponents: main\n{}",
        mirror.uri,
        mirror.signed_by.as_ref().map(|key| format!("Signed-By: {key}\n")).unwrap_or_default()
    );
    let sources_file = folder.join("debian.sources");
    fs::write(&sources_file, sources).context("writing the sources of apt")?;
    let download = format!(
        "mkdir -p \"$1{EXCLUSIVE_FOLDER}\" && cd \"$1{EXCLUSIVE_FOLDER}\" && \
            APT_CONFIG=\"$MMDEBSTRAP_APT_CONFIG\" apt-get download {}",
        EXCLUSIVE.join(" ")
    );
    let mut mmdebstrap = Command::new("mmdebstrap");
    mmdebstrap
        .args(["--quiet", "--mode=root", "--variant=apt", "--format=directory"])
        .arg(format!("--include={}", PACKAGES.join(",")))
        .arg(format!("--aptopt={}", settings_file.display()))
        .arg("--aptopt=APT::Install-Recommends \"false\"")
        .arg(format!("--customize-hook={IDENTITY}"))
        .arg(format!("--customize-hook={DISABLE}"))
        .arg(format!("--customize-hook={download}"))
        .arg(PROGRAMS)
        .arg(root)
        .arg(&sources_file);
    command::output(&mut mmdebstrap).map(drop)
}

fn make_disk(root: &Path, disk: &Path) -> Result<()> {
    let make = find("mkfs.ext4").context("mkfs.ext4 was there a moment ago")?;
    let mut command = Command::new(make);
    command.args(["-q", "-F", "-d"]).arg(root).arg(disk).arg(SIZE);
    command::output(&mut command).map(drop)
}
