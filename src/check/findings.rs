// SPDX-License-Identifier: GPL-2.0-only

//! What the facts mean, and what to do about them: one finding for each topic.

use super::facts::Facts;
use super::finding::{Finding, Level};
use super::kernel_names::{BACKEND, of_part};
use super::newer;
use crate::fast_path::Part;
use clap::ValueEnum;
use pandemonium_host::failure::Failure;
use std::collections::BTreeSet;

/// The first kernel with a deadline server for sched_ext.
const EXT_SERVER_SINCE: (u32, u32) = (7, 0);
/// How many groups with limits are named.
const GROUPS_NAMED: usize = 3;

/// The findings, in the order in which they are printed, and the exit code: that of a start on this
/// machine.
pub fn judge(facts: &Facts) -> (Vec<Finding>, u8) {
    let mut findings = vec![kernel(facts), types(facts)];
    let mut failures = facts.preflight.failures();
    if facts.preflight.is_loaded(&facts.own_name) {
        // A start would find the instance that runs: nothing is wrong.
        failures.retain(|failure| !matches!(failure, Failure::Occupied(_)));
    }
    let code = failures.first().map(Failure::code);
    let backend = facts.preflight.state.as_ref().and(facts.names.as_ref()).map(backend);
    let refused = backend.as_ref().is_some_and(|finding| finding.level == Level::Failure);
    findings.extend(backend);
    findings.extend(fast_path(facts));
    findings.extend(newer::features(facts));
    findings.push(privileges(facts));
    findings.push(process_numbers(facts));
    findings.push(locked_memory(facts));
    findings.extend(other_scheduler(facts));
    findings.extend([deadline_server(facts), preempt_rt(facts), nohz_full(facts), cgroups(facts)]);
    findings.push(cpus(facts));
    let refused = refused.then(|| Failure::Refused(String::new()).code());
    (findings, code.or(refused).unwrap_or(0))
}

fn ok(topic: &'static str, found: impl Into<String>) -> Finding {
    Finding { topic, level: Level::Ok, found: found.into(), advice: None }
}

fn bad(topic: &'static str, level: Level, found: impl Into<String>, advice: &str) -> Finding {
    Finding { topic, level, found: found.into(), advice: Some(advice.to_owned()) }
}

fn kernel(facts: &Facts) -> Finding {
    let release = match facts.release.as_str() {
        "" => "this kernel",
        known => &format!("Linux {known}"),
    };
    if facts.preflight.state.is_some() {
        return ok("kernel", format!("{release} has sched_ext"));
    }
    let (why, advice) = match facts.option("CONFIG_SCHED_CLASS_EXT") {
        Some("y") => (
            "is built with sched_ext, but /sys/kernel/sched_ext is not there",
            "mount sysfs on /sys, or leave the container that hides it",
        ),
        Some(_) => (
            "is built without CONFIG_SCHED_CLASS_EXT",
            "boot a kernel from 6.12 on that has it, or try the scheduler in a virtual machine: \
             `make run`",
        ),
        None => (
            "has no sched_ext, and its configuration cannot be read",
            "boot a kernel from 6.12 on that was built with CONFIG_SCHED_CLASS_EXT=y, or try the \
             scheduler in a virtual machine: `make run`",
        ),
    };
    bad("kernel", Level::Failure, format!("{release} {why}"), advice)
}

/// The kernel's BTF. Without sched_ext nothing is known of its functions.
fn types(facts: &Facts) -> Finding {
    let preflight = &facts.preflight;
    if !preflight.has_btf {
        return bad(
            "types (BTF)",
            Level::Failure,
            "/sys/kernel/btf/vmlinux is missing: the kernel cannot check a scheduler",
            "boot a kernel that was built with CONFIG_DEBUG_INFO_BTF=y",
        );
    }
    if let Some(first) = preflight.malformed.first() {
        return bad(
            "types (BTF)",
            Level::Failure,
            format!(
                "{} sched_ext functions are described wrongly, {first} first: pahole was older \
                 than 1.26 when the kernel was built",
                preflight.malformed.len()
            ),
            "boot another kernel build",
        );
    }
    match facts.names {
        Some(_) => ok("types (BTF)", "the kernel describes its types"),
        None => bad(
            "types (BTF)",
            Level::Warning,
            "/sys/kernel/btf/vmlinux cannot be read, so what the kernel lacks is not known",
            "run this check as root",
        ),
    }
}

/// The names that are missing, in their order.
fn missing(present: &BTreeSet<&str>, wanted: &[&'static str]) -> Vec<&'static str> {
    wanted.iter().filter(|name| !present.contains(*name)).copied().collect()
}

fn backend(present: &BTreeSet<&'static str>) -> Finding {
    let missing = missing(present, BACKEND);
    if missing.is_empty() {
        let found = format!("the kernel has all {} functions and types it needs", BACKEND.len());
        return ok("backend", found);
    }
    bad(
        "backend",
        Level::Failure,
        format!("the kernel would refuse it, because it lacks {}", missing.join(", ")),
        "boot another kernel from 6.12 on",
    )
}

/// A line for each part that would be lost, or one line for all.
fn fast_path(facts: &Facts) -> Vec<Finding> {
    let Some(present) = facts.preflight.state.as_ref().and(facts.names.as_ref()) else {
        return Vec::new();
    };
    let lost = Part::ALL.into_iter().filter_map(|part| {
        let missing = missing(present, of_part(part));
        let name = part.to_possible_value()?.get_name().to_owned();
        (!missing.is_empty()).then(|| {
            bad(
                "fast path",
                Level::Warning,
                format!(
                    "without {name}: {} (the kernel lacks {})",
                    part.loss(),
                    missing.join(", ")
                ),
                "nothing, if you accept this; another kernel build may have it",
            )
        })
    });
    let lost: Vec<Finding> = lost.collect();
    match lost.is_empty() {
        true => {
            vec![ok("fast path", format!("the kernel has what its {} parts need", Part::ALL.len()))]
        }
        false => lost,
    }
}

fn privileges(facts: &Facts) -> Finding {
    let lacks = &facts.preflight.lacks;
    if !lacks.required.is_empty() {
        return bad(
            "privileges",
            Level::Failure,
            format!("this process lacks {}", lacks.names().join(", ")),
            "run it as root: `sudo scx_pandemonium_user check`",
        );
    }
    match lacks.wished.is_empty() {
        true => ok("privileges", "this process may load a scheduler"),
        false => bad(
            "privileges",
            Level::Warning,
            format!("without {} a start takes seconds on a busy machine", lacks.wished.join(", ")),
            "grant it",
        ),
    }
}

fn process_numbers(facts: &Facts) -> Finding {
    match facts.preflight.has_own_pids {
        false => ok("process numbers", "those of the kernel"),
        true => bad(
            "process numbers",
            Level::Failure,
            "this process has a PID namespace of its own, and the kernel names tasks by other \
             numbers",
            "start it on the host, or in a container that shares the host's (`--pid=host`)",
        ),
    }
}

/// The scheduler raises the limit, which takes CAP_SYS_RESOURCE.
fn locked_memory(facts: &Facts) -> Finding {
    let may_raise = !facts.preflight.lacks.required.contains(&"CAP_SYS_RESOURCE");
    match facts.locked_memory.as_deref() {
        Some("unlimited") => ok("locked memory", "unlimited"),
        Some(limit) if may_raise => {
            ok("locked memory", format!("limited to {limit} bytes; the scheduler raises the limit"))
        }
        limit => bad(
            "locked memory",
            Level::Warning,
            format!(
                "limited to {} bytes, and the scheduler locks some 48 MiB, so that it never waits \
                 for memory",
                limit.unwrap_or("an unknown number of")
            ),
            "run it as root, or set LimitMEMLOCK=infinity in its unit",
        ),
    }
}

fn other_scheduler(facts: &Facts) -> Option<Finding> {
    let state = facts.preflight.state.as_deref()?;
    let ops = facts.preflight.ops.as_deref();
    Some(match (state, ops) {
        ("disabled", _) => ok("other scheduler", "no sched_ext scheduler is loaded"),
        (_, Some(name)) if facts.preflight.is_loaded(&facts.own_name) => {
            ok("other scheduler", format!("{name} runs: this scheduler, already at work"))
        }
        (_, name) => bad(
            "other scheduler",
            Level::Failure,
            format!("{} is loaded, and the kernel runs one at a time", name.unwrap_or(state)),
            "stop it first, for example with `systemctl stop scx` or `scxctl stop`",
        ),
    })
}

fn deadline_server(facts: &Facts) -> Finding {
    let by_version = facts.version().is_some_and(|version| version >= EXT_SERVER_SINCE);
    if facts.ext_server.unwrap_or(by_version) {
        return ok("deadline server", "real-time tasks cannot take a whole CPU from all others");
    }
    bad(
        "deadline server",
        Level::Warning,
        "the kernel reserves no time for the tasks of a sched_ext scheduler: behind a real-time \
         task that never sleeps they wait, and after 5 s the kernel unloads the scheduler",
        "boot Linux 7.0 or newer, or run no real-time task that never sleeps",
    )
}

fn preempt_rt(facts: &Facts) -> Finding {
    let configured = facts.option("CONFIG_PREEMPT_RT") == Some("y");
    match facts.preempt_rt || configured {
        false => ok("PREEMPT_RT", "off"),
        true => bad(
            "PREEMPT_RT",
            Level::Note,
            "on: interrupts are real-time threads, which run before every task that this scheduler \
             decides about; its figures are from kernels without it",
            "measure here before you rely on it: `scx_pandemonium_user bench run`",
        ),
    }
}

fn nohz_full(facts: &Facts) -> Finding {
    match facts.nohz_full.as_str() {
        "" => ok("nohz_full", "no CPU is to run without ticks"),
        cpus => bad(
            "nohz_full",
            Level::Warning,
            format!(
                "CPUs {cpus} are to run without ticks, but tasks of this scheduler have slices, \
                 which end at ticks"
            ),
            "keep other CPUs for it: `--primary-domain LIST --domain-strict`",
        ),
    }
}

fn cgroups(facts: &Facts) -> Finding {
    if !facts.cpu_controller {
        return ok("cgroups", "the cpu controller of cgroup2 is off");
    }
    if facts.limited_groups.is_empty() {
        return Finding {
            topic: "cgroups",
            level: Level::Note,
            found: "the cpu controller is on: CPU weights of groups have no effect while the \
                scheduler runs; nice values have"
                .into(),
            advice: None,
        };
    }
    let named = facts.limited_groups.iter().take(GROUPS_NAMED).cloned().collect::<Vec<_>>();
    let more = match facts.limited_groups.len().saturating_sub(GROUPS_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    bad(
        "cgroups",
        Level::Warning,
        format!(
            "limits of CPU time (CPUQuota=) have no effect while the scheduler runs; they are \
             set for {}{more}",
            named.join(", ")
        ),
        "use nice values, or AllowedCPUs=, which has effect",
    )
}

fn cpus(facts: &Facts) -> Finding {
    let Some(seen) = &facts.cpus else {
        return bad(
            "CPUs",
            Level::Warning,
            "cannot be counted",
            "mount sysfs on /sys; without it the scheduler does not start",
        );
    };
    let found = seen.to_string();
    match seen.slow {
        0 => ok("CPUs", found),
        _ => bad(
            "CPUs",
            Level::Note,
            found,
            "urgent tasks prefer the fast ones; to prefer one kind for all tasks: \
             `--primary-domain performance` or `--primary-domain powersave`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::good;
    use super::*;
    use crate::machine::Summary;

    fn judged(change: impl Fn(&mut Facts)) -> (Vec<Finding>, u8) {
        let mut facts = good();
        change(&mut facts);
        judge(&facts)
    }

    /// The findings that are not `ok`, as `level topic: found -> advice`, and the exit code.
    fn complaints(change: impl Fn(&mut Facts)) -> (Vec<String>, u8) {
        let (findings, code) = judged(change);
        let bad = findings.into_iter().filter(|finding| finding.level != Level::Ok);
        let line = |it: Finding| {
            let advice = it.advice.unwrap_or_default();
            format!("{} {}: {} -> {advice}", it.level.word(), it.topic, it.found)
        };
        (bad.map(line).collect(), code)
    }

    #[track_caller]
    fn one_complaint(change: impl Fn(&mut Facts), code: u8, begins: &str, parts: &[&str]) {
        let (lines, exit_code) = complaints(change);
        assert!(lines.len() == 1 && lines[0].starts_with(begins), "{lines:?}");
        assert!(parts.iter().all(|part| lines[0].contains(part)), "{lines:?}");
        assert_eq!(exit_code, code, "{lines:?}");
    }

    #[test]
    fn nothing_is_wrong_with_a_good_machine() {
        assert_eq!(complaints(|_| ()), (Vec::new(), 0));
        let (findings, _) = judged(|_| ());
        let topics: Vec<_> = findings.iter().map(|finding| finding.topic).collect();
        assert_eq!(topics.len(), topics.iter().collect::<BTreeSet<_>>().len(), "{topics:?}");
        assert_eq!(topics.len(), 14, "{topics:?}");
    }

    #[test]
    fn a_hard_failure_has_the_exit_code_of_a_start() {
        let privileges = |facts: &mut Facts| {
            facts.preflight.lacks.required = vec!["CAP_BPF"];
        };
        one_complaint(privileges, 3, "FAILED privileges", &["CAP_BPF", "sudo"]);
        let occupied = |facts: &mut Facts| {
            facts.preflight.state = Some("enabled".into());
            facts.preflight.ops = Some("lavd_1.1".into());
        };
        one_complaint(occupied, 5, "FAILED other scheduler", &["lavd_1.1", "stop it"]);
        let malformed = |facts: &mut Facts| facts.preflight.malformed = vec!["scx_bpf_x".into()];
        one_complaint(malformed, 6, "FAILED types", &["scx_bpf_x", "pahole"]);
        let dropped = |facts: &mut Facts| {
            facts.names.as_mut().unwrap().remove("scx_bpf_task_running");
        };
        one_complaint(dropped, 6, "FAILED backend", &["scx_bpf_task_running"]);
        let contained = |facts: &mut Facts| facts.preflight.has_own_pids = true;
        one_complaint(contained, 6, "FAILED process numbers", &["PID namespace", "--pid=host"]);
        let (lines, code) = complaints(|facts| {
            facts.preflight.has_btf = false;
            facts.names = None;
        });
        assert!(lines.len() == 1 && lines[0].contains("DEBUG_INFO_BTF") && code == 6, "{lines:?}");
    }

    #[test]
    fn a_kernel_without_sched_ext_is_told_from_a_hidden_one() {
        for (config, word) in [
            (Some("CONFIG_SCHED_CLASS_EXT=y\n"), "mount sysfs"),
            (Some("CONFIG_A=y\n"), "built without"),
            (None, "cannot be read"),
        ] {
            let gone = |facts: &mut Facts| {
                facts.preflight.state = None;
                facts.config = config.map(str::to_owned);
            };
            one_complaint(gone, 4, "FAILED kernel", &["7.3.4", word]);
        }
    }

    #[test]
    fn our_own_instance_is_no_failure() {
        let ours = |facts: &mut Facts| {
            facts.preflight.state = Some("enabled".into());
            facts.preflight.ops = Some("pandemonium_user_0.2.0".into());
        };
        assert_eq!(complaints(ours), (Vec::new(), 0));
    }

    #[test]
    fn every_lost_part_is_named_with_its_loss() {
        for part in Part::ALL {
            let name = of_part(part).iter().find(|name| !BACKEND.contains(name));
            let Some(name) = name else { continue };
            let (lines, code) = complaints(|facts| {
                facts.names.as_mut().unwrap().remove(name);
            });
            assert!(lines.iter().any(|line| line.contains(part.loss())), "{part:?}: {lines:?}");
            assert!(lines.iter().all(|line| line.starts_with("warning fast path")), "{lines:?}");
            assert_eq!(code, 0);
        }
    }

    #[test]
    fn losses_are_warnings_with_advice() {
        let old = |facts: &mut Facts| facts.ext_server = Some(false);
        one_complaint(old, 0, "warning deadline server", &["5 s", "7.0"]);
        let older = |facts: &mut Facts| {
            facts.ext_server = None;
            facts.release = "6.18.1".into();
        };
        one_complaint(older, 0, "warning deadline server", &[]);
        one_complaint(|facts| facts.nohz_full = "2-3".into(), 0, "warning nohz_full", &["2-3"]);
        one_complaint(|facts| facts.preempt_rt = true, 0, "note PREEMPT_RT", &["bench run"]);
        let nice = |facts: &mut Facts| facts.preflight.lacks.wished = vec!["CAP_SYS_NICE"];
        one_complaint(nice, 0, "warning privileges", &["CAP_SYS_NICE"]);
        let hybrid = |facts: &mut Facts| {
            facts.cpus = Some(Summary { cpus: 8, cores: 6, slow: 4, l2s: 3, llcs: 1, nodes: 1 });
        };
        one_complaint(hybrid, 0, "note CPUs", &["4 of them slower", "performance"]);
        one_complaint(|facts| facts.names = None, 0, "warning types", &["root"]);
        let locked = |facts: &mut Facts| {
            facts.preflight.lacks.required = vec!["CAP_SYS_RESOURCE"];
        };
        assert!(complaints(locked).0.iter().any(|line| line.contains("LimitMEMLOCK")));
    }

    #[test]
    fn the_limits_of_groups_are_named() {
        let on = |facts: &mut Facts| facts.cpu_controller = true;
        one_complaint(on, 0, "note cgroups", &["nice"]);
        let limited = |facts: &mut Facts| {
            facts.cpu_controller = true;
            facts.limited_groups = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        };
        one_complaint(limited, 0, "warning cgroups", &["CPUQuota", "a, b, c and 1 more"]);
    }
}
