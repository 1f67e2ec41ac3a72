// SPDX-License-Identifier: GPL-2.0-only

//! Reads the kernel's debug dump (`scx_dump_state` of Linux 6.12 to 7.3), which holds the CPUs that
//! do not idle and their runnable tasks. Tasks choose their own names, so a name may look like any
//! part of a dump.

/// One line of a dump.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// The beginning of a CPU.
    Cpu(u32),
    /// The task that it runs, and the name of its scheduling class, or a number.
    Current(Named<'a>, &'a str),
    /// A runnable task.
    Task(Named<'a>),
    /// The task that found the fault.
    Finder(Named<'a>),
    /// Facts about a task: words `KEY=VALUE`.
    Facts,
    /// Other text of the kernel in which no name can stand.
    Plain,
    /// Anything else.
    Unknown,
}

/// A line with a task's name: the text before it, the name, the pid, and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// The text before the name.
    pub before: &'a str,
    /// The name.
    pub name: &'a str,
    /// The pid, 0 for the idle task.
    pub pid: u32,
    /// The text after the pid's bracket.
    pub after: &'a str,
}

/// Lines of the kernel that are always the same.
const TITLES: [&str; 5] =
    ["Backtrace:", "CPU states", "Runqueue states", "Event counters", "~~~~ TRUNCATED ~~~~"];
/// Keys of facts.
const KEYS: [&str; 20] = [
    "scx_state/flags",
    "state/flags",
    "dsq_flags",
    "ops_state/qseq",
    "sticky/holding_cpu",
    "dsq_id",
    "dsq_vtime",
    "slice",
    "weight",
    "cpus",
    "no_mig",
    "nr_run",
    "flags",
    "cpu_rel",
    "ops_qseq",
    "pnt_seq",
    "ksync",
    "nr_immed",
    "local",
    "cid",
];
/// Sets of CPUs that are about to be kicked.
const KICKS: [&str; 5] =
    ["cpus_to_kick", "idle_to_kick", "cpus_to_preempt", "cpus_to_wait", "cpus_to_sync"];

/// Reads one line.
pub fn line(line: &str) -> Line<'_> {
    if let Some(rest) = line.strip_prefix("CPU ")
        && let Some((number, facts)) = rest.split_once(':')
        && let (Ok(number), true) = (number.trim().parse(), are_facts(facts))
    {
        return Line::Cpu(number);
    }
    if let Some(named) = named(line, "          curr=")
        && let Some(class) = named.after.strip_prefix(" class=")
        && is_symbol(class)
    {
        return Line::Current(named, class);
    }
    if let Some(named) = named(line, "")
        && named.after.strip_prefix(" triggered exit kind ").is_some_and(|kind| {
            kind.strip_suffix(':').is_some_and(|kind| kind.parse::<u32>().is_ok())
        })
    {
        return Line::Finder(named);
    }
    // A marker, the state in one letter, and the time since the task is runnable.
    if let Some(named) = line.get(..4).and_then(|before| named(line, before))
        && is_marker(named.before)
        && is_runnable_for(named.after)
    {
        return Line::Task(named);
    }
    if line.starts_with("    ") && are_facts(line) {
        return Line::Facts;
    }
    // Titles are underlined; an empty line is a line of no dashes.
    let is_title = TITLES.contains(&line) || line.bytes().all(|byte| byte == b'-');
    if is_title || is_kick(line) || is_frame(line) || is_counter(line) {
        return Line::Plain;
    }
    Line::Unknown
}

/// What a fact of a line says.
pub fn fact<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// The CPUs of a mask as the kernel prints it: hexadecimal, in groups of 32 bits.
pub fn mask(text: &str) -> Vec<u32> {
    let digits: Vec<u32> = text.chars().rev().filter_map(|digit| digit.to_digit(16)).collect();
    let bits = |(at, digit): (usize, &u32)| {
        let set = (0..4).filter(|bit| digit >> bit & 1 == 1).collect::<Vec<u32>>();
        set.into_iter().map(move |bit| at as u32 * 4 + bit)
    };
    digits.iter().enumerate().flat_map(bits).collect()
}

/// A name and a pid in brackets behind `before`. The last bracket counts: what follows it is the
/// kernel's, and has none.
fn named<'a>(line: &'a str, before: &'a str) -> Option<Named<'a>> {
    let rest = line.strip_prefix(before)?;
    let (name, rest) = rest.rsplit_once('[')?;
    let (pid, after) = rest.split_once(']')?;
    Some(Named { before, name, pid: pid.parse().ok()?, after })
}

fn is_marker(text: &str) -> bool {
    let [b' ', marker, state, b' '] = text.as_bytes() else { return false };
    b" *".contains(marker) && state.is_ascii_uppercase()
}

/// `-5ms`, since Linux 7.1 behind the name of the scheduler: `*root -5ms`, `sub1-7 +0ms`.
fn is_runnable_for(text: &str) -> bool {
    let Some(text) = text.strip_prefix(' ').and_then(|text| text.strip_suffix("ms")) else {
        return false;
    };
    let (scheduler, time) = text.rsplit_once(' ').unwrap_or(("root", text));
    let scheduler = scheduler.strip_prefix('*').unwrap_or(scheduler);
    let is_sub = |name: &str| {
        name.strip_prefix("sub")
            .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'))
    };
    time.parse::<i64>().is_ok() && (scheduler == "root" || is_sub(scheduler))
}

fn are_facts(text: &str) -> bool {
    let is_value = |value: &str| {
        let fine = |byte: u8| byte.is_ascii_hexdigit() || b"x/,-".contains(&byte);
        value == "(n/a)" || (!value.is_empty() && value.bytes().all(fine))
    };
    let is_fact = |word: &str| {
        word.split_once('=').is_some_and(|(key, value)| KEYS.contains(&key) && is_value(value))
    };
    !text.trim().is_empty() && text.split_whitespace().all(is_fact)
}

fn is_kick(line: &str) -> bool {
    line.split_once(':').is_some_and(|(key, value)| {
        let is_mask = |byte: u8| byte.is_ascii_hexdigit() || byte == b',';
        KICKS.contains(&key.trim()) && value.trim().bytes().all(is_mask)
    })
}

/// `    worker_thread+0x270/0x360`, perhaps with a module in brackets.
fn is_frame(line: &str) -> bool {
    let Some((symbol, place)) = line.trim().split_once('+') else { return false };
    let (place, module) = place.split_once(' ').unwrap_or((place, "[]"));
    let is_offset = |text: &str| {
        text.strip_prefix("0x")
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let is_module = module
        .strip_prefix('[')
        .and_then(|module| module.strip_suffix(']'))
        .is_some_and(|module| module.is_empty() || is_symbol(module));
    line.starts_with("  ")
        && is_symbol(symbol)
        && is_module
        && place.split_once('/').is_some_and(|(at, size)| is_offset(at) && is_offset(size))
}

fn is_counter(line: &str) -> bool {
    line.trim().split_once(':').is_some_and(|(name, count)| {
        name.starts_with("SCX_EV_") && is_symbol(name.trim()) && count.trim().parse::<i64>().is_ok()
    })
}

fn is_symbol(text: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"_.".contains(&byte);
    !text.is_empty() && text.bytes().all(fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(text: &str) -> (&str, u32) {
        match line(text) {
            Line::Task(named) => (named.name, named.pid),
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn tasks_are_read_in_the_forms_of_each_kernel() {
        assert_eq!(task(" *R Wolfenstein You[6602] -5ms"), ("Wolfenstein You", 6602));
        assert_eq!(task("  R hog[7] -21409ms"), ("hog", 7));
        assert_eq!(task(" *R hog[7] *root +0ms"), ("hog", 7));
        assert_eq!(task("  S x[y] z[9] sub1-4711 -1ms"), ("x[y] z", 9));
        assert_eq!(task("  R [1] -9ms[2] -1ms"), ("[1] -9ms", 2), "a name may look like the rest");
    }

    #[test]
    fn a_line_that_a_name_with_a_newline_makes_is_unknown() {
        for text in ["  R evil", "secret[7] -5ms", "  secret", "a=b", "    cpus=secret", "x+y/z"] {
            assert_eq!(line(text), Line::Unknown, "{text:?}");
        }
    }

    #[test]
    fn lines_without_names_are_known() {
        for text in [
            "      scx_state/flags=3/0x9 dsq_flags=0x0 ops_state/qseq=2/94",
            "      sticky/holding_cpu=-1/-1 dsq_id=(n/a) dsq_vtime=111688987676330929",
            "      cpus=ffffffff,fffffff0 no_mig=0",
        ] {
            assert_eq!(line(text), Line::Facts, "{text:?}");
        }
        for text in [
            "  scx_watchdog_workfn+0x143/0x1d0",
            "    bpf_prog_a1_x+0x1/0x2 [nf_tables]",
            "  cpus_to_kick   : ff",
            "  SCX_EV_SELECT_CPU_FALLBACK: 7",
        ] {
            assert_eq!(line(text), Line::Plain, "{text:?}");
        }
        assert_eq!(
            line("CPU 12  : nr_run=6 flags=0x1 cpu_rel=0 ops_qseq=3 ksync=8"),
            Line::Cpu(12)
        );
    }

    #[test]
    fn a_mask_is_a_list_of_cpus() {
        assert_eq!(mask("5"), [0, 2]);
        assert_eq!(mask("1,00000000"), [32]);
        assert_eq!((mask(""), mask("f").len()), (vec![], 4));
    }
}
