// SPDX-License-Identifier: GPL-2.0-only

//! `procdb`: shows, exports and forgets the learned profiles of programs.

use super::cli::{ProcdbArguments, ProcdbCommand};
use super::procdb_file::{self, Forget, text};
use super::{output, process, programs};
use anyhow::Result;
use pandemonium_host::failure::Failure;
use pandemonium_host::preflight;
use pandemonium_rules::Users;

/// Executes the command.
pub fn run(arguments: &ProcdbArguments) -> Result<(), Failure> {
    let text = execute(arguments).map_err(Failure::internal)?;
    output::print(text.trim_end());
    Ok(())
}

fn execute(arguments: &ProcdbArguments) -> Result<String> {
    let path = programs::path(arguments.procdb.as_deref());
    let now = procdb_file::now();
    match &arguments.what {
        ProcdbCommand::Show => Ok(text::show(&procdb_file::read(&path, now)?, &Users::read(), now)),
        ProcdbCommand::Export => text::export(&procdb_file::read(&path, now)?),
        ProcdbCommand::Forget(which) => {
            let what = which.name.map_or(Forget::All, Forget::Name);
            let text = match procdb_file::forget(&path, now, what)? {
                0 => "nothing was known, nothing is forgotten".into(),
                1 => "1 program is forgotten".to_owned(),
                count => format!("{count} programs are forgotten"),
            };
            Ok(match preflight::is_running(&process::scheduler_name()) {
                true => text + "; the running scheduler still has this, and will save it again",
                false => text,
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

    /// What `procdb ARGS` prints.
    fn printed(scratch: &Scratch, args: &[&str]) -> String {
        let path = scratch.path();
        let options = parse(&[&["procdb", "--procdb", path.to_str().unwrap()], args].concat());
        match options.unwrap().command {
            Some(Command::Procdb(arguments)) => execute(&arguments).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn profiles_are_shown_exported_and_forgotten() {
        let scratch = Scratch::new();
        let known = |name, count| pandemonium_engine::procdb::Profile {
            last_seen: procdb_file::now(),
            ..known(name, count)
        };
        let names = [known("cc1", 5), known("ld", 5), known("make", 1)];
        procdb_file::save(&scratch.path(), procdb_file::now(), &names).unwrap();
        assert!(printed(&scratch, &["show"]).contains("3 names, 2 of them predicted"));
        assert!(printed(&scratch, &["export"]).contains("\"name\": \"cc1\""));
        assert_eq!(printed(&scratch, &["forget", "cc1"]), "1 program is forgotten");
        assert_eq!(
            printed(&scratch, &["forget", "cc1"]),
            "nothing was known, nothing is forgotten"
        );
        assert_eq!(printed(&scratch, &["forget", "--all"]), "2 programs are forgotten");
        assert!(printed(&scratch, &["show"]).contains("0 names"));
    }
}
