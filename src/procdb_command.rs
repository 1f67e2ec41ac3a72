// SPDX-License-Identifier: GPL-2.0-only

//! `procdb`: what was learned of programs, for people to see and to forget.

use super::cli::{ProcdbArguments, ProcdbCommand};
use super::procdb_file::{self, Forget, text};
use super::{programs, telemetry};
use anyhow::Result;
use pandemonium_host::failure::Failure;
use pandemonium_host::preflight;

/// Does what the command line asks for.
pub fn run(arguments: &ProcdbArguments) -> Result<(), Failure> {
    let said = obey(arguments).map_err(Failure::internal)?;
    telemetry::print(said.trim_end());
    Ok(())
}

fn obey(arguments: &ProcdbArguments) -> Result<String> {
    let path = programs::path(arguments.procdb.as_deref());
    let now = procdb_file::now();
    match &arguments.what {
        ProcdbCommand::Show => Ok(text::show(&procdb_file::read(&path, now)?, now)),
        ProcdbCommand::Export => text::export(&procdb_file::read(&path, now)?),
        ProcdbCommand::Forget(which) => {
            let what = which.name.map_or(Forget::All, Forget::Name);
            let said = match procdb_file::forget(&path, now, what)? {
                0 => "nothing was known, nothing is forgotten".into(),
                1 => "1 program is forgotten".to_owned(),
                count => format!("{count} programs are forgotten"),
            };
            Ok(match preflight::is_running() {
                true => said + "; the scheduler that runs still knows, and will save it again",
                false => said,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;
    use crate::cli::tests::parse;
    use crate::procdb_file::tests::Scratch;
    use crate::procdb_file::text::tests::known;

    /// What `procdb ARGS` says about a file with two names.
    fn said(scratch: &Scratch, args: &[&str]) -> String {
        let path = scratch.path();
        let options = parse(&[&["procdb", "--procdb", path.to_str().unwrap()], args].concat());
        match options.unwrap().command {
            Some(Command::Procdb(arguments)) => obey(&arguments).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_are_shown_exported_and_forgotten() {
        let scratch = Scratch::new();
        let known = |name, count| pandemonium_engine::procdb::Profile {
            last_seen: procdb_file::now(),
            ..known(name, count)
        };
        let names = [known("cc1", 5), known("ld", 5), known("make", 1)];
        procdb_file::save(&scratch.path(), procdb_file::now(), &names).unwrap();
        assert!(said(&scratch, &["show"]).contains("3 names, 2 of them predicted"));
        assert!(said(&scratch, &["export"]).contains("\"name\": \"cc1\""));
        assert_eq!(said(&scratch, &["forget", "cc1"]), "1 program is forgotten");
        assert_eq!(said(&scratch, &["forget", "cc1"]), "nothing was known, nothing is forgotten");
        assert_eq!(said(&scratch, &["forget", "--all"]), "2 programs are forgotten");
        assert!(said(&scratch, &["show"]).contains("0 names"));
    }
}
