// SPDX-License-Identifier: GPL-2.0-only

//! Links, and the names, paths and options that the documents quote in backticks, exist.

mod repository;

use pandemonium_policies::knobs::TABLE;
use repository::{File, Tree, check, complain_of_lines};
use std::collections::BTreeSet;

/// Files of `scx_rustland_core` and of the kernel.
const UPSTREAM_FILES: [&str; 5] =
    ["assets/bpf.rs", "assets/bpf/main.bpf.c", "bpf.rs", "ext.c", "main.bpf.c"];
/// Options of cargo, and what clap adds to every program.
const FOREIGN_OPTIONS: [&str; 6] =
    ["--bin", "--help", "--package", "--release", "--test", "--workspace"];
/// Names of the kernel, of other programs, and one that is put together while a program runs.
const FOREIGN_NAMES: [&str; 4] =
    ["nr_failed_dispatches", "sched_schedstats", "scx_bench_verdict", "scx_loader"];
const ENDINGS: [&str; 6] = [".c", ".h", ".md", ".rs", ".sh", ".toml"];

// ---- The rules --------------------------------------------------------------------------------

fn broken_links(tree: &Tree) -> Vec<String> {
    let is_own = |file: &&File| is_markdown(file) && !file.path.contains("/template/");
    complain_of_lines(tree.files.iter().filter(is_own), |file, line| {
        let links = line.split("](").skip(1);
        let targets = links.filter_map(|link| link.split([')', '#', ' ']).next());
        let mut inside = targets.filter(|target| !target.is_empty() && !target.contains(':'));
        let broken = inside.find(|target| !tree.has(&resolve(file.folder(), target)))?;
        Some(format!("{broken} does not exist"))
    })
}

/// A fence inside a line does not begin a block of code.
fn misplaced_fences(tree: &Tree) -> Vec<String> {
    complain_of_lines(tree.files.iter().filter(|file| is_markdown(file)), |_, line| {
        line.trim_start().get(1..)?.contains("```").then(|| "has a fence inside".to_owned())
    })
}

/// A path is from the root of the repository; the name of a file alone is that of any file.
fn missing_paths(tree: &Tree) -> Vec<String> {
    complain_of_words(tree, |_, word| {
        let path = word.split(':').next().unwrap_or_default();
        let is_name = |part: &str| {
            let of_name =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.".contains(c);
            part.len() > 1 && part.chars().all(of_name)
        };
        let has_ending = ENDINGS.iter().any(|ending| path.ends_with(ending));
        let is_path = path.contains('/') && path.trim_end_matches('/').split('/').all(is_name);
        let is_elsewhere = path.starts_with(['/', '~', '$'])
            || path.starts_with("target/")
            || UPSTREAM_FILES.contains(&path);
        let exists = tree.has(path) || tree.files.iter().any(|file| file.name() == path);
        ((is_path || has_ending) && !is_elsewhere && !exists)
            .then(|| format!("{path} does not exist"))
    })
}

/// An option is a field of a struct for clap, or it occurs in a source as it is typed.
fn missing_options(tree: &Tree) -> Vec<String> {
    complain_of_words(tree, |_, word| {
        let name = word.strip_prefix("--")?.split(['=', '.', ',']).next().unwrap_or_default();
        let typed = [format!("--{name}"), format!("long = \"{name}\"")];
        let field = format!(" {}:", name.replace('-', "_"));
        let has = |file: &File| {
            typed.iter().any(|typed| file.text.contains(typed))
                || file.text.contains("clap") && file.text.contains(&field)
        };
        let is_foreign = FOREIGN_OPTIONS.contains(&&*typed[0]);
        let exists = is_foreign || sources(tree).any(has);
        (!exists && !name.is_empty()).then(|| format!("no program has the option --{name}"))
    })
}

/// `rule.NAME`, and a time before an equals sign, are knobs.
fn missing_knobs(tree: &Tree) -> Vec<String> {
    complain_of_words(tree, |_, word| {
        let name = word.split('=').next().unwrap_or_default();
        let is_knob = word.starts_with("rule.") || word.contains("_us=");
        let exists = name == "rule.NAME" || TABLE.named(name).is_some();
        (is_knob && !exists).then(|| format!("no knob is called {name}"))
    })
}

/// Every name with an underscore occurs in a source. docs/upstream.md is about other sources.
fn missing_names(tree: &Tree) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let all = sources(tree).flat_map(|file| file.text.split(|c| !is_part(c)));
    let known: BTreeSet<&str> = all.chain(FOREIGN_NAMES).collect();
    complain_of_words(tree, |file, word| {
        let names = word.split(|c| !is_part(c)).filter(|name| name.contains('_'));
        // A name that begins or ends with an underscore is a part of names.
        let mut names = names.filter(|name| !name.starts_with('_') && !name.ends_with('_'));
        let missing = names.find(|name| !known.contains(name))?;
        (file.path != "docs/upstream.md").then(|| format!("no source names {missing}"))
    })
}

/// A figure in a table for players is one of the lab's.
fn unmeasured_figures(tree: &Tree) -> Vec<String> {
    let results = tree.files.iter().find(|file| file.path == "docs/results.md");
    let measured: BTreeSet<&str> =
        results.map(|file| file.text.split('|').map(str::trim).collect()).unwrap_or_default();
    let pages = tree.files.iter().filter(|file| file.path == "docs/gaming.md");
    complain_of_lines(pages, |_, line| {
        let cells = line.strip_prefix('|')?.split('|').skip(1).map(str::trim);
        let mut figures = cells.filter(|cell| cell.starts_with(|c: char| c.is_ascii_digit()));
        let other = figures.find(|figure| {
            let first = |cell: &&str| cell.split(' ').next() == Some(figure);
            !measured.iter().any(first)
        })?;
        Some(format!("{other} is not in docs/results.md"))
    })
}

// ---- The tests --------------------------------------------------------------------------------

#[test]
fn links_lead_somewhere() {
    let fine = "[a](docs/a.md#x) [b](docs) [c](https://x.y) [d](#d)";
    check(
        broken_links,
        &[&[("README.md", "[a](docs/a.md)")], &[("docs/a.md", "[x](a.md), [y](../b.md#top)")]],
        &[("README.md", fine), ("docs/a.md", "[top](../README.md)")],
    );
}

#[test]
fn fences_begin_their_line() {
    let fine = "```sh\nmake\n```\n";
    check(misplaced_fences, &[&[("docs/a.md", "Fix. ```diff\n")]], &[("README.md", fine)]);
}

#[test]
fn quoted_paths_exist() {
    check(
        missing_paths,
        &[
            &[("README.md", "`src/a.rs`")],
            &[("docs/a.md", "the file\n`a\nb.md`")],
            &[("docs/a.md", "`crates/ab`")],
        ],
        &[
            ("README.md", "`src/b.rs` `b.rs:7` `src` `/etc/x` `old/8` `main.bpf.c`"),
            ("src/b.rs", ""),
            ("docs/a.md", "`target/x.md` src/a.rs\n```\n`src/a.rs`\n```\n"),
        ],
    );
}

#[test]
fn quoted_options_exist() {
    let cli = ("src/cli.rs", "use clap::Parser;\nstruct A {\n    slice_us: u64,\n}\n\"--plain\"");
    check(
        missing_options,
        &[&[cli, ("README.md", "`x --slice-ms 2`")], &[cli, ("docs/a.md", "`--plainer`")]],
        &[cli, ("README.md", "`--slice-us`, `--plain=N`, `--help`; --slice-ms")],
    );
}

#[test]
fn quoted_knobs_exist() {
    check(
        missing_knobs,
        &[&[("README.md", "`rule.nonsense`")], &[("docs/a.md", "`tune slic_us=8`")]],
        &[("README.md", "`rule.preempt` `tune slice_us=1` `PATH=x` `a = b`")],
    );
}

#[test]
fn quoted_names_occur_in_sources() {
    let source = ("src/a.rs", "fn one_name() {}");
    check(
        missing_names,
        &[&[source, ("README.md", "`one_nam`")], &[source, ("docs/a.md", "`a(no_name)`")]],
        &[source, ("README.md", "`one_name()` no_name `own_`")],
    );
}

#[test]
fn figures_for_players_are_those_of_the_lab() {
    let results = ("docs/results.md", "| wake p50, us | 20.6 | 64.4 \u{2212} |");
    check(
        unmeasured_figures,
        &[&[results, ("docs/gaming.md", "| a wakeup | 20.6 | 64.5 |")]],
        &[results, ("docs/gaming.md", "| a wakeup of 3 ms | 20.6 | 64.4 | – |\n7 ms")],
    );
}

// ---- Reading documents ------------------------------------------------------------------------

impl Tree {
    /// Whether there is a file or a folder with this path.
    fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let mut rests = self.files.iter().filter_map(|file| file.path.strip_prefix(path));
        path.is_empty() || rests.any(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

fn is_markdown(file: &File) -> bool {
    file.path.ends_with(".md")
}

/// What is neither a document nor this test.
fn sources(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files.iter().filter(|file| !is_markdown(file) && file.path != "tests/documents.rs")
}

/// Applies the rule to each word that README.md or a page in docs quotes in backticks.
fn complain_of_words(tree: &Tree, rule: impl Fn(&File, &str) -> Option<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    let is_page = |file: &&File| file.path == "README.md" || file.path.starts_with("docs/");
    for file in tree.files.iter().filter(is_page).filter(|file| is_markdown(file)) {
        for (line, span) in spans(&file.text) {
            let edges = ['(', ')', '[', ']', ',', ';', '.', '"', '\''];
            let words = span.split_whitespace().map(|word| word.trim_end_matches(edges));
            let found =
                words.filter_map(|word| rule(file, word.trim_start_matches(['(', '[', '"'])));
            complaints.extend(found.map(|what| format!("{}:{line}: {what}", file.path)));
        }
    }
    complaints
}

/// The first line and the text of each part in backticks outside of blocks of code.
fn spans(text: &str) -> Vec<(usize, String)> {
    let mut spans = Vec::new();
    let mut open: Option<(usize, String)> = None;
    let mut in_block = false;
    for (number, line) in (1..).zip(text.lines()) {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        if is_fence || in_block || line.trim().is_empty() {
            open = None;
            continue;
        }
        for (index, part) in line.split('`').enumerate() {
            if index > 0 {
                match open.take() {
                    Some(span) => spans.push(span),
                    None => open = Some((number, String::new())),
                }
            }
            if let Some((_, span)) = &mut open {
                span.push_str(part);
            }
        }
        if let Some((_, span)) = &mut open {
            span.push(' ');
        }
    }
    spans
}

/// The path to which `target` leads from `folder`.
fn resolve(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match part {
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}
