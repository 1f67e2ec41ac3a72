// SPDX-License-Identifier: GPL-2.0-only

//! Replaces the names of tasks in what the kernel says. A line of a dump that is not understood is
//! left out, since a name may be in it.

use super::dump::{self, Line, Named};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Bytes of the longest name that the kernel keeps.
const NAME_MAX: usize = 15;
/// Names of kernel threads begin so, and go on with numbers.
const KERNEL: [&str; 8] = [
    "kworker/",
    "swapper/",
    "migration/",
    "ksoftirqd/",
    "cpuhp/",
    "idle_inject/",
    "rcuc/",
    "kthreadd",
];
/// The own names of this program and its threads.
const OWN: [&str; 2] = ["scx_pandemonium", "pandemonium_use"];

/// The replacements of names, in the order of their appearance.
#[derive(Default)]
pub struct Names {
    numbers: BTreeMap<String, usize>,
    /// The names of tasks by pid.
    tasks: BTreeMap<u32, String>,
}

impl Names {
    /// The names of a dump.
    pub fn of(dump: &str) -> Names {
        let mut names = Names::default();
        for line in dump.lines() {
            if let Line::Task(named) | Line::Current(named, _) | Line::Finder(named) =
                dump::line(line)
            {
                names.replace(named.name);
                names.tasks.insert(named.pid, named.name.to_owned());
            }
        }
        names
    }

    fn replace(&mut self, name: &str) -> String {
        if reveals_nothing(name) {
            return name.to_owned();
        }
        let number = self.numbers.len() + 1;
        format!("task-{}", self.numbers.entry(name.to_owned()).or_insert(number))
    }

    /// Replaces names in a sentence of the kernel, where they stand before a pid in brackets. If a
    /// name is not known, it may be the 15 bytes before the bracket.
    pub fn sentence(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, pid, after)) = next_pid(rest) {
            let known = self.tasks.get(&pid).filter(|name| before.ends_with(name.as_str()));
            let (kept, name) = match known.cloned() {
                Some(name) => (before.len() - name.len(), Some(name)),
                None => (floor(before, before.len().saturating_sub(NAME_MAX)), None),
            };
            out += &before[..kept];
            out += &name.map_or("(a name)".into(), |name| self.replace(&name));
            let _ = write!(out, "[{pid}]");
            rest = after;
        }
        out + rest
    }

    /// A dump without names, and without what was not understood.
    pub fn dump(&mut self, dump: &str) -> String {
        let (mut out, mut unknown) = (String::new(), 0);
        for line in dump.lines() {
            match dump::line(line) {
                Line::Current(named, _) | Line::Task(named) | Line::Finder(named) => {
                    let Named { before, name, pid, after } = named;
                    let _ = writeln!(out, "{before}{}[{pid}]{after}", self.replace(name));
                }
                Line::Cpu(_) | Line::Facts | Line::Plain => {
                    out += line;
                    out.push('\n');
                }
                Line::Unknown => unknown += 1,
            }
        }
        if unknown > 0 {
            let _ = writeln!(out, "(left out, because names may be in them: {unknown} lines)");
        }
        out
    }
}

/// The text before the first pid in brackets, the pid, and the text after it.
fn next_pid(text: &str) -> Option<(&str, u32, &str)> {
    text.match_indices('[').find_map(|(at, _)| {
        let (pid, after) = text[at + 1..].split_once(']')?;
        let is_number = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
        Some((&text[..at], pid.parse().ok().filter(|_| is_number)?, after))
    })
}

/// The nearest boundary of a letter at or before `at`.
fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Whether a name is this program's own, or has the form of a kernel thread's.
fn reveals_nothing(name: &str) -> bool {
    let is_number = |text: &str| {
        text.len() <= 6
            && text.bytes().all(|byte| byte.is_ascii_digit() || b"u:HIR-".contains(&byte))
    };
    OWN.iter().any(|own| name.starts_with(own) && name.len() <= own.len())
        || KERNEL.iter().any(|kernel| name.strip_prefix(kernel).is_some_and(is_number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_keeps_no_name_whether_it_is_known_or_not() {
        let mut names = Names::of("  R my [odd] secret[77] -5ms\n");
        assert_eq!(
            names.sentence("my [odd] secret[77] failed to run for 5.001s"),
            "task-1[77] failed to run for 5.001s"
        );
        let other = "cannot move the migration disabled fifteen-letters[12] from CPU 1";
        assert_eq!(
            names.sentence(other),
            "cannot move the migration disabled (a name)[12] from CPU 1"
        );
        assert_eq!(names.sentence("ä secret-secret[1]"), "(a name)[1]");
        assert_eq!(names.sentence("no name [x] here ["), "no name [x] here [");
    }

    #[test]
    fn the_same_name_gets_the_same_replacement_and_kernel_threads_keep_theirs() {
        let dump = "CPU 0   : nr_run=1 flags=0x0\n          curr=kworker/u64:5[9] \
                    class=ext_sched_class\n  R tax[1] -1ms\n  R tax[2] -2ms\n  R kworker/tax[3] \
                    -1ms\n  R evil\nname[4] -1ms\n";
        let told = Names::of(dump).dump(dump);
        assert!(told.contains("curr=kworker/u64:5[9]"), "{told}");
        assert!(told.contains("task-1[1]") && told.contains("task-1[2]"), "{told}");
        assert!(!told.contains("tax") && !told.contains("evil"), "{told}");
        assert!(told.ends_with("names may be in them: 2 lines)\n"), "{told}");
    }
}
