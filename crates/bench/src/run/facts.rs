// SPDX-License-Identifier: GPL-2.0-only

//! The facts about the machine that a reader of the results needs.

use crate::results::{Clock, Machine};
use pandemonium_host::program;
use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

/// Prefixes of the lines of the kernel's configuration that matter to scheduling.
const CONFIG: [&str; 10] = [
    "CONFIG_HZ",
    "CONFIG_PREEMPT",
    "CONFIG_NO_HZ",
    "CONFIG_SCHED_CLASS_EXT",
    "CONFIG_SCHED_AUTOGROUP",
    "CONFIG_SCHED_CORE",
    "CONFIG_SCHED_MC",
    "CONFIG_SCHED_SMT",
    "CONFIG_FAIR_GROUP_SCHED",
    "CONFIG_CFS_BANDWIDTH",
];

/// The machine as it is now.
pub fn observe(cpus: usize, clock: Clock) -> Machine {
    let config = config();
    let hz = config.iter().find_map(|line| line.strip_prefix("CONFIG_HZ=")?.parse().ok());
    let mut versions = BTreeMap::from([("scx_pandemonium_user".into(), own_version())]);
    // The compile phase uses the first of these that exists.
    let compiler = |name: &&str| Some((name.to_string(), first_line(name, "--version")?));
    versions.extend(["cc", "tcc"].iter().find_map(compiler));
    Machine {
        kernel: read("/proc/sys/kernel/osrelease"),
        hz: hz.unwrap_or(0),
        config,
        cpu_model: cpu_model(&read("/proc/cpuinfo")).unwrap_or_else(|| "unknown".into()),
        cpus: cpus as u32,
        clock,
        versions,
    }
}

fn own_version() -> String {
    pandemonium_host::version()
}

/// The lines of [`CONFIG`] from /boot, else from /proc/config.gz; empty if neither exists.
fn config() -> Vec<String> {
    let release = read("/proc/sys/kernel/osrelease");
    let packed = || output("zcat", &["/proc/config.gz"]);
    let text = fs::read_to_string(format!("/boot/config-{release}")).ok().or_else(packed);
    let text = text.unwrap_or_default();
    let matters = |line: &&str| CONFIG.iter().any(|start| line.starts_with(start));
    text.lines().filter(matters).map(str::to_string).collect()
}

fn cpu_model(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

fn first_line(program: &str, argument: &str) -> Option<String> {
    Some(output(program, &[argument])?.lines().next()?.to_string())
}

fn output(path: &str, arguments: &[&str]) -> Option<String> {
    let mut command = program::command(path.as_ref()).ok()?;
    let output = command.args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_model_is_found_between_other_lines() {
        let text = "processor\t: 0\nmodel\t\t: 1\nmodel name\t: Some CPU @ 3 GHz\n";
        assert_eq!(cpu_model(text).as_deref(), Some("Some CPU @ 3 GHz"));
        assert_eq!(cpu_model("processor: 0"), None);
    }

    #[test]
    fn the_facts_of_this_machine_have_kernel_and_versions() {
        let machine = observe(2, Clock::Real);
        assert!(!machine.kernel.is_empty() && machine.cpus == 2);
        assert!(machine.versions.contains_key("scx_pandemonium_user"));
    }
}
