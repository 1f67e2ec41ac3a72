// SPDX-License-Identifier: GPL-2.0-only

//! Checks, before loading, whether this machine can run a sched_ext scheduler. Collecting facts and
//! judging them are separate functions, so that tests can judge invented machines.

use super::failure::Failure;
use std::fs;
use std::path::Path;

/// The kernel's directory of sched_ext.
const SCHED_EXT: &str = "/sys/kernel/sched_ext";
/// The kernel's type information. The verifier checks every sched_ext program against it.
const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// Linux capability numbers (kernel ABI, `linux/capability.h`) that loading a scheduler needs:
/// SYS_ADMIN for struct_ops, BPF and PERFMON for programs, SYS_RESOURCE to lock memory.
const CAPABILITIES: [u32; 4] = [21, 39, 38, 24];

/// What matters of a machine.
#[derive(Clone, Debug)]
struct Facts {
    privileged: bool,
    /// Content of `state`; `None` if the kernel has no sched_ext.
    state: Option<String>,
    /// Name of the loaded scheduler, if one is loaded.
    ops: Option<String>,
    has_btf: bool,
    /// Kernel functions with a BTF prototype that no BPF program can match.
    malformed: Vec<String>,
}

/// Fails, with the reason, on a machine on which loading a scheduler would fail.
pub fn check() -> Result<(), Failure> {
    verdict(&observe())
}

/// Whether an instance of `scx_pandemonium_user` is loaded.
pub fn is_running() -> bool {
    let ops = fs::read_to_string(Path::new(SCHED_EXT).join("root/ops"));
    ops.is_ok_and(|name| name.starts_with("pandemonium_user"))
}

fn observe() -> Facts {
    let read = |file: &str| {
        fs::read_to_string(Path::new(SCHED_EXT).join(file)).ok().map(|text| text.trim().to_owned())
    };
    let has_btf = Path::new(KERNEL_BTF).exists();
    let state = read("state");
    // The BTF reader panics if the file is missing, and a kernel without sched_ext has no kfuncs.
    let malformed = if has_btf && state.is_some() {
        scx_utils::compat::malformed_scx_kfuncs()
    } else {
        Vec::new()
    };
    Facts { privileged: is_privileged(), state, ops: read("root/ops"), has_btf, malformed }
}

fn verdict(facts: &Facts) -> Result<(), Failure> {
    let Some(state) = &facts.state else { return Err(Failure::NoSchedExt) };
    if !facts.privileged {
        return Err(Failure::Unprivileged);
    }
    if state != "disabled" {
        let name = facts.ops.clone().unwrap_or_else(|| format!("(state: {state})"));
        return Err(Failure::Occupied(name));
    }
    if !facts.has_btf {
        return Err(Failure::Refused(format!(
            "{KERNEL_BTF} is missing; boot a kernel that was built with CONFIG_DEBUG_INFO_BTF=y"
        )));
    }
    if let Some(first) = facts.malformed.first() {
        return Err(Failure::Refused(format!(
            "its BTF describes {first} and {} other sched_ext functions wrongly, because it was \
             built with a pahole older than 1.26; boot another kernel build",
            facts.malformed.len() - 1
        )));
    }
    Ok(())
}

/// Whether all [`CAPABILITIES`] are in effect.
fn is_privileged() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    CAPABILITIES.iter().all(|bit| effective >> bit & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        Facts {
            privileged: true,
            state: Some("disabled".into()),
            ops: None,
            has_btf: true,
            malformed: Vec::new(),
        }
    }

    #[test]
    fn a_good_machine_passes() {
        assert!(verdict(&good()).is_ok());
    }

    #[test]
    fn each_missing_requirement_has_its_own_failure() {
        let refused = |change: fn(&mut Facts)| {
            let mut facts = good();
            change(&mut facts);
            verdict(&facts).unwrap_err()
        };
        assert!(matches!(refused(|f| f.state = None), Failure::NoSchedExt));
        assert!(matches!(refused(|f| f.privileged = false), Failure::Unprivileged));
        assert!(matches!(refused(|f| f.has_btf = false), Failure::Refused(_)));
        let occupied = refused(|f| {
            f.state = Some("enabled".into());
            f.ops = Some("lavd_1.1".into());
        });
        assert!(occupied.to_string().contains("lavd_1.1"), "{occupied}");
        let malformed = refused(|f| f.malformed = vec!["scx_bpf_x".into(), "y".into()]);
        assert!(malformed.to_string().contains("scx_bpf_x and 1 other"), "{malformed}");
    }
}
