// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_lab new`: a crate with a policy of one's own, its scheduler and its lab.

use crate::cli::NewArgs;
use anyhow::{Context, Result, bail, ensure};
use pandemonium_print::print;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The name that the template has, as a crate and as a type.
const TEMPLATE: (&str, &str) = ("shortest", "Shortest");
/// Files of the crate, and what they hold.
const FILES: [(&str, &str); 7] = [
    ("Cargo.toml", include_str!("../template/Cargo.toml.in")),
    ("src/lib.rs", include_str!("../template/src/lib.rs")),
    ("src/main.rs", include_str!("../template/src/main.rs")),
    ("src/bin/lab.rs", include_str!("../template/src/bin/lab.rs")),
    ("tests/swarm.rs", include_str!("../template/tests/swarm.rs")),
    (".github/workflows/ci.yml", include_str!("../template/ci/ci.yml")),
    ("README.md", include_str!("../template/README.md")),
];
/// Longest name of a policy: the kernel keeps 15 bytes of a program's name.
const NAME_MAX: usize = 15;

/// Writes the crate.
pub fn run(args: &NewArgs) -> Result<ExitCode> {
    check(&args.name)?;
    let folder = args.dir.clone().unwrap_or_else(|| PathBuf::from(&args.name));
    let occupied = fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
    ensure!(!occupied, "{} is not empty: choose another folder with --dir", folder.display());
    let source = args.source.as_deref().map(absolute).transpose()?;
    for (file, text) in FILES {
        let path = folder.join(file);
        let parent = path.parent().context("every file lies in the folder")?;
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
        let text = fill(text, &args.name, source.as_deref());
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    print(&format!("{} is a policy of your own: src/lib.rs is all of it. Next:", folder.display()));
    print(&format!("  cd {}", folder.display()));
    print(&format!("  cargo run --release --bin {}_lab -- run wake -p {0},vruntime", args.name));
    Ok(ExitCode::SUCCESS)
}

/// A name that is a crate, a type and a word on a command line.
fn check(name: &str) -> Result<()> {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !begins || !name.chars().all(letters) || name.len() > NAME_MAX {
        bail!(
            "{name:?} is no name for a policy: up to {NAME_MAX} lower-case letters, digits and _, \
             a letter first"
        );
    }
    ensure!(
        pandemonium_policies::BUILT_IN.iter().all(|info| info.name != name),
        "there is a policy {name} already: choose another name"
    );
    Ok(())
}

fn absolute(folder: &Path) -> Result<PathBuf> {
    let found = folder.canonicalize().with_context(|| format!("--source {}", folder.display()))?;
    ensure!(
        found.join("crates/engine/Cargo.toml").is_file(),
        "--source {} is no checkout of scx_pandemonium_user",
        folder.display()
    );
    Ok(found)
}

/// The text of a file with the names and places filled in.
fn fill(text: &str, name: &str, source: Option<&Path>) -> String {
    let kind: String = name.split('_').map(capitalised).collect();
    let mut text = text.replace(TEMPLATE.1, &kind).replace(TEMPLATE.0, name);
    for (part, folder) in [("engine", "crates/engine"), ("lab", "crates/lab"), (".", ".")] {
        let place = match source {
            Some(source) => format!("path = {:?}", source.join(folder).display().to_string()),
            None => format!("version = {:?}", env!("CARGO_PKG_VERSION")),
        };
        text = text.replace(&format!("SOURCE({part})"), &place);
    }
    text
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_crate_a_type_and_a_word() {
        assert!(check("round_robin2").is_ok());
        for name in ["", "2fast", "Fast", "a-b", "a_name_that_is_too_long", "fifo", "a b"] {
            assert!(check(name).is_err(), "{name}");
        }
    }

    #[test]
    fn every_file_bears_the_name_that_was_chosen() {
        for (file, text) in FILES {
            let filled = fill(text, "round_robin", None);
            assert!(filled.contains("round_robin"), "{file}");
            for left in ["SOURCE", "shortest", "Shortest"] {
                assert!(!filled.contains(left), "{file} still says {left}");
            }
        }
        let manifest = fill(FILES[0].1, "round_robin", Some(Path::new("/repo")));
        assert!(manifest.contains("pandemonium_engine = { path = \"/repo/crates/engine\" }"));
        let policy = fill(FILES[1].1, "round_robin", None);
        assert!(policy.contains("pub struct RoundRobin {"), "{policy}");
    }

    /// At most 60 lines of policy and 20 beside it.
    #[test]
    fn a_policy_of_one_s_own_is_short() {
        let lines = |text: &str| {
            let code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
            text.lines().filter(code).count()
        };
        assert!(lines(FILES[1].1) <= 60, "{} lines", lines(FILES[1].1));
        let beside: usize = FILES[2..5].iter().map(|(_, text)| lines(text)).sum();
        assert!(beside <= 20, "{beside} lines");
    }
}
