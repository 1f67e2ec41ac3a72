// SPDX-License-Identifier: GPL-2.0-only

//! The user of the pages, with a session of its own.

use super::super::follow;
use super::super::machine::{Ran, shell, wait_for};
use super::to_its_end;
use anyhow::{Context, Result};
use std::fs;
use std::time::Duration;

const NAME: &str = "alice";
/// What the commands of the pages create for it.
const GROUP: &str = "scx";
const SETTINGS: &str = "/etc/systemd/system/scx_pandemonium_user.service.d";
const SESSION_LIMIT: Duration = Duration::from_secs(60);

pub fn add() -> Result<()> {
    shell(&format!("useradd --create-home {NAME}")).map(drop)
}

/// The user begins a session and runs the line in it. Then the profile follows the desktop.
pub fn follows(line: &str) -> Result<Ran> {
    shell(&format!("loginctl enable-linger {NAME}"))?;
    let number = shell(&format!("id --user {NAME}"))?;
    let runtime = format!("/run/user/{}", number.trim());
    let bus = format!("{runtime}/bus");
    wait_for("a session with a bus", SESSION_LIMIT, || Ok(fs::exists(&bus)?))?;
    let as_user = format!("runuser -u {NAME} -- env XDG_RUNTIME_DIR={runtime}");
    let ran = to_its_end(&format!("{as_user} {line}"))?;
    let kept = follow::kept();
    let followed = follow::expect_followed().with_context(|| {
        let said = shell(&format!("{as_user} systemctl --user status pandemonium_follow"));
        said.unwrap_or_else(|error| format!("{error:#}"))
    });
    shell(&format!("loginctl disable-linger {NAME} && loginctl terminate-user {NAME}"))?;
    wait_for("the end of the session", SESSION_LIMIT, || Ok(!fs::exists(&runtime)?))?;
    followed?;
    // Earlier the program of the user would have the bus start it again.
    follow::end(kept)?;
    remove()?;
    Ok(ran)
}

fn remove() -> Result<()> {
    shell(&format!("userdel --remove {NAME} && groupdel {GROUP}"))?;
    fs::remove_dir_all(SETTINGS).context("removing the settings")?;
    shell("systemctl daemon-reload").map(drop)
}
