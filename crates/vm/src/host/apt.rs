// SPDX-License-Identifier: GPL-2.0-only

//! Fetches Debian packages without changing the machine: apt with a configuration, lists and caches
//! of its own.
//!
//! It works for any user, installs nothing, and needs no network for what the cache already has.

use super::cache::Cache;
use super::sources::{self, Mirror};
use super::{command, progress};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Kernels come from the first two suites, programs and the source of 6.12 from the last.
const SUITES: [&str; 3] = ["sid", "trixie-backports", PROGRAMS];
/// The release of all unpacked programs: one release, so that all libraries fit each other.
pub const PROGRAMS: &str = "trixie";
/// Older package lists are fetched again before use.
const LISTS_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A private apt, locked for this process.
pub struct Apt {
    folder: PathBuf,
    _lock: super::cache::Lock,
}

impl Apt {
    /// Writes the configuration and updates the package lists if they are old.
    pub fn open(cache: &Cache) -> Result<Apt> {
        if std::env::consts::ARCH != "x86_64" {
            bail!(
                "kernels are fetched for x86_64 only, and this machine is {}",
                std::env::consts::ARCH
            );
        }
        for program in ["apt-get", "apt-cache", "apt-config", "dpkg-deb"] {
            ensure!(
                command::find(program).is_some(),
                "this machine has no {program} to fetch kernels with: pass --kernel PATH and \
                 install QEMU 8.1 or later, stress-ng and a static busybox"
            );
        }
        let apt = Apt { folder: cache.folder().join("apt"), _lock: cache.lock("apt")? };
        apt.write_configuration(&sources::find_mirror()?)?;
        apt.update_lists()?;
        Ok(apt)
    }

    fn write_configuration(&self, mirror: &Mirror) -> Result<()> {
        let folder = self.folder.display();
        for part in ["lists/partial", "cache/archives/partial", "sources.list.d", "none.d"] {
            fs::create_dir_all(self.folder.join(part))
                .with_context(|| format!("creating {folder}/{part}"))?;
        }
        let signed_by =
            mirror.signed_by.as_ref().map(|key| format!("Signed-By: {key}\n")).unwrap_or_default();
        let sources = format!(
            "Types: deb\nURIs: {}\nSuites: {}\nComponents: main\nArchitectures: amd64\n{signed_by}",
            mirror.uri,
            SUITES.join(" ")
        );
        let nothing = "/dev/null".to_string();
        let none = format!("{folder}/none.d");
        let settings = [
            ("Dir::Etc::main", nothing.clone()),
            ("Dir::Etc::parts", none.clone()),
            ("Dir::Etc::preferences", nothing.clone()),
            ("Dir::Etc::preferencesparts", none),
            ("Dir::Etc::sourcelist", nothing),
            ("Dir::Etc::sourceparts", format!("{folder}/sources.list.d")),
            ("Dir::State", folder.to_string()),
            ("Dir::State::lists", format!("{folder}/lists")),
            ("Dir::State::status", format!("{folder}/status")),
            ("Dir::Cache", format!("{folder}/cache")),
            ("Dir::Log", folder.to_string()),
            ("APT::Architecture", "amd64".into()),
            ("APT::Install-Recommends", "false".into()),
            ("APT::Default-Release", PROGRAMS.into()),
            // apt would otherwise become a user that cannot read root's cache.
            ("APT::Sandbox::User", String::new()),
            ("Acquire::Languages", "none".into()),
            // A frozen mirror serves lists past their date. Their signatures are checked all the
            // same.
            ("Acquire::Check-Valid-Until", "false".into()),
            ("Acquire::Retries", "3".into()),
        ];
        let ours = settings.map(|(key, value)| format!("{key} \"{value}\";\n")).concat();
        let configuration = machine_transport() + &ours;
        // An empty status: a closure is complete whatever this machine has installed.
        for (name, text) in [("sources.list.d/vm.sources", &sources), ("apt.conf", &configuration)]
        {
            fs::write(self.folder.join(name), text)
                .with_context(|| format!("writing {folder}/{name}"))?;
        }
        fs::write(self.folder.join("status"), "")
            .with_context(|| format!("writing {folder}/status"))
    }

    fn tool(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.folder.join("apt.conf")).env("LC_ALL", "C");
        command
    }

    fn update_lists(&self) -> Result<()> {
        let stamp = self.folder.join("updated");
        let age = fs::metadata(&stamp)
            .and_then(|data| data.modified())
            .ok()
            .and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age < LISTS_AGE_MAX) {
            return Ok(());
        }
        progress::step("fetching Debian's package lists");
        command::output(self.tool("apt-get").args([
            "-qq",
            "-o",
            "APT::Update::Error-Mode=any",
            "update",
        ]))?;
        fs::write(&stamp, "").with_context(|| format!("writing {}", stamp.display()))
    }

    /// Names of all packages with this prefix.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let names = command::output(self.tool("apt-cache").args(["pkgnames", prefix]))?;
        Ok(names.lines().map(str::to_string).collect())
    }

    /// A package and everything it depends on, by name.
    pub fn closure(&self, package: &str) -> Result<Vec<String>> {
        let plan = command::output(self.tool("apt-get").args([
            "-qq",
            "-y",
            "--print-uris",
            "install",
            package,
        ]))?;
        // 'URI' name_version_arch.deb size hash
        let names = plan.lines().filter_map(|line| line.split_whitespace().nth(1)?.split_once('_'));
        Ok(names.map(|(name, _)| name.to_string()).collect())
    }

    /// Downloads packages and unpacks them into a folder, without their scripts.
    pub fn unpack(&self, packages: &[String], folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        let downloads = self.folder.join("downloads");
        let _ = fs::remove_dir_all(&downloads);
        fs::create_dir_all(&downloads)
            .with_context(|| format!("creating {}", downloads.display()))?;
        let fetch = || {
            command::output(
                self.tool("apt-get")
                    .args(["-qq", "download"])
                    .args(packages)
                    .current_dir(&downloads),
            )
        };
        if fetch().is_err() {
            // The archive drops a package when a newer one arrives, so even fresh lists may be too
            // old.
            fs::remove_file(self.folder.join("updated")).context("expiring the package lists")?;
            self.update_lists()?;
            fetch()?;
        }
        for file in
            fs::read_dir(&downloads).with_context(|| format!("reading {}", downloads.display()))?
        {
            let path = file.context("listing the downloads")?.path();
            command::output(Command::new("dpkg-deb").arg("-x").arg(&path).arg(folder))?;
        }
        fs::remove_dir_all(&downloads).with_context(|| format!("removing {}", downloads.display()))
    }
}

/// The machine's settings for downloads, such as proxies, without its hooks, which would change the
/// machine.
pub fn machine_transport() -> String {
    let dump = command::output(Command::new("apt-config").arg("dump")).unwrap_or_default();
    dump.lines()
        .filter(|line| line.starts_with("Acquire::"))
        .map(|line| format!("{line}\n"))
        .collect()
}
