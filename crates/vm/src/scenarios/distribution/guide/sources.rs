// SPDX-License-Identifier: GPL-2.0-only

//! The sources as far as `make install` reads them, and what `make build` and `make deb` would have
//! built.

use super::super::machine::shell;
use super::super::{PACKAGE, TOOLS, brought};
use super::RULES;
use super::commands::PAGES;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;

const FILES: [(&str, &str); 6] = [
    ("Makefile", include_str!("../../../../../../Makefile")),
    ("CHANGELOG.md", include_str!("../../../../../../CHANGELOG.md")),
    ("packaging/install", include_str!("../../../../../../packaging/install")),
    (
        "packaging/scx_pandemonium_user.service.in",
        include_str!("../../../../../../packaging/scx_pandemonium_user.service.in"),
    ),
    (
        "packaging/pandemonium_follow.service.in",
        include_str!("../../../../../../packaging/pandemonium_follow.service.in"),
    ),
    (
        "packaging/grafana-dashboard.json",
        include_str!("../../../../../../packaging/grafana-dashboard.json"),
    ),
];
/// What was below this before.
const PREFIX: &str = "/usr/local";
const BEFORE: &str = "/run/vm/local-before";

/// Writes them, and notes what there is where `make install` writes.
pub fn write(folder: &Path) -> Result<()> {
    for part in ["docs", "packaging", "target/release", "target/deb"] {
        fs::create_dir_all(folder.join(part)).with_context(|| format!("a folder {part}"))?;
    }
    for (name, text) in FILES.iter().chain(&PAGES) {
        fs::write(folder.join(name), text).with_context(|| format!("writing {name}"))?;
    }
    let there = folder.display();
    shell(&format!("chmod 755 {there}/packaging/install && cp -r {RULES} {there}/packaging"))?;
    shell(&format!(
        "cp /usr/bin/scx_pandemonium_user /usr/bin/pandemonium_* {there}/target/release"
    ))?;
    for (package, name) in
        [(PACKAGE, "scx-pandemonium-user_1"), (TOOLS, "scx-pandemonium-user-tools_1")]
    {
        let copy = folder.join(format!("target/deb/{name}.deb"));
        fs::copy(brought(package), copy).context("copying a package")?;
    }
    shell(&format!("find {PREFIX} | sort >{BEFORE}")).map(drop)
}

/// What was installed is removed, but for folders that other programs use too.
pub fn expect_uninstalled() -> Result<()> {
    let new = shell(&format!("find {PREFIX} | sort | comm -13 {BEFORE} - | sort --reverse"))?;
    for path in new.lines() {
        ensure!(fs::remove_dir(path).is_ok(), "`make uninstall` left {path}");
    }
    let lost = shell(&format!("find {PREFIX} | sort | comm -23 {BEFORE} -"))?;
    ensure!(lost.is_empty(), "`make uninstall` removed {lost}");
    shell("systemctl daemon-reload").map(drop)
}
