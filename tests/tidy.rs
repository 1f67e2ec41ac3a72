// SPDX-License-Identifier: GPL-2.0-only

//! Guards what the compiler cannot: the brain's independence, sizes, licences, leftovers, links.
//!
//! A rule is a function from a tree of files to complaints. Every test shows its rule trees that
//! offend and trees that do not, because a rule that cannot complain guards nothing, and then the
//! repository. What counts are the files that git tracks, as they lie in the work tree.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const FUNCTION_LINES_MAX: usize = 70;
const MODULE_LINES_MAX: usize = 500;
const MAIN_LINES_MAX: usize = 80;
const COLUMNS_MAX: usize = 100;
const FILE_BYTES_MAX: usize = 512 * 1024;
const LICENCE: &str = "SPDX-License-Identifier: GPL-2.0-only";

// ---- The rules --------------------------------------------------------------------------------

/// The brain names `core`, `alloc` and itself. Neither `std` nor any dependency is mentioned, and
/// a `use` begins with one of the former or with a module of the same file.
fn brain_names_foreign_crates(tree: &Tree) -> Vec<String> {
    let dependencies = tree.dependencies();
    let mut complaints = Vec::new();
    for file in tree.brain() {
        let code = file.code_without_tests();
        let words = words(&code);
        let follows = |at: usize, word: &str| at > 0 && words[at - 1].text == word;
        let own: BTreeSet<&str> = ["core", "alloc", "crate", "super", "self"]
            .into_iter()
            .chain((1..words.len()).filter(|&at| follows(at, "mod")).map(|at| words[at].text))
            .collect();
        for (at, word) in words.iter().enumerate() {
            let is_path = word.rest.starts_with("::");
            let foreign = word.text == "std" || dependencies.contains(word.text);
            let used =
                follows(at, "use") || follows(at, "crate") && at > 1 && follows(at - 1, "extern");
            if foreign && (is_path || used) || used && !own.contains(word.text) {
                complaints.push(file.complain(word.line, &format!("names {}", word.text)));
            }
        }
    }
    complaints
}

/// The compiler refuses unsafe code in the brain as long as `lib.rs` says so; its tests too.
fn brain_is_unsafe(tree: &Tree) -> Vec<String> {
    named_words(tree.brain(), &["unsafe"])
}

/// The two lines on which the independence of the brain rests.
fn library_lacks_its_attributes(tree: &Tree) -> Vec<String> {
    let Some(lib) = tree.file("src/lib.rs") else { return vec!["src/lib.rs is missing".into()] };
    let code = lib.code();
    let lacks = |attribute: &&str| !code.lines().any(|line| line.trim() == *attribute);
    let missing = ["#![no_std]", "#![forbid(unsafe_code)]"].into_iter().filter(lacks);
    missing.map(|attribute| lib.complain(1, &format!("lacks {attribute}"))).collect()
}

/// Integers give equal decisions on every machine.
fn brain_floats(tree: &Tree) -> Vec<String> {
    named_words(tree.brain(), &["f32", "f64"])
}

/// Their order differs from run to run.
fn brain_hashes(tree: &Tree) -> Vec<String> {
    named_words(tree.brain(), &["HashMap", "HashSet"])
}

/// What the build generates from BPF appears in one module; the rest speaks our own types. Only
/// the crate's root passes two modules on, because there the generated code looks for them.
fn generated_names_leak(tree: &Tree) -> Vec<String> {
    let home = ["src/driver/backend.rs", "build.rs"];
    let elsewhere = tree.rust().filter(|file| !home.contains(&file.path.as_str()));
    let (root, others): (Vec<&File>, Vec<&File>) =
        elsewhere.partition(|file| file.path == "src/main.rs");
    let (modules, types) = (["bpf_skel", "bpf_intf"], ["BpfScheduler", "BpfSkel"]);
    let mut complaints = named_words(others.iter().copied(), &modules);
    complaints.extend(named_words(others.into_iter().chain(root), &types));
    complaints
}

/// Notes to oneself, and tests that are switched off.
fn leftovers(tree: &Tree) -> Vec<String> {
    let macros = ["todo", "dbg", "unimplemented"];
    let mut complaints = Vec::new();
    for file in tree.rust() {
        let code = file.code();
        for (at, word) in words(&code).into_iter().enumerate() {
            let is_macro = macros.contains(&word.text) && word.rest.starts_with('!');
            let is_ignored = word.text == "ignore" && at > 0 && word.before.ends_with("#[");
            if is_macro || is_ignored {
                complaints.push(file.complain(word.line, &format!("{} is left over", word.text)));
            }
        }
    }
    complaints
}

/// A program that schedules everybody says what it expects before it gives up.
fn unwraps(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in tree.rust().filter(|file| !file.is_test()) {
        let code = file.code_without_tests();
        for word in words(&code).iter().filter(|word| word.text == "unwrap") {
            if word.before.ends_with('.') && word.rest.starts_with("()") {
                complaints.push(file.complain(word.line, "unwraps outside tests"));
            }
        }
    }
    complaints
}

/// A function fits a screen, in tests as well.
fn long_functions(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in tree.rust() {
        let code = file.code();
        for (line, name, lines) in functions(&code) {
            if lines > FUNCTION_LINES_MAX {
                complaints.push(file.complain(line, &format!("{name} has {lines} lines")));
            }
        }
    }
    complaints
}

/// A module fits a mind. Files exceed this only by tests.
fn long_modules(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in tree.rust().filter(|file| !file.is_test()) {
        let max = if file.path == "src/main.rs" { MAIN_LINES_MAX } else { MODULE_LINES_MAX };
        let code = file.code();
        let tests: usize = test_parts(&code).iter().map(|&(from, to)| lines(&code[from..to])).sum();
        let lines = file.text.lines().count() - tests;
        if lines > max {
            complaints.push(file.complain(1, &format!("has {lines} lines without tests")));
        }
    }
    complaints
}

fn wide_lines(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in tree.files.iter().filter(|file| file.ends_with(&[".rs", ".c", ".h", ".sh"])) {
        for (index, line) in file.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX {
                complaints.push(file.complain(index + 1, &format!("has {columns} columns")));
            }
        }
    }
    complaints
}

/// The licence is the first thing said, after the line that names a script's shell.
fn licence_is_missing(tree: &Tree) -> Vec<String> {
    let sources = tree.files.iter().filter(|file| file.ends_with(&[".rs", ".c", ".h", ".sh"]));
    let licensed = |file: &&File| {
        let mut lines = file.text.lines().skip_while(|line| line.starts_with("#!/"));
        lines.next().is_some_and(|line| line.contains(LICENCE))
    };
    sources.filter(|file| !licensed(file)).map(|file| file.complain(1, "says no licence")).collect()
}

/// Paths and hosts of the machine somebody happened to work on mean nothing on another.
fn machine_is_named(tree: &Tree) -> Vec<String> {
    let folders = ["work", "root", "home"].map(|folder| format!("/{folder}/"));
    let hosts = [("static", "crates.io"), ("index", "crates.io"), ("deb", "debian.org")];
    let hosts = hosts.map(|(host, domain)| format!("{host}.{domain}"));
    let mut complaints = Vec::new();
    for file in tree.files.iter().filter(|file| file.path != "Cargo.lock") {
        for (index, line) in file.text.lines().enumerate() {
            // Where a path goes on, the folder is one of another tree, like that of sysfs.
            let begins = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric());
            let starts_at =
                |folder: &&String| line.match_indices(*folder).any(|(at, _)| begins(at));
            let named = |host: &&String| line.contains(*host);
            let found = folders.iter().find(starts_at).or_else(|| hosts.iter().find(named));
            if let Some(name) = found {
                complaints.push(file.complain(index + 1, &format!("names {name}")));
            }
        }
    }
    complaints
}

/// A file that no `mod` leads to is compiled by nobody, and a test in it never runs.
fn dead_files(tree: &Tree) -> Vec<String> {
    let mut reached: BTreeSet<String> = BTreeSet::new();
    let mut open: Vec<&File> = tree.rust().filter(|file| file.is_root()).collect();
    while let Some(file) = open.pop() {
        if reached.insert(file.path.clone()) {
            open.extend(file.children().iter().filter_map(|path| tree.file(path)));
        }
    }
    let dead = tree.rust().filter(|file| !reached.contains(&file.path));
    dead.map(|file| file.complain(1, "belongs to no crate")).collect()
}

/// A link inside the repository leads somewhere.
fn broken_links(tree: &Tree) -> Vec<String> {
    let is_document = |file: &&File| {
        file.path == "README.md" || file.path.starts_with("docs/") && file.ends_with(&[".md"])
    };
    let mut complaints = Vec::new();
    for file in tree.files.iter().filter(is_document) {
        for (index, line) in file.text.lines().enumerate() {
            for (_, link) in line.match_indices("](").map(|(at, _)| line.split_at(at + 2)) {
                let target = link.split([')', '#', ' ']).next().unwrap_or_default();
                if target.is_empty() || target.contains(':') {
                    continue;
                }
                if !tree.has(&resolve(&file.path, target)) {
                    complaints.push(file.complain(index + 1, &format!("{target} is not there")));
                }
            }
        }
    }
    complaints
}

fn big_files(tree: &Tree) -> Vec<String> {
    let big = tree.files.iter().filter(|file| file.bytes > FILE_BYTES_MAX);
    big.map(|file| file.complain(1, &format!("has {} bytes", file.bytes))).collect()
}

// ---- The tests --------------------------------------------------------------------------------

const SPDX: &str = "// SPDX-License-Identifier: GPL-2.0-only\n";

/// The rule complains about each of the offending trees, about none of the fine ones, and not
/// about the repository.
#[track_caller]
fn guard(rule: fn(&Tree) -> Vec<String>, offending: &[&[(&str, &str)]], fine: &[&[(&str, &str)]]) {
    for files in offending {
        assert!(!rule(&Tree::of(files)).is_empty(), "no complaint about {files:?}");
    }
    for files in fine {
        assert_eq!(rule(&Tree::of(files)), Vec::<String>::new(), "about {files:?}");
    }
    let complaints = rule(&Tree::tracked());
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn the_brain_names_no_foreign_crate() {
    let cargo =
        ("Cargo.toml", "[dependencies]\nlibbpf-rs = \"1\"\n[dev-dependencies]\nprop = \"1\"\n");
    guard(
        brain_names_foreign_crates,
        &[
            &[("src/a.rs", "use std::fs;")],
            &[("src/a.rs", "extern crate std;")],
            &[("src/a.rs", "fn f() { std::process::exit(1) }")],
            &[("src/a/b.rs", "use serde::Serialize;")],
            &[cargo, ("src/a.rs", "fn f() { libbpf_rs::f() }")],
            &[cargo, ("src/a.rs", "fn f() { prop::f() }")],
        ],
        &[
            &[("src/a.rs", "//! use std::fs;\nuse core::fmt;\npub use crate::b;")],
            &[("src/a.rs", "mod b;\npub use b::C;\nextern crate alloc;")],
            &[("src/a.rs", "const S: &str = \"use std::fs\";")],
            &[cargo, ("src/a.rs", "#[cfg(test)]\nmod tests { use prop::x; use std::fs; }")],
            &[("src/main.rs", "use std::fs;"), ("src/driver/x.rs", "use libc::c_int;")],
            &[("src/bench/x.rs", "use std::fs;")],
        ],
    );
}

#[test]
fn the_brain_is_safe() {
    guard(
        brain_is_unsafe,
        &[&[("src/a.rs", "fn f() { unsafe { g() } }")]],
        &[&[("src/a.rs", "// unsafe\n")], &[("src/driver/a.rs", "unsafe fn f() {}")]],
    );
}

#[test]
fn the_library_says_what_it_is() {
    guard(
        library_lacks_its_attributes,
        &[&[], &[("src/lib.rs", "#![no_std]")], &[("src/lib.rs", "// #![forbid(unsafe_code)]")]],
        &[&[("src/lib.rs", "#![no_std]\n#![forbid(unsafe_code)]\n")]],
    );
}

#[test]
fn the_brain_counts_in_integers() {
    guard(
        brain_floats,
        &[&[("src/a.rs", "fn f(x: f64) {}")], &[("src/a.rs", "const X: u8 = 1f32 as u8;")]],
        &[&[("src/a.rs", "// f64\n")], &[("src/bin/a.rs", "fn f(x: f64) {}")]],
    );
}

#[test]
fn the_brain_has_no_hash_order() {
    guard(
        brain_hashes,
        &[&[("src/a.rs", "fn f(x: HashMap<u8, u8>) {}")], &[("src/a.rs", "type S = HashSet<u8>;")]],
        &[&[("src/a.rs", "fn f(x: BTreeMap<u8, u8>) {}")]],
    );
}

#[test]
fn generated_names_stay_in_one_module() {
    let passed_on = ("src/main.rs", "use driver::backend::{bpf_intf, bpf_skel};");
    guard(
        generated_names_leak,
        &[
            &[("src/driver/worker.rs", "fn f(b: BpfScheduler) {}")],
            &[("tests/a.rs", "bpf_intf::X")],
            &[passed_on, ("src/main.rs", "fn f(b: BpfSkel) {}")],
        ],
        &[&[
            passed_on,
            ("src/driver/backend.rs", "mod bpf_skel;"),
            ("src/driver/a.rs", "// BpfSkel"),
        ]],
    );
}

#[test]
fn nothing_is_left_over() {
    guard(
        leftovers,
        &[
            &[("src/a.rs", "fn f() { todo!() }")],
            &[("src/a.rs", "fn f() { dbg!(1); }")],
            &[("tests/a.rs", "fn f() { unimplemented!(\"later\") }")],
            &[("tests/a.rs", "#[test]\n#[ignore]\nfn f() {}")],
            &[("tests/a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}")],
        ],
        &[&[("src/a.rs", "// todo!\nfn f() { todo(); ignore(x[0]) }")]],
    );
}

#[test]
fn nothing_is_unwrapped_outside_tests() {
    guard(
        unwraps,
        &[&[("src/driver/a.rs", "fn f() { g().unwrap(); }")]],
        &[
            &[("src/a.rs", "fn f() { g().unwrap_or(1); }\n#[cfg(test)] mod t { x.unwrap() }")],
            &[("tests/a.rs", "fn f() { g().unwrap(); }")],
        ],
    );
}

#[test]
fn functions_fit_a_screen() {
    let function =
        |lines: usize| format!("fn f(x: [u8; 2]) {{\n{}}}\n", "g();\n".repeat(lines - 2));
    guard(
        long_functions,
        &[
            &[("src/a.rs", &function(FUNCTION_LINES_MAX + 1))],
            &[("tests/a.rs", &function(FUNCTION_LINES_MAX + 1))],
        ],
        &[&[("src/a.rs", &function(FUNCTION_LINES_MAX)), ("src/b.rs", "type F = fn(u8);")]],
    );
}

#[test]
fn modules_fit_a_mind() {
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(MODULE_LINES_MAX));
    guard(
        long_modules,
        &[
            &[("src/a.rs", &"\n".repeat(MODULE_LINES_MAX + 1))],
            &[("src/main.rs", &"\n".repeat(MAIN_LINES_MAX + 1))],
        ],
        &[
            &[("src/a.rs", &("\n".repeat(MODULE_LINES_MAX) + &tests))],
            &[("tests/a.rs", &"\n".repeat(MODULE_LINES_MAX + 1))],
        ],
    );
}

#[test]
fn lines_fit_the_page() {
    guard(
        wide_lines,
        &[&[("src/a.rs", &"x".repeat(COLUMNS_MAX + 1))], &[("a.h", &"x".repeat(COLUMNS_MAX + 1))]],
        &[&[("src/a.rs", &"ä".repeat(COLUMNS_MAX))], &[("docs/a.md", &"x".repeat(200))]],
    );
}

#[test]
fn every_source_says_its_licence() {
    let script = "#!/bin/sh\n# SPDX-License-Identifier: GPL-2.0-only\n";
    guard(
        licence_is_missing,
        &[
            &[("src/a.rs", "//! Does it all.\n")],
            &[("src/a.h", &format!("\n{SPDX}"))],
            &[("a.sh", "#!/bin/sh\nexit 0\n")],
            &[("a.c", "// SPDX-License-Identifier: MIT\n")],
        ],
        &[&[("src/a.rs", SPDX), ("a.sh", script), ("README.md", "# Hello\n")]],
    );
}

#[test]
fn no_machine_is_named() {
    let [work, root, home] = ["work", "root", "home"].map(|folder| format!("`/{folder}/x`"));
    let mirror = format!("https://deb.{}/debian", "debian.org");
    guard(
        machine_is_named,
        &[
            &[("docs/a.md", &work)],
            &[("src/a.rs", &root)],
            &[("Makefile", &home)],
            &[("tests/a.rs", &mirror)],
        ],
        &[&[
            ("src/a.rs", "\"/sys/kernel/sched_ext/root/ops\" \"/work\""),
            ("README.md", "https://crates.io/crates/x"),
            ("Cargo.lock", &mirror),
        ]],
    );
}

#[test]
fn every_file_belongs_to_a_crate() {
    let lib = ("src/lib.rs", "pub mod a;\n// mod c;\n");
    guard(
        dead_files,
        &[
            &[lib, ("src/a.rs", ""), ("src/c.rs", "")],
            &[lib, ("src/a/mod.rs", ""), ("src/a/b.rs", "")],
            &[("tests/x/main.rs", "mod y;"), ("tests/x/z.rs", "")],
        ],
        &[
            &[lib, ("src/a/mod.rs", "mod b;"), ("src/a/b.rs", "mod c;"), ("src/a/b/c.rs", "")],
            &[("build.rs", ""), ("src/main.rs", "mod m;"), ("src/m.rs", ""), ("tests/t.rs", "")],
            &[("src/bin/b.rs", ""), ("tests/x/main.rs", "mod y;"), ("tests/x/y.rs", "")],
            &[("src/bin/b/main.rs", "mod c;"), ("src/bin/b/c.rs", "")],
            &[("fuzz/fuzz_targets/t.rs", "")],
        ],
    );
}

#[test]
fn links_lead_somewhere() {
    guard(
        broken_links,
        &[
            &[("README.md", "see [a](docs/a.md)")],
            &[("docs/a.md", "[x](b.md), [y](../README.md#top)"), ("docs/b.md", "")],
        ],
        &[
            &[
                ("README.md", "[a](docs/a.md#x) [b](docs) [c](https://x.y) [d](#d)"),
                ("docs/a.md", ""),
            ],
            &[("docs/a.md", "[top](../README.md)"), ("README.md", ""), ("x.md", "[no](no.md)")],
        ],
    );
}

#[test]
fn no_file_is_big() {
    let big = "x".repeat(FILE_BYTES_MAX + 1);
    guard(big_files, &[&[("docs/a.svg", &big)]], &[&[("docs/a.svg", &big[1..])]]);
}

/// Where git is not to be had, the walk stands in for it; it must not see less.
#[test]
fn the_walk_finds_what_git_tracks() {
    let Some(tracked) = git_ls_files() else { return };
    let walked: BTreeSet<String> = walk(Path::new(ROOT)).into_iter().collect();
    let exists = |path: &&String| Path::new(ROOT).join(path).is_file();
    let missed: Vec<&String> =
        tracked.iter().filter(exists).filter(|path| !walked.contains(*path)).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn only_code_is_read_as_code() {
    let source = concat!(
        r##"a('"', 'x', '\'', b'{', '\u{7b}') /* b /* c */ d */ "##,
        r##""e \" f" r#"g " h"# <'i>(r#j) // k"##,
    );
    let code = code_only(source);
    let names: Vec<&str> = words(&code).iter().map(|word| word.text).collect();
    assert_eq!(names, ["a", "b", "r", "i", "r", "j"]);
    assert_eq!(code.len(), source.len());
}

// ---- The tree ---------------------------------------------------------------------------------

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

struct File {
    /// From the root of the repository, with slashes.
    path: String,
    text: String,
    bytes: usize,
}

struct Tree {
    files: Vec<File>,
}

impl Tree {
    fn of(files: &[(&str, &str)]) -> Tree {
        let file = |&(path, text): &(&str, &str)| File {
            path: path.to_owned(),
            text: text.to_owned(),
            bytes: text.len(),
        };
        Tree { files: files.iter().map(file).collect() }
    }

    fn tracked() -> Tree {
        let paths = git_ls_files().unwrap_or_else(|| walk(Path::new(ROOT)));
        // A file that is tracked and not there is about to be removed.
        let read = |path: String| {
            let bytes = fs::read(Path::new(ROOT).join(&path)).ok()?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Some(File { path, text, bytes: bytes.len() })
        };
        let files: Vec<File> = paths.into_iter().filter_map(read).collect();
        assert!(files.iter().any(|file| file.path == "src/lib.rs"), "{ROOT} is not the repository");
        Tree { files }
    }

    fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether there is a file or a folder of this name.
    fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        let mut paths = self.files.iter().map(|file| &file.path);
        path.is_empty() || paths.any(|it| it == path || it.starts_with(&folder))
    }

    fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.ends_with(&[".rs"]))
    }

    /// The library: what lies in `src` and meets neither kernel nor clock.
    fn brain(&self) -> impl Iterator<Item = &File> {
        let body = ["src/driver/", "src/bench/", "src/bin/", "src/bpf/"];
        self.rust().filter(move |file| {
            file.path.starts_with("src/")
                && file.path != "src/main.rs"
                && !body.iter().any(|folder| file.path.starts_with(folder))
        })
    }

    /// The crates that Cargo.toml names, as code spells them.
    fn dependencies(&self) -> BTreeSet<String> {
        let Some(cargo) = self.file("Cargo.toml") else { return BTreeSet::new() };
        let mut listed = false;
        let mut names = BTreeSet::new();
        for line in cargo.text.lines() {
            if line.starts_with('[') {
                listed = line.trim_end().ends_with("dependencies]");
            } else if let (true, Some((name, _))) = (listed, line.split_once(['=', '.'])) {
                names.insert(name.trim().replace('-', "_"));
            }
        }
        names
    }
}

impl File {
    fn complain(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }

    fn ends_with(&self, endings: &[&str]) -> bool {
        endings.iter().any(|ending| self.path.ends_with(ending))
    }

    fn is_test(&self) -> bool {
        self.path.starts_with("tests/") || self.path.starts_with("benches/")
    }

    /// Whether cargo compiles this file without being led there.
    fn is_root(&self) -> bool {
        let parts: Vec<&str> = self.path.split('/').collect();
        matches!(
            parts[..],
            ["build.rs"]
                | ["src", "lib.rs" | "main.rs"]
                | ["src", "bin", _]
                | ["src", "bin", _, "main.rs"]
                | ["tests" | "benches", _]
                | ["tests" | "benches", _, "main.rs"]
                // A crate of its own, which cargo-fuzz builds.
                | ["fuzz", "fuzz_targets", _]
        )
    }

    /// The paths to which the `mod` lines of this file may lead.
    fn children(&self) -> Vec<String> {
        let (folder, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        let folder = match name {
            "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
            _ if self.is_root() => folder.to_owned(),
            _ => self.path.trim_end_matches(".rs").to_owned(),
        };
        let code = self.code();
        let words = words(&code);
        let declared = words.windows(2).filter(|pair| pair[0].text == "mod");
        let led_to = declared.filter(|pair| pair[1].rest.starts_with(';'));
        led_to
            .flat_map(|pair| {
                let module = format!("{folder}/{}", pair[1].text);
                [format!("{module}.rs"), format!("{module}/mod.rs")]
            })
            .collect()
    }

    /// The text with comments, strings and characters blanked out.
    fn code(&self) -> String {
        code_only(&self.text)
    }

    /// The same without the parts that only tests are compiled with.
    fn code_without_tests(&self) -> String {
        let mut code = self.code();
        for (from, to) in test_parts(&code) {
            code.replace_range(from..to, &blank(&code[from..to]));
        }
        code
    }
}

fn git_ls_files() -> Option<Vec<String>> {
    let output = Command::new("git").args(["-C", ROOT, "ls-files", "-z"]).output().ok()?;
    let listed = String::from_utf8(output.stdout).ok()?;
    let paths: Vec<String> =
        listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    (output.status.success() && !paths.is_empty()).then_some(paths)
}

/// Every file below `root`, but for what builds leave behind and for git's own.
fn walk(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if path.is_dir() && !path.is_symlink() {
                let skipped = name == ".git" || name == "target" && folder == root;
                open.extend((!skipped).then_some(path));
            } else if let Ok(below) = path.strip_prefix(root) {
                found.push(below.to_string_lossy().into_owned());
            }
        }
    }
    found
}

/// Where a link leads that stands in the file at `from`.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

// ---- Reading Rust, as much of it as the rules need ---------------------------------------------

struct Word<'a> {
    text: &'a str,
    /// What stands before and after it.
    before: &'a str,
    rest: &'a str,
    line: usize,
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Names, keywords and numbers. A number's suffix counts as a word of its own.
fn words(code: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < code.len() {
        let rest = &code[at..];
        let skipped = rest.find(is_word).unwrap_or(rest.len());
        line += rest[..skipped].matches('\n').count();
        let digits = rest[skipped..].chars().take_while(char::is_ascii_digit).count();
        let from = at + skipped + digits;
        let length = code[from..].find(|c| !is_word(c)).unwrap_or(code.len() - from);
        let (text, rest) = code[from..].split_at(length);
        if !text.is_empty() {
            words.push(Word { text, before: &code[..from], rest, line });
        }
        at = from + length;
    }
    words
}

fn named_words<'a>(files: impl Iterator<Item = &'a File>, names: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        let code = file.code();
        for word in words(&code).iter().filter(|word| names.contains(&word.text)) {
            complaints.push(file.complain(word.line, &format!("names {}", word.text)));
        }
    }
    complaints
}

/// Line, name and number of lines of every function with a body.
fn functions(code: &str) -> Vec<(usize, &str, usize)> {
    let words = words(code);
    let named = words.windows(2).filter(|pair| pair[0].text == "fn");
    // The type of a function has a bracket where a function has its name.
    let named = named.filter(|pair| pair[0].rest.trim_start().starts_with(pair[1].text));
    named
        .filter_map(|pair| {
            let body = &pair[1].rest[..body_end(pair[1].rest)?];
            Some((pair[0].line, pair[1].text, lines(body)))
        })
        .collect()
}

/// Begin and end of every item under `#[cfg(test)]`.
fn test_parts(code: &str) -> Vec<(usize, usize)> {
    let marked = code.match_indices("#[cfg(test)]").map(|(from, _)| from);
    marked
        .map(|from| {
            let item = &code[from..];
            let end = body_end(item).or_else(|| item.find(';').map(|at| at + 1));
            (from, from + end.unwrap_or(item.len()))
        })
        .collect()
}

/// Where the first body ends that begins in `code`, unless the item ends before without one.
fn body_end(code: &str) -> Option<usize> {
    let (mut braces, mut brackets) = (0, 0);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            '{' => braces += 1,
            '}' => braces -= 1,
            ';' if braces == 0 && brackets == 0 => return None,
            _ => {}
        }
        if c == '}' && braces == 0 {
            return Some(at + 1);
        }
    }
    None
}

fn lines(text: &str) -> usize {
    text.matches('\n').count() + 1
}

/// As much nothing as `text` is long, in as many lines.
fn blank(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

/// Blanks out comments, strings and characters. The result has the same lines and length.
fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    while code.len() < text.len() {
        let rest = &text[code.len()..];
        let raw = || raw_string(rest, &code);
        let length =
            comment(rest).or_else(raw).or_else(|| string(rest)).or_else(|| character(rest));
        match length {
            Some(length) => code.push_str(&blank(&rest[..length])),
            None => code.extend(rest.chars().next()),
        }
    }
    code
}

/// Length of the comment that `rest` begins with.
fn comment(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if !rest.starts_with("/*") {
        return None;
    }
    let (mut at, mut depth) = (2, 1);
    while depth > 0 && at < rest.len() {
        let (opens, closes) = (rest[at..].starts_with("/*"), rest[at..].starts_with("*/"));
        depth = depth + opens as usize - closes as usize;
        let next = rest[at..].chars().next().map_or(1, char::len_utf8);
        at += if opens || closes { 2 } else { next };
    }
    Some(at)
}

/// Length of the hashes and the string that follow an `r`, which stays as a word of its own.
fn raw_string(rest: &str, before: &str) -> Option<usize> {
    let name: String = before.chars().rev().take_while(|&c| is_word(c)).collect();
    if !["r", "rb", "rc"].contains(&name.as_str()) {
        return None;
    }
    let hashes = rest.chars().take_while(|&c| c == '#').count();
    let inside = rest[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(hashes + 1 + inside.find(&end).map_or(inside.len(), |at| at + end.len()))
}

/// Length of the string that `rest` begins with.
fn string(rest: &str) -> Option<usize> {
    let mut inside = rest.strip_prefix('"')?.char_indices();
    while let Some((at, c)) = inside.next() {
        match c {
            '"' => return Some(at + 2),
            '\\' => drop(inside.next()),
            _ => {}
        }
    }
    Some(rest.len())
}

/// Length of the character that `rest` begins with. A quote without a second is a lifetime's.
fn character(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    // What is escaped may be a quote itself.
    let taken = if first == '\\' { 2 } else { first.len_utf8() };
    let closes = inside.get(taken..)?.find('\'')?;
    (first == '\\' || closes == 0).then_some(1 + taken + closes + 1)
}
