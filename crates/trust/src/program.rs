// SPDX-License-Identifier: GPL-2.0-only

//! Finds and executes programs. Root executes nothing that another user could have written.

use crate::{Refused, Trusted};
use anyhow::{Context, Result, anyhow};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that was found and may be executed. It is checked once and executed by the path that
/// was checked.
#[derive(Clone, Debug)]
pub struct Program {
    /// Where it is, for root without links.
    real: PathBuf,
    /// Where it was found.
    found: PathBuf,
    /// What it gets as PATH, for root.
    path: Option<OsString>,
}

impl Program {
    /// A program in PATH; `None` if it is in none of the folders that are searched.
    pub fn named(name: &str) -> Result<Option<Program>> {
        Program::in_path(name, Trusted::of_root())
    }

    /// A path, or a name that is searched in PATH.
    pub fn search(program: &Path) -> Result<Program> {
        let root = Trusted::of_root();
        let is_name = program.components().count() == 1;
        let Some(name) = program.to_str().filter(|_| is_name && !program.is_file()) else {
            return Program::checked(program, root);
        };
        Program::in_path(name, root)?.with_context(|| match root {
            Some(_) => format!("no {name} in those folders of PATH that only root can write to"),
            None => format!("no {name}"),
        })
    }

    fn in_path(name: &str, root: Option<Trusted>) -> Result<Option<Program>> {
        search(name, folders(root)).map(|found| Program::checked(&found, root)).transpose()
    }

    /// The program with this path. Fails if root must not execute it.
    fn checked(path: &Path, root: Option<Trusted>) -> Result<Program> {
        let real = match root {
            Some(root) => root.check("execute", path).map_err(|refused| match refused {
                Refused::Unopened(error) => anyhow::Error::new(error)
                    .context(format!("{} cannot be executed", path.display())),
                Refused::Distrusted(why) => anyhow!("{why}, or run it as that user"),
            })?,
            None => path.to_path_buf(),
        };
        // Without PATH the C library searches the system's folders.
        let folders = root.map(|_| std::env::join_paths(folders(root)).unwrap_or_default());
        Ok(Program { real, found: path.to_path_buf(), path: folders })
    }

    /// Where it is, for root without links.
    pub fn path(&self) -> &Path {
        &self.real
    }

    /// A command that executes it. What root executes gets those folders of PATH only that no other
    /// user can write to, because it may start further programs by their names.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.real);
        // Some programs are several, by the name of a link.
        command.arg0(&self.found);
        if let Some(path) = &self.path {
            match path.is_empty() {
                true => command.env_remove("PATH"),
                false => command.env("PATH", path),
            };
        }
        command
    }
}

/// Finds a program in the folder `first`, else in the folders of PATH.
pub fn find(name: &str, first: &Path) -> Option<PathBuf> {
    let folders = folders(Trusted::of_root());
    search(name, std::iter::once(first.to_path_buf()).chain(folders))
}

/// A command that executes this program: a path, or a name that is searched in PATH.
pub fn command(program: &Path) -> Result<Command> {
    Ok(Program::search(program)?.command())
}

fn search(name: &str, folders: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The folders of PATH in which programs are searched.
fn folders(root: Option<Trusted>) -> Vec<PathBuf> {
    trusted_folders(&std::env::var_os("PATH").unwrap_or_default(), root)
}

/// The folders of such a text. Root leaves out those that another user can write to.
fn trusted_folders(path: &OsStr, root: Option<Trusted>) -> Vec<PathBuf> {
    let folders = std::env::split_paths(path);
    let Some(root) = root else { return folders.collect() };
    let absolute = folders.filter(|folder| folder.is_absolute());
    let trusted = absolute.filter_map(|folder| root.real_path(&folder).ok());
    // PATH cannot name a folder with a colon.
    trusted.filter(|folder| !folder.as_os_str().as_encoded_bytes().contains(&b':')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Scratch, is_root};

    /// Executed by a link: a script that was written a moment ago may still be open elsewhere.
    fn link(scratch: &Scratch, program: &str) -> PathBuf {
        let link = scratch.0.join("link");
        std::os::unix::fs::symlink(program, &link).unwrap();
        link
    }

    #[test]
    fn root_executes_no_program_of_another_user() {
        let scratch = Scratch::new("command");
        let run = |program: &Path| command(program).map(|mut command| command.status().unwrap());
        assert!(run(&link(&scratch, "/bin/true")).unwrap().success());
        if !is_root() {
            return;
        }
        let program = scratch.script("program");
        scratch.give_away("program");
        let refusal = run(&program).unwrap_err().to_string();
        assert!(refusal.contains("belongs to user 4711; let root own both"), "{refusal}");
        assert!(refusal.ends_with("or run it as that user"), "{refusal}");
        let missing = format!("{:#}", run(Path::new("/nowhere/program")).unwrap_err());
        assert!(missing.starts_with("/nowhere/program cannot be executed: "), "{missing}");
    }

    #[test]
    fn a_program_is_executed_by_the_path_that_was_checked_and_knows_its_name() {
        let scratch = Scratch::new("name");
        let link = link(&scratch, "program");
        let program = scratch.script("program");
        let trusted = Trusted { user: Some(scratch.owner()), group: None };
        let checked = Program::checked(&link, Some(trusted)).unwrap();
        assert_eq!(checked.path(), program.canonicalize().unwrap());
        assert_eq!(checked.found, link);
        let any = Program::checked(&link, None).unwrap();
        assert_eq!(any.path(), link, "a user other than root may execute anything");
    }

    #[test]
    fn root_searches_only_folders_that_no_other_user_can_write_to() {
        let scratch = Scratch::new("folders");
        scratch.script("program");
        let own = scratch.0.canonicalize().unwrap();
        let path = std::env::join_paths([&own, Path::new("relative"), Path::new("/")]).unwrap();
        let trusted = Trusted { user: Some(scratch.owner()), group: None };
        let of = |root| trusted_folders(&path, root);
        assert_eq!(of(None).len(), 3);
        assert_eq!(of(Some(trusted)), [own.clone(), "/".into()]);
        for mode in [0o757, 0o1757] {
            scratch.mode("", mode);
            assert_eq!(of(Some(trusted)), [PathBuf::from("/")], "{mode:o}");
            assert_eq!(search("program", of(Some(trusted))), None);
            assert_eq!(search("program", of(None)), Some(own.join("program")));
        }
    }

    #[test]
    fn what_root_executes_gets_the_folders_that_root_searches() {
        let path = |root| {
            let program = Program::checked(Path::new("/usr/bin/env"), root).unwrap();
            let text = String::from_utf8(program.command().output().unwrap().stdout).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("PATH=")).unwrap();
            std::env::split_paths(line).collect::<Vec<_>>()
        };
        let whole = std::env::var_os("PATH").unwrap();
        assert_eq!(path(None), std::env::split_paths(&whole).collect::<Vec<_>>());
        let root = Some(Trusted { user: None, group: None });
        assert_eq!(path(root), folders(root));
    }
}
