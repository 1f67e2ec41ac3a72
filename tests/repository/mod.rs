// SPDX-License-Identifier: GPL-2.0-only

//! The files of the repository, and rules about them.
//!
//! A rule is a function from a tree of files to complaints. [`check`] applies it to trees with and
//! without an offence, because a rule that never complains proves nothing, and then to the
//! repository: the files that git tracks or would track, as they are in the work tree.

use std::fs;
use std::path::Path;
use std::process::Command;

pub struct Tree {
    pub files: Vec<File>,
}

pub struct File {
    /// From the root of the repository, with slashes.
    pub path: String,
    pub text: String,
}

pub type Rule = fn(&Tree) -> Vec<String>;
/// Paths and texts.
pub type Files<'a> = &'a [(&'a str, &'a str)];

/// The rule complains about each of the offending trees, not about the fine one, and not about the
/// repository.
#[track_caller]
pub fn check(rule: Rule, offending: &[Files], fine: Files) {
    for files in offending {
        let paths: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
        assert!(!rule(&Tree::of(files)).is_empty(), "no complaint about {paths:?}");
    }
    assert_eq!(rule(&Tree::of(fine)), Vec::<String>::new(), "about a fine tree");
    let complaints = rule(&Tree::repository());
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// Applies the rule to each line of the files.
pub fn complain_of_lines<'a>(
    files: impl Iterator<Item = &'a File>,
    rule: impl Fn(&File, &str) -> Option<String>,
) -> Vec<String> {
    let lines = files.flat_map(|file| (1..).zip(file.text.lines()).map(move |line| (file, line)));
    lines
        .filter_map(|(file, (number, line))| {
            rule(file, line).map(|what| format!("{}:{number}: {what}", file.path))
        })
        .collect()
}

impl Tree {
    fn of(files: Files) -> Tree {
        let file = |&(path, text): &(&str, &str)| File::new(path, text.into());
        Tree { files: files.iter().map(file).collect() }
    }

    fn repository() -> Tree {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut git = Command::new("git");
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = git.current_dir(root).output().expect("git runs");
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        let paths = String::from_utf8(listed.stdout).expect("paths are UTF-8");
        // A tracked file that does not exist is about to be removed.
        let read = |path: &str| Some(File::new(path, fs::read(root.join(path)).ok()?));
        let tree = Tree { files: paths.split_terminator('\0').filter_map(read).collect() };
        assert!(tree.file("src/lib.rs").is_some(), "{} is not the repository", root.display());
        tree
    }

    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl File {
    fn new(path: &str, bytes: Vec<u8>) -> File {
        File { path: path.into(), text: String::from_utf8_lossy(&bytes).into_owned() }
    }

    pub fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}
