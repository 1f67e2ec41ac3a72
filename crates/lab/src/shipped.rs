// SPDX-License-Identifier: GPL-2.0-only

//! The workloads that come with the lab.

use anyhow::{Context, Result, bail};
use pandemonium_sim::topology::Shape;
use pandemonium_sim::workload::Workload;
use std::fs;

/// CPUs of a mix unless the command line has them.
pub const MIX_CPUS: u32 = 2;

macro_rules! workloads {
    ($($name:literal)*) => {
        /// Name and text of each workload.
        pub const ALL: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../workloads/", $name, ".toml")))),*];
    };
}

workloads! {
    "wake" "frame" "desktop" "crowd"
    "latency" "throughput" "burst" "longrun" "mixed" "deadline" "ipc" "launch"
    "regime-sweep" "deficit-storm" "sojourn-pressure" "longrun-interactive" "burst-recovery"
    "mixed-storm" "change"
    "vm-wake" "vm-long" "vm-mixed" "vm-burst" "vm-frame" "vm-pipe" "vm-forks"
}

/// The beginning of a mix's name; its seed follows.
const MIX: &str = "mix-";

/// Reads the workload of this name, draws the mix of this name, or reads the one in this file.
pub fn load(name: &str, cpus: Option<u32>) -> Result<(Workload, Shape)> {
    if let Some(seed) = name.strip_prefix(MIX).and_then(|seed| seed.parse().ok()) {
        let text = pandemonium_workload::mix::text(seed, cpus.unwrap_or(MIX_CPUS));
        return pandemonium_workload::read(&text, None).with_context(|| name.to_owned());
    }
    let shipped = ALL.iter().find(|(shipped, _)| *shipped == name);
    let (label, text) = match shipped {
        Some((shipped, text)) => (format!("{shipped}.toml"), (*text).to_owned()),
        None if name.ends_with(".toml") || name.contains('/') => {
            let text = fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
            (name.to_owned(), text)
        }
        None => bail!(
            "there is no workload {name:?}; `pandemonium_lab workloads` lists those that come with \
             the lab, mix-SEED draws one, and a file's name ends in .toml"
        ),
    };
    pandemonium_workload::read(&text, cpus).with_context(|| label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_workload_is_valid_on_machines_of_every_size() {
        for (name, _) in ALL {
            for cpus in [1, 2, 3, 12, 64, 1024] {
                let (workload, shape) = load(name, Some(cpus)).unwrap();
                assert_eq!(workload.name, *name);
                assert!(!workload.about.is_empty(), "{name} has no description");
                assert_eq!(shape.cpus, cpus);
            }
        }
    }
}
