// SPDX-License-Identifier: GPL-2.0-only

//! The scheduler's profile follows power-profiles-daemon, tuned-ppd in its place, and GameMode, by
//! a program that runs as a user with the rights of the group of `--profile-group`, and no others.

use super::machine::{UNIT, run, shell, tail, wait_for};
use super::{EXCLUSIVE_FOLDER, service};
use crate::guest::statistics::Statistics;
use crate::guest::{Guest, report};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::time::Duration;

/// A user and a group that every Debian has.
const USER: &str = "games";
const FLAGS: &str = "/etc/default/scx";
/// Settings of the unit that end with the boot.
const SETTINGS: &str = "/run/systemd/system/scx_pandemonium_user.service.d";
const BUS: &str = "unix:path=/run/vm-session/bus";
const POWER: &str = "org.freedesktop.UPower.PowerProfiles";
const DAEMON: &str = "power-profiles-daemon";
const TUNED: &str = "tuned-ppd";
/// What the services of power profiles and polkit keep on the disk.
const KEPT: [&str; 3] = [
    "/var/lib/power-profiles-daemon",
    "/var/lib/power-profiles-daemon/state.ini",
    "/var/lib/polkit-1",
];
const SOON: Duration = Duration::from_secs(60);

pub fn follows(_: &Guest) -> Result<()> {
    let kept_before = kept();
    fs::create_dir_all(SETTINGS).context("a folder for settings")?;
    fs::write(format!("{SETTINGS}/vm.conf"), format!("[Service]\nSupplementaryGroups={USER}\n"))
        .context("writing settings")?;
    fs::write(FLAGS, format!("SCX_FLAGS='--profile-group {USER}'\n")).context("the flags")?;
    shell(&format!("systemctl daemon-reload && systemctl restart {UNIT}"))?;
    service::expect_in_charge()?;
    expect_rights()?;
    let session = format!("dbus-daemon --session --nofork --nopidfile --address={BUS}");
    as_user("vm-session", &format!("-p RuntimeDirectory=vm-session {session}"))?;
    wait_for("a session's bus", SOON, || Ok(fs::exists("/run/vm-session/bus")?))?;
    shell(&format!("systemctl start {DAEMON}"))?;
    as_user("vm-follow", "pandemonium_follow")?;
    let followed = follow().and_then(|()| follow_tuned());
    if followed.is_err() {
        let said = run("journalctl -u vm-follow -u vm-game -u vm-session -o cat --no-pager")?;
        report::note(tail(&said.output));
    }
    followed?;
    shell("systemctl stop vm-follow vm-session")?;
    stop(DAEMON)?;
    fs::remove_file(FLAGS).context("removing the flags")?;
    fs::remove_dir_all(SETTINGS).context("removing the settings")?;
    forget(kept_before);
    shell(&format!("systemctl daemon-reload && systemctl restart {UNIT}"))?;
    service::expect_in_charge()
}

/// A program of a user follows power-profiles-daemon, which goes on.
pub fn expect_followed() -> Result<()> {
    shell(&format!("systemctl start {DAEMON}"))?;
    choose("power-saver")?;
    expect("powersave", "power profile power-saver")?;
    choose("balanced")?;
    expect("auto", "power profile balanced")
}

/// Ends power-profiles-daemon, and removes what was not there before.
pub fn end(kept_before: Kept) -> Result<()> {
    stop(DAEMON)?;
    forget(kept_before);
    Ok(())
}

/// Stops a service that the bus starts again when a program asks it something, which cancels the
/// stop.
fn stop(unit: &str) -> Result<()> {
    wait_for(&format!("the end of {unit}"), SOON, || {
        let stopped = run(&format!("systemctl stop {unit}"))?;
        let active = run(&format!("systemctl is-active --quiet {unit}"))?;
        Ok(stopped.code == Some(0) && active.code != Some(0))
    })
    .map(drop)
}

/// Which of [`KEPT`] there are.
pub type Kept = [bool; KEPT.len()];

/// Looks for them.
pub fn kept() -> Kept {
    KEPT.map(|path| fs::exists(path).unwrap_or(false))
}

/// Removes what was not there before.
fn forget(kept_before: Kept) {
    for (path, was_there) in KEPT.into_iter().zip(kept_before) {
        if !was_there {
            let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
        }
    }
}

/// The desktop changes, and the profile with it.
fn follow() -> Result<()> {
    expect("auto", "power profile balanced")?;
    choose("power-saver")?;
    expect("powersave", "power profile power-saver")?;
    as_user("vm-game", "/usr/games/gamemoderun sleep 600")?;
    expect("gaming", "GameMode")?;
    shell("systemctl stop vm-game")?;
    expect("powersave", "power profile power-saver")?;
    shell(&format!("systemctl restart {UNIT}"))?;
    service::expect_in_charge()?;
    expect("powersave", "power profile power-saver")
}

/// A package that conflicts with power-profiles-daemon takes its place, and its name on the bus. A
/// change of the profile in tuned itself counts too.
fn follow_tuned() -> Result<()> {
    install(TUNED)?;
    let gone = run(&format!("systemctl is-active {DAEMON}"))?;
    ensure!(gone.code != Some(0), "{DAEMON} runs beside {TUNED}");
    expect("auto", "power profile balanced")?;
    choose("power-saver")?;
    expect("powersave", "power profile power-saver")?;
    shell("tuned-adm profile throughput-performance")?;
    expect("lowlatency", "power profile performance")?;
    stop(TUNED)?;
    shell(&format!("systemctl stop tuned && apt-get purge --yes {TUNED}"))?;
    install(DAEMON)?;
    // That has kept what was chosen before.
    expect("powersave", "power profile power-saver")
}

/// Installs a package from its file on the disk. apt removes the packages that conflict with it.
fn install(package: &str) -> Result<()> {
    shell(&format!("apt-get install --yes {EXCLUSIVE_FOLDER}/{package}_*.deb")).map(drop)
}

/// What the desktop's settings do.
fn choose(profile: &str) -> Result<()> {
    let path = "/org/freedesktop/UPower/PowerProfiles";
    shell(&format!("busctl set-property {POWER} {path} {POWER} ActiveProfile s {profile}"))
        .map(drop)
}

/// Members of the group choose the profile and nothing else; others not even that.
fn expect_rights() -> Result<()> {
    let tune = |user: &str, what: &str| {
        run(&format!("runuser -u {user} -- scx_pandemonium_user tune {what}"))
    };
    let chosen = tune(USER, "profile=server")?;
    ensure!(chosen.code == Some(0), "a member may not choose: {}", chosen.output);
    ensure!(Statistics::ask()?.text("profile")? == "server", "it was not chosen");
    for (user, what) in [(USER, "batch_slice_us=8000"), ("nobody", "profile=gaming")] {
        let refused = tune(user, what)?;
        ensure!(refused.code == Some(3), "{user}: tune {what}: {:?}", refused.code);
    }
    Ok(())
}

/// Starts a command as the user, in a unit.
fn as_user(unit: &str, command: &str) -> Result<()> {
    shell(&format!(
        "systemd-run --quiet --collect --unit={unit} --uid={USER} \
            --setenv=DBUS_SESSION_BUS_ADDRESS={BUS} {command}"
    ))
    .map(drop)
}

fn expect(profile: &str, by: &str) -> Result<()> {
    let took = wait_for(&format!("the profile {profile} by {by}"), SOON, || {
        let now = Statistics::ask()?;
        Ok(now.text("profile")? == profile && now.text("profile_by")? == by)
    })?;
    report::note(format!("{profile}, by {by}, after {:.1} s", took.as_secs_f64()));
    Ok(())
}
