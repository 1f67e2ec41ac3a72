// SPDX-License-Identifier: GPL-2.0-only

//! Installation, upgrade, removal and purge, with apt and from a file.

use super::machine::{UNIT, changed_files, main_pid, property, run, shell, tail, wait_for};
use super::service::{self, PROCDB};
use super::{EARLIER, PACKAGE, TOOLS, brought};
use crate::guest::statistics::Statistics;
use crate::guest::{Guest, kernel, report};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

const NAME: &str = "scx-pandemonium-user";
const TOOLS_NAME: &str = "scx-pandemonium-user-tools";
/// Bytes that a package may install.
const BYTES_MAX: u64 = 12_000_000;
/// What the user has set before the upgrade.
const KNOB: &str = "batch_slice_us=2500";
const RELEASED: &str = "batch_slice_us";
const PROFILE: &str = "server";
const START_LIMIT: Duration = Duration::from_secs(150);

/// The version that is installed.
fn version() -> Result<String> {
    shell(&format!("dpkg-query --show --showformat='${{Version}}' {NAME}"))
}

fn version_of(package: &str) -> Result<String> {
    let path = brought(package);
    Ok(shell(&format!("dpkg-deb --field {} Version", path.display()))?.trim().to_owned())
}

/// The command of the guide, beside packages that `make deb` would have built.
fn from_file(package: &str) -> Result<()> {
    let folder = brought("built");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("target/deb")).context("a folder for the package")?;
    for file in [package, TOOLS] {
        let copied = fs::copy(brought(file), folder.join("target/deb").join(file));
        copied.context("copying a package")?;
    }
    // An upgrade of one package and not of the other is a question for the user.
    let install = "echo y | sudo apt install ./target/deb/*.deb";
    shell(&format!("cd {} && {install}", folder.display())).map(drop)
}

/// One command; nothing is started by it.
pub fn install(_: &Guest) -> Result<()> {
    from_file(EARLIER)?;
    ensure!(version()? == version_of(EARLIER)?, "{} is installed", version()?);
    for state in ["is-enabled", "is-active"] {
        let answer = run(&format!("systemctl {state} {UNIT}"))?;
        ensure!(answer.code != Some(0), "an installation left it {}", answer.output);
    }
    ensure!(kernel::sched_ext_state()? == "disabled", "an installation loaded a scheduler");
    inspect(NAME)?;
    inspect(TOOLS_NAME)?;
    shell("bash -n /usr/share/bash-completion/completions/scx_pandemonium_user")?;
    shell("systemd-analyze verify /usr/lib/systemd/system/scx_pandemonium_user.service")?;
    // The agent has no session of a user, and this variable neither.
    let verify = "XDG_RUNTIME_DIR=/run systemd-analyze --user verify";
    shell(&format!("{verify} /usr/lib/systemd/user/pandemonium_follow.service")).map(drop)
}

/// Every file has the size and the rights that it should have, and does what it is for.
fn inspect(name: &str) -> Result<()> {
    let files = shell(&format!("dpkg --listfiles {name}"))?;
    let mut bytes = 0;
    for file in files.lines().map(Path::new) {
        let about = fs::symlink_metadata(file).with_context(|| format!("{}", file.display()))?;
        if about.is_file() {
            bytes += about.len();
            report::telemetry(format!("{:>9} {}", about.len(), file.display()));
        }
    }
    report::note(format!("{name}: {:.2} MB are installed", bytes as f64 / 1e6));
    ensure!(bytes <= BYTES_MAX, "{name}: {bytes} bytes are installed, more than {BYTES_MAX}");
    let programs = files.lines().filter_map(|file| file.strip_prefix("/usr/bin/"));
    for program in programs {
        shell(&format!("{program} --version"))?;
        let page = shell(&format!("man --where {program}"))?;
        ensure!(page.contains(program), "the manual page of {program} is {page}");
    }
    shell(&format!("dpkg --verify {name}")).map(drop)
}

/// The scheduler that runs becomes the new one in the same process, and keeps what the user has set
/// and what it has learned.
pub fn upgrade(_: &Guest) -> Result<()> {
    service::expect_in_charge()?;
    let learned = service::learned()?;
    ensure!(!learned.is_empty(), "nothing was learned before the upgrade");
    shell(&format!("sudo scx_pandemonium_user tune {KNOB} profile={PROFILE}"))?;
    let before = main_pid()?;
    from_file(PACKAGE)?;
    ensure!(version()? == version_of(PACKAGE)?, "{} is installed", version()?);
    // The file of the replaced program is deleted.
    wait_for("running the new program", START_LIMIT, || {
        let program = fs::read_link(format!("/proc/{}/exe", main_pid()?)).unwrap_or_default();
        Ok(program == Path::new("/usr/bin/scx_pandemonium_user"))
    })?;
    // Until then the old worker schedules.
    wait_for("an upgrade that is over", START_LIMIT, || {
        let pause = Statistics::ask().and_then(|now| now.count("upgrade_pause_us"));
        Ok(pause.is_ok_and(|us| us > 0))
    })
    .with_context(journal)?;
    service::expect_in_charge()?;
    ensure!(main_pid()? == before, "the upgrade started another process");
    expect_kept(&learned)?;
    let enabled = property(UNIT, "UnitFileState")?;
    ensure!(enabled == "enabled", "after the upgrade the unit is {enabled}");
    shell(&format!("sudo scx_pandemonium_user tune profile=auto --release {RELEASED}")).map(drop)
}

/// What the unit has said at last.
fn journal() -> String {
    let lines = run(&format!("journalctl --unit={UNIT} --output=cat --no-pager"));
    lines.map(|lines| tail(&lines.output)).unwrap_or_default()
}

/// Knob, profile and programs are those of before.
fn expect_kept(learned: &BTreeSet<String>) -> Result<()> {
    let knobs = shell("sudo scx_pandemonium_user tune")?;
    let is_kept = |line: &str| line.starts_with(KNOB) && line.contains("* ");
    ensure!(knobs.lines().any(is_kept), "the upgrade lost the knob {KNOB}: {knobs}");
    let now = Statistics::ask()?;
    ensure!(now.text("profile")? == PROFILE, "the upgrade lost the profile {PROFILE}");
    let known = service::learned()?;
    let lost = learned.iter().find(|name| !known.contains(*name));
    ensure!(lost.is_none(), "the upgrade lost what was learned of {lost:?}");
    report::note(format!(
        "upgraded in the same process: knob, profile and {} programs are kept; the kernel's own \
         scheduler ran for {} us",
        learned.len(),
        now.count("upgrade_pause_us")?
    ));
    Ok(())
}

/// The scheduler stops, and what was learned stays.
pub fn remove(_: &Guest) -> Result<()> {
    shell(&format!("systemctl enable --now {UNIT}"))?;
    service::expect_in_charge()?;
    shell(&format!("sudo apt-get remove --yes {NAME} {TOOLS_NAME}"))?;
    kernel::wait_for_state("disabled", START_LIMIT)?;
    ensure!(Path::new(PROCDB).exists(), "a removal deleted what was learned");
    let (rest, _) = changed_files()?;
    let strange: Vec<&String> = rest
        .iter()
        .filter(|file| !file.starts_with("/var/lib/scx_pandemonium_user"))
        // With this link `systemctl enable` has enabled the unit; so has every other package.
        .filter(|file| !file.starts_with("/etc/systemd/system/multi-user.target.wants"))
        .collect();
    ensure!(strange.is_empty(), "a removal left {strange:?}");
    Ok(())
}

/// Nothing is left.
pub fn purge(_: &Guest) -> Result<()> {
    shell(&format!("sudo apt-get purge --yes {NAME}"))?;
    // apt does not find the package of the tools any more: it has left nothing to purge.
    for name in [NAME, TOOLS_NAME] {
        let known = run(&format!("dpkg-query --show {name}"))?;
        ensure!(known.code != Some(0), "dpkg still knows {}", known.output);
    }
    let (rest, missing) = changed_files()?;
    ensure!(rest.is_empty(), "left behind: {rest:?}");
    ensure!(missing.is_empty(), "removed, and not ours: {missing:?}");
    let unit = property(UNIT, "LoadState")?;
    ensure!(unit == "not-found", "systemd still knows the unit: {unit}");
    Ok(())
}
