// SPDX-License-Identifier: GPL-2.0-only

//! Checks of the repository that neither the compiler nor clippy makes: line width, licence lines,
//! names of machines, sizes, and files that nothing uses.

mod repository;

use repository::{File, Tree, check, complain_of_lines};
use std::collections::BTreeSet;

const MODULE_LINES_MAX: usize = 500;
/// Without comments and empty lines: a `main.rs` calls its library.
const MAIN_LINES_MAX: usize = 15;
const COLUMNS_MAX: usize = 100;
const FILE_BYTES_MAX: usize = 512 * 1024;
const FOLDERS: [&str; 3] = ["/work/", "/root/", "/home/"];
const HOSTS: [&str; 3] = ["static.crates.io", "index.crates.io", "deb.debian.org"];
const LICENCE: &str = "SPDX-License-Identifier: GPL-2.0-only";
/// Its files become files of a user's own project, under a licence of the user's choice.
const TEMPLATE: &str = "crates/lab/template/";

// ---- The rules --------------------------------------------------------------------------------

fn wide_lines(tree: &Tree) -> Vec<String> {
    let sources = tree.files.iter().filter(|file| file.is_source() && !file.is_script());
    complain_of_lines(sources, |_, line| {
        let columns = line.chars().count();
        (columns > COLUMNS_MAX).then(|| format!("has {columns} columns"))
    })
}

/// A source begins with the licence line, after the line that names a script's shell.
fn missing_licence(tree: &Tree) -> Vec<String> {
    let own = |file: &File| file.is_source() && !file.path.starts_with(TEMPLATE);
    complain_of_files(tree, |file| {
        let mut lines = file.text.lines().skip_while(|line| line.starts_with("#!/"));
        let licensed = lines.next().is_some_and(|line| line.contains(LICENCE));
        (own(file) && !licensed).then(|| "has no licence line".into())
    })
}

/// Folders and hosts of one developer's machine mean nothing on another.
fn machine_names(tree: &Tree) -> Vec<String> {
    let exempt = ["Cargo.lock", "tests/tidy.rs"];
    let files = tree.files.iter().filter(|file| !exempt.contains(&&*file.path));
    complain_of_lines(files, |_, line| {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && !"/.-_".contains(c));
        let is_host = |word: &str| HOSTS.iter().any(|host| word.contains(host));
        let is_folder = |word: &str| FOLDERS.iter().any(|folder| word.starts_with(folder));
        words.find(|word| is_host(word) || is_folder(word)).map(|word| format!("names {word}"))
    })
}

fn long_modules(tree: &Tree) -> Vec<String> {
    let is_code = |line: &&&str| !line.is_empty() && !line.trim_start().starts_with("//");
    complain_of_files(tree, |file| {
        let lines = file.lines_without_tests();
        let (lines, max) = match file.name() {
            "main.rs" => (lines.iter().filter(is_code).count(), MAIN_LINES_MAX),
            _ => (lines.len(), MODULE_LINES_MAX),
        };
        let is_module = file.is_rust() || file.is_bpf();
        let is_long = is_module && !file.is_test() && lines > max;
        is_long.then(|| format!("has {lines} lines, the limit is {max}"))
    })
}

/// No `mod` leads to the file, so it is not compiled and a test in it never runs. A C file is used
/// if another source names it.
fn dead_files(tree: &Tree) -> Vec<String> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&File> = tree.files.iter().filter(|file| file.is_root()).collect();
    while let Some(file) = open.pop() {
        if reached.insert(&*file.path) {
            open.extend(file.children().iter().filter_map(|path| tree.file(path)));
        }
    }
    let is_named = |c: &File| {
        let name = c.name().to_owned() + "\"";
        let mut others = tree.files.iter().filter(|it| it.is_source() && it.path != c.path);
        others.any(|file| file.text.contains(&name))
    };
    complain_of_files(tree, |file| {
        let is_used = match file.is_rust() {
            true => reached.contains(&*file.path),
            false => !file.is_source() || file.is_script() || is_named(file),
        };
        (!is_used).then(|| "is used by no crate".into())
    })
}

fn big_files(tree: &Tree) -> Vec<String> {
    complain_of_files(tree, |file| {
        (file.text.len() > FILE_BYTES_MAX).then(|| format!("has {} bytes", file.text.len()))
    })
}

// ---- The tests --------------------------------------------------------------------------------

#[test]
fn lines_have_at_most_100_columns() {
    let (fits, wide) = ("ü".repeat(COLUMNS_MAX), "x".repeat(COLUMNS_MAX + 1));
    check(wide_lines, &[&[("a.rs", &wide)]], &[("a.h", &fits), ("a.md", &wide)]);
}

#[test]
fn sources_begin_with_the_licence_line() {
    let (rust, script) = (format!("// {LICENCE}\n"), format!("#!/bin/sh\n# {LICENCE}\n"));
    let (late, template) = (format!("//! Text\n{rust}"), format!("{TEMPLATE}src/main.rs"));
    check(
        missing_licence,
        &[&[("a.rs", &late)], &[("src/a.h", "")], &[(".ci/run", "#!/bin/sh\n")]],
        &[("a.rs", &rust), (".ci/run", &script), ("a.md", ""), (&template, "")],
    );
}

#[test]
fn no_machine_is_named() {
    let host = "http://index.crates.io/x";
    check(
        machine_names,
        &[&[("a.md", "(/home/me)")], &[("a.toml", host)]],
        &[("a.md", "/sys/home/x"), ("Cargo.lock", host)],
    );
}

#[test]
fn modules_are_short() {
    let (full, main) = ("f();\n".repeat(MODULE_LINES_MAX), "f();\n".repeat(MAIN_LINES_MAX));
    let tests = "#[cfg(test)]\nmod tests {\n    f();\n}\n";
    check(
        long_modules,
        &[
            &[("src/a.rs", &format!("{tests}{full}f();\n"))],
            &[("crates/a/src/main.rs", &format!("{main}f();\n"))],
            &[("src/bpf/a.bpf.c", &format!("{full}f();\n"))],
            &[("src/bpf/patches/a.h", &format!("{full}f();\n"))],
        ],
        &[
            ("src/a.rs", &format!("{full}{tests}")),
            ("src/main.rs", &format!("//! Text\n\n{main}")),
            ("crates/a/tests/b.rs", &format!("{full}f();\n")),
            ("src/bpf/a.h", &full),
        ],
    );
}

#[test]
fn every_source_is_used() {
    let lib = ("x/src/lib.rs", "pub mod a;\n// mod c;\n");
    check(
        dead_files,
        &[
            &[lib, ("x/src/c.rs", "")],
            &[lib, ("x/src/a/mod.rs", ""), ("x/src/a/b.rs", "")],
            &[("x/tests/y/main.rs", "mod y;"), ("x/tests/y/z.rs", "")],
            &[("x/build.rs", "// a.h"), ("x/src/a.h", "")],
        ],
        &[
            lib,
            ("x/src/a/mod.rs", "mod b;\n#[cfg(test)]\nmod d;"),
            ("x/src/a/b.rs", "pub(crate) mod c;"),
            ("x/src/a/b/c.rs", ""),
            ("x/src/a/d.rs", ""),
            ("x/tests/y/main.rs", "mod z;"),
            ("x/tests/y/z.rs", ""),
            ("build.rs", "// \"src/b.h\""),
            ("src/b.h", ""),
        ],
    );
}

#[test]
fn no_file_is_big() {
    let big = "x".repeat(FILE_BYTES_MAX + 1);
    check(big_files, &[&[("docs/a.svg", &big)]], &[("docs/a.svg", &big[1..])]);
}

// ---- What a file is ---------------------------------------------------------------------------

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it is C for the kernel.
    fn is_bpf(&self) -> bool {
        self.path.starts_with("src/bpf/") && self.is_source()
    }

    fn is_script(&self) -> bool {
        self.text.starts_with("#!/")
    }

    fn is_source(&self) -> bool {
        self.is_rust() || self.path.ends_with(".c") || self.path.ends_with(".h") || self.is_script()
    }

    fn is_test(&self) -> bool {
        self.path.split('/').any(|part| ["tests", "benches"].contains(&part))
    }

    /// The lines outside of items under `#[cfg(test)]`. Such an item ends, in rustfmt's style, with
    /// a line that is indented like its first one.
    fn lines_without_tests(&self) -> Vec<&str> {
        let mut lines = self.text.lines();
        let mut kept = Vec::new();
        while let Some(line) = lines.next() {
            let Some(indent) = line.strip_suffix("#[cfg(test)]") else {
                kept.push(line);
                continue;
            };
            let is_outer = |line: &str| !line.starts_with([' ', '#']) && line.ends_with([';', '}']);
            lines.find(|line| line.strip_prefix(indent).is_some_and(is_outer));
        }
        kept
    }

    /// Whether cargo compiles this file without a `mod` that leads to it.
    fn is_root(&self) -> bool {
        let folders = ["src", "tests", "benches", "fuzz_targets"];
        let parts = self.path.split('/').skip_while(|part| !folders.contains(part));
        match parts.collect::<Vec<_>>()[..] {
            ["src", ref rest @ ..] => {
                matches!(rest, ["lib.rs" | "main.rs"] | ["bin", _] | ["bin", _, "main.rs"])
            }
            [_, _] | [_, _, "main.rs"] => true,
            _ => self.name() == "build.rs",
        }
    }

    /// The paths to which the `mod` lines of this file may lead.
    fn children(&self) -> Vec<String> {
        let at_root = self.is_root() || self.name() == "mod.rs";
        let folder = if at_root { self.folder() } else { self.path.trim_end_matches(".rs") };
        let modules = self.text.lines().filter_map(|line| {
            let words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
            let ["mod", name] = words.collect::<Vec<_>>()[..] else { return None };
            name.strip_suffix(';')
        });
        let paths = |name| [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
        modules.flat_map(paths).collect()
    }
}

fn complain_of_files(tree: &Tree, rule: impl Fn(&File) -> Option<String>) -> Vec<String> {
    let complain = |file: &File| rule(file).map(|what| format!("{}: {what}", file.path));
    tree.files.iter().filter_map(complain).collect()
}
