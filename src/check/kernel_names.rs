// SPDX-License-Identifier: GPL-2.0-only

//! What the programs need from the kernel, by the names in its type information (BTF), and which of
//! these names a kernel has.

use crate::fast_path::Part;
use std::collections::BTreeSet;

/// What the backend cannot be loaded without. A test compares it with the compiled program.
pub const BACKEND: &[&str] = &[
    "sched_ext_ops",
    "bpf_cpumask_create",
    "bpf_cpumask_first",
    "bpf_cpumask_release",
    "bpf_cpumask_set_cpu",
    "bpf_cpumask_test_cpu",
    "bpf_cpumask_weight",
    "bpf_rcu_read_lock",
    "bpf_rcu_read_unlock",
    "bpf_task_from_pid",
    "bpf_task_release",
    "runqueues",
    "scx_bpf_create_dsq",
    "scx_bpf_dispatch_cancel",
    "scx_bpf_dispatch_nr_slots",
    "scx_bpf_dsq_nr_queued",
    "scx_bpf_error_bstr",
    "scx_bpf_get_idle_smtmask",
    "scx_bpf_kick_cpu",
    "scx_bpf_pick_idle_cpu",
    "scx_bpf_select_cpu_dfl",
    "scx_bpf_task_cpu",
    "scx_bpf_task_running",
    "scx_bpf_test_and_clear_cpu_idle",
];

/// What a part of the fast path cannot be loaded without. A tracepoint is there if its type
/// `btf_trace_NAME` is.
pub const fn of_part(part: Part) -> &'static [&'static str] {
    match part {
        Part::Wakeups => &[
            "btf_trace_sched_wakeup",
            "bpf_iter_num_new",
            "bpf_cpumask_test_cpu",
            "scx_bpf_task_cpu",
        ],
        Part::NewTasks => &[
            "btf_trace_sched_wakeup_new",
            "bpf_iter_num_new",
            "bpf_cpumask_test_cpu",
            "scx_bpf_task_cpu",
        ],
        Part::Switches => {
            &["btf_trace_sched_switch", "scx_bpf_kick_cpu", "scx_bpf_dsq_nr_queued", "runqueues"]
        }
        Part::Execs => &["btf_trace_sched_process_exec"],
        Part::Timers => &[
            "btf_trace_sched_wakeup",
            "btf_trace_sched_wakeup_new",
            "btf_trace_sched_switch",
            "bpf_iter_num_new",
            "bpf_iter_num_next",
            "bpf_iter_num_destroy",
            "bpf_task_from_pid",
            "bpf_task_release",
        ],
        Part::Asking => &["scx_bpf_kick_cpu"],
    }
}

/// A name in the kernel's BTF, the first version that has it, and what depends on it.
pub type Feature = (&'static str, &'static str, &'static str);

/// What the scheduler uses where the kernel has it.
pub const FEATURES: [Feature; 3] = [
    ("scx_bpf_select_cpu_and", "6.17", "urgent tasks look for an idle CPU among the fast ones"),
    (
        "scx_bpf_reenqueue_local___v2",
        "6.19",
        "tasks behind a real-time task move to another CPU at once",
    ),
    ("ext_server", "7.0", "the scheduler stays loaded when a CPU goes on- or offline"),
];

/// Every name above.
pub fn all() -> BTreeSet<&'static str> {
    let parts = Part::ALL.into_iter().flat_map(of_part);
    let features = FEATURES.iter().map(|(name, ..)| *name);
    BACKEND.iter().chain(parts).copied().chain(features).collect()
}

const MAGIC: u16 = 0xeb9f;
/// Where the header says how long it is, where the strings begin behind it, and their length.
const HEADER_LENGTH: usize = 4;
const STRINGS_AT: usize = 16;
const STRINGS_LENGTH: usize = 20;

/// Those of `wanted` that occur in a kernel's BTF. `None` if this is no BTF of this machine's byte
/// order.
pub fn present(btf: &[u8], wanted: &BTreeSet<&'static str>) -> Option<BTreeSet<&'static str>> {
    let magic = btf.get(..2)?.try_into().ok().map(u16::from_ne_bytes)?;
    let number = |at: usize| {
        let bytes = btf.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_ne_bytes(bytes)).ok()
    };
    let start = number(HEADER_LENGTH)?.checked_add(number(STRINGS_AT)?)?;
    let end = start.checked_add(number(STRINGS_LENGTH)?)?;
    let strings = btf.get(start..end).filter(|_| magic == MAGIC)?;
    let names = strings.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    Some(names.filter_map(|name| wanted.get(name).copied()).collect())
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A BTF with these names and no types.
    pub fn btf<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
        let strings: String = names.into_iter().map(|name| format!("\0{name}")).collect();
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for number in [24, 0, 0, 0, strings.len() as u32 + 1] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(strings.as_bytes());
        bytes.push(0);
        bytes
    }

    #[test]
    fn whole_names_are_found_and_no_parts_of_names() {
        let found = |names: &[&str]| present(&btf(names.iter().copied()), &all());
        let kick = BTreeSet::from(["scx_bpf_kick_cpu"]);
        assert_eq!(found(&["x", "scx_bpf_kick_cpu", "y"]), Some(kick));
        assert_eq!(found(&["scx_bpf_kick_cpu_new", "my_scx_bpf_kick_cpu"]), Some(BTreeSet::new()));
    }

    #[test]
    fn a_damaged_file_has_no_names_and_no_panic() {
        let whole = btf(all());
        assert_eq!(present(&whole, &all()), Some(all()));
        for length in 0..whole.len() {
            assert_eq!(present(&whole[..length], &all()), None, "{length} bytes");
        }
        let mut foreign = whole;
        foreign[0] ^= 1;
        assert_eq!(present(&foreign, &all()), None);
        assert_eq!(present(&[0xff; 64], &all()), None);
    }

    const BACKEND_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bpf.bpf.o"));
    const FAST_PATH_OBJECT: &[u8] =
        include_bytes!(concat!(env!("OUT_DIR"), "/fast_path/fast_path.bpf.o"));

    fn number(bytes: &[u8], at: usize, size: usize) -> usize {
        bytes[at..at + size].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    }

    fn name(bytes: &[u8]) -> String {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap();
        String::from_utf8(bytes[..end].to_vec()).unwrap()
    }

    /// Offset, size and linked section of each section of an ELF file.
    fn sections(elf: &[u8], kind: Option<usize>) -> Vec<(usize, usize, usize)> {
        let (table, size, count) =
            (number(elf, 0x28, 8), number(elf, 0x3a, 2), number(elf, 0x3c, 2));
        let all = (0..count).map(|index| table + index * size);
        all.filter(|at| kind.is_none_or(|kind| number(elf, at + 4, 4) == kind))
            .map(|at| (number(elf, at + 24, 8), number(elf, at + 32, 8), number(elf, at + 40, 4)))
            .collect()
    }

    /// The symbols that an object needs from the kernel. A weak one may be missing: the program has
    /// another way.
    fn needed(elf: &[u8], with_weak: bool) -> BTreeSet<String> {
        const SYMBOLS: usize = 2;
        let (start, length, linked) = sections(elf, Some(SYMBOLS))[0];
        let names = sections(elf, None)[linked].0;
        let symbols = elf[start..start + length].chunks(24).skip(1);
        let undefined = symbols.filter(|symbol| number(symbol, 6, 2) == 0);
        undefined
            .filter(|symbol| with_weak || symbol[4] >> 4 == 1)
            .map(|symbol| name(&elf[names + number(symbol, 0, 4)..]))
            .collect()
    }

    /// What the fast path looks for before it calls it: `check_higher_class` of recheck.bpf.h. The
    /// second is `scx_bpf_reenqueue_local___v2` in the kernel.
    const OPTIONAL: [&str; 2] = ["scx_bpf_dsq_reenq", "scx_bpf_reenqueue_local___v2___weak"];

    #[test]
    fn the_compiled_programs_need_these_names() {
        let functions = BACKEND.iter().filter(|name| **name != "sched_ext_ops");
        let stated: BTreeSet<String> = functions.map(|name| (*name).to_owned()).collect();
        assert_eq!(stated, needed(BACKEND_OBJECT, false), "the backend");
        // The headers declare all functions weak, and without one of them its program is refused.
        let parts =
            Part::ALL.into_iter().flat_map(of_part).filter(|name| !name.starts_with("btf_"));
        let stated: BTreeSet<String> =
            parts.chain(&OPTIONAL).map(|name| (*name).to_owned()).collect();
        assert_eq!(stated, needed(FAST_PATH_OBJECT, true), "the fast path");
    }

    #[test]
    fn the_parts_have_the_tracepoints_of_their_programs() {
        let source = include_str!("../bpf/fast_path.bpf.c");
        for part in Part::ALL {
            for program in part.programs() {
                let named = [format!("BPF_PROG({program},"), format!("int {program}(")];
                let found = named.iter().find_map(|name| source.split_once(&**name));
                let (before, _) = found.expect("it is in the source");
                let section =
                    before.rsplit("SEC(\"").next().and_then(|rest| rest.split('"').next());
                let Some(tracepoint) = section.and_then(|name| name.strip_prefix("tp_btf/")) else {
                    continue;
                };
                let named = format!("btf_trace_{tracepoint}");
                assert!(of_part(part).contains(&&*named), "{part:?} lacks {named} for {program}");
            }
        }
    }
}
