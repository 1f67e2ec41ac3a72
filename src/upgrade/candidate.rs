// SPDX-License-Identifier: GPL-2.0-only

//! The program that is to take over. It is opened once: what was checked and tried is what is
//! executed, even if another file has its name by then.

use super::handover;
use crate::trusted;
use anyhow::{Context, Error, Result, bail, ensure};
use pandemonium_host::trust::Trusted;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An open program that only root, this user, and the user that became root by `sudo` can change.
#[derive(Debug)]
pub struct Candidate {
    file: File,
    path: PathBuf,
}

impl Candidate {
    /// Opens the program at `path`. Fails if another user could have written it.
    pub fn open(path: &Path) -> Result<Candidate> {
        let place = || format!("{} cannot be executed", path.display());
        let candidate = Candidate::open_any(path).with_context(place)?;
        let real = match Trusted::of_root() {
            Some(trusted) => trusted.check("execute", path)?,
            None => check_as_user(path)?,
        };
        let (opened, named) = (candidate.file.metadata()?, fs::metadata(real)?);
        let is_same = (opened.dev(), opened.ino()) == (named.dev(), named.ino());
        ensure!(is_same, "{} changes at the moment: try again", path.display());
        ensure!(opened.is_file(), "{} is not a file", path.display());
        Ok(candidate)
    }

    /// The program of this process, wherever its file is.
    pub fn own() -> Result<Candidate> {
        Ok(Candidate::open_any(Path::new("/proc/self/exe"))?)
    }

    fn open_any(path: &Path) -> std::io::Result<Candidate> {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
        Ok(Candidate { file, path: path.into() })
    }

    /// Where it was found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A command that executes it with the options of this process.
    pub fn command(&self) -> Command {
        let mut command = Command::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        command.arg0(&self.path).args(std::env::args_os().skip(1));
        command
    }

    /// Executes it in this process, with a handover. Returns only if that fails.
    pub fn execute(&self, handover: &File) -> Error {
        let error = handover::pass(&mut self.command(), handover).exec();
        Error::new(error).context(format!("{} cannot be executed", self.path.display()))
    }
}

/// For a user other than root: the path of the program without links. Fails if a further user could
/// change it, or replace it.
fn check_as_user(path: &Path) -> Result<PathBuf> {
    let path = path.canonicalize()?;
    if let Some(why) = trusted::distrust_file(&fs::metadata(&path)?) {
        bail!("{} {why}", path.display());
    }
    let folder = path.parent().context("it has no folder")?;
    trusted::directory(folder).map_err(|why| anyhow::anyhow!("{why}"))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procdb_file::tests::Scratch;
    use std::os::unix::fs::PermissionsExt;

    /// A shell script would be read again by its name, so this copies a program.
    fn program(scratch: &Scratch, name: &str, from: &str) -> PathBuf {
        let path = scratch.path().with_file_name(name);
        fs::copy(from, &path).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn what_was_opened_is_executed_even_if_its_name_changes_hands() {
        let scratch = Scratch::new();
        let path = program(&scratch, "program", "/bin/true");
        let candidate = Candidate::open(&path).unwrap();
        fs::rename(program(&scratch, "other", "/bin/false"), &path).unwrap();
        let run = |candidate: &Candidate| {
            let mut command = Command::new(candidate.command().get_program());
            command.status().unwrap().success()
        };
        assert!(run(&candidate));
        assert!(!run(&Candidate::open(&path).unwrap()));
    }

    #[test]
    fn a_program_that_others_can_change_or_that_is_missing_is_refused() {
        let scratch = Scratch::new();
        let path = program(&scratch, "program", "/bin/true");
        fs::set_permissions(&path, PermissionsExt::from_mode(0o757)).unwrap();
        let refusal = Candidate::open(&path).unwrap_err().to_string();
        assert!(refusal.contains("can be written by"), "{refusal}");
        let refusal = Candidate::open(Path::new("/nowhere/program")).unwrap_err().to_string();
        assert!(refusal.contains("/nowhere/program cannot be executed"), "{refusal}");
        assert!(Candidate::open(scratch.path().parent().unwrap()).is_err(), "a folder");
    }

    #[test]
    fn this_program_can_always_be_executed_again() {
        let own = Candidate::own().unwrap().file.metadata().unwrap().ino();
        assert_eq!(own, fs::metadata(std::env::current_exe().unwrap()).unwrap().ino());
    }
}
