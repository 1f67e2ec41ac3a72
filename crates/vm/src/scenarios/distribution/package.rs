// SPDX-License-Identifier: GPL-2.0-only

//! The installation, with apt and from a file.

use super::machine::{UNIT, run, shell};
use super::{PACKAGE, brought};
use crate::guest::{Guest, kernel, report};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;

const NAME: &str = "scx-pandemonium-user";
/// Bytes that may be installed.
const BYTES_MAX: u64 = 12_000_000;

/// The version that is installed.
fn version() -> Result<String> {
    shell(&format!("dpkg-query --show --showformat='${{Version}}' {NAME}"))
}

fn version_of(package: &str) -> Result<String> {
    let path = brought(package);
    Ok(shell(&format!("dpkg-deb --field {} Version", path.display()))?.trim().to_owned())
}

/// The command of the guide, beside a package that `make deb` would have built.
fn from_file(package: &str) -> Result<()> {
    let folder = brought("built");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("target/deb")).context("a folder for the package")?;
    fs::copy(brought(package), folder.join("target/deb").join(package))
        .context("copying the package")?;
    shell(&format!("cd {} && sudo apt install ./target/deb/*.deb", folder.display())).map(drop)
}

/// One command; nothing is started by it.
pub fn install(_: &Guest) -> Result<()> {
    from_file(PACKAGE)?;
    ensure!(version()? == version_of(PACKAGE)?, "{} is installed", version()?);
    for state in ["is-enabled", "is-active"] {
        let answer = run(&format!("systemctl {state} {UNIT}"))?;
        ensure!(answer.code != Some(0), "an installation left it {}", answer.output);
    }
    ensure!(kernel::sched_ext_state()? == "disabled", "an installation loaded a scheduler");
    inspect()
}

/// Every file has the size and the rights that it should have, and does what it is for.
fn inspect() -> Result<()> {
    let files = shell(&format!("dpkg --listfiles {NAME}"))?;
    let mut bytes = 0;
    for file in files.lines().map(Path::new) {
        let about = fs::symlink_metadata(file).with_context(|| format!("{}", file.display()))?;
        if about.is_file() {
            bytes += about.len();
            report::telemetry(format!("{:>9} {}", about.len(), file.display()));
        }
    }
    report::note(format!("{:.2} MB are installed", bytes as f64 / 1e6));
    ensure!(bytes <= BYTES_MAX, "{bytes} bytes are installed, more than {BYTES_MAX}");
    let programs = files.lines().filter_map(|file| file.strip_prefix("/usr/bin/"));
    for program in programs {
        shell(&format!("{program} --version"))?;
        let page = shell(&format!("man --where {program}"))?;
        ensure!(page.contains(program), "the manual page of {program} is {page}");
    }
    shell(&format!("dpkg --verify {NAME}"))?;
    shell("bash -n /usr/share/bash-completion/completions/scx_pandemonium_user")?;
    shell("systemd-analyze verify /usr/lib/systemd/system/scx_pandemonium_user.service").map(drop)
}
