// SPDX-License-Identifier: GPL-2.0-only

//! What is simulated, as the command line says it.

use clap::Args;

/// What to simulate.
#[derive(Clone, Debug, Args)]
pub struct What {
    /// A workload that comes with the lab (`pandemonium_lab workloads`), mix-SEED, or a file
    #[arg(value_name = "WORKLOAD")]
    pub workload: String,

    /// CPUs of the machine, 1 to 1024; the workload's own number if not given
    #[arg(short = 'n', long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cpus: Option<u32>,

    /// Change a setting of the policies, as often as you like: `--set batch_slice_us=2000`
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    pub set: Vec<String>,

    /// Change a cost of the machine: `--cost tick_ns=1000000`. `--cost help` lists them
    #[arg(long = "cost", value_name = "COST=VALUE")]
    pub cost: Vec<String>,

    /// Simulate a kernel that refuses the fast path
    #[arg(long)]
    pub no_fast_path: bool,

    /// Let the policy decide on wakeups that find an idle CPU, too
    #[arg(long)]
    pub full_user: bool,
}

impl What {
    /// A workload that comes with the lab on a plain machine.
    pub fn named(workload: &str, cpus: u32) -> What {
        What {
            workload: workload.to_owned(),
            cpus: Some(cpus),
            set: Vec::new(),
            cost: Vec::new(),
            no_fast_path: false,
            full_user: false,
        }
    }
}
