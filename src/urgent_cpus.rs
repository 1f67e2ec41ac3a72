// SPDX-License-Identifier: GPL-2.0-only

//! The CPUs that urgent tasks prefer: chosen at the start, and again when the machine changes.

use super::cli::{Options, UrgentWish};
use super::machine::{self, Machine};
use super::output;
use super::shared::Shared;
use pandemonium_engine::topology::CpuMask;
use pandemonium_host::failure::Failure;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How often the kernel's files are read again: firmware may rank CPUs anew when the power supply
/// changes. A pass reads some 20 files of each CPU.
const INTERVAL: Duration = Duration::from_secs(30);

/// The CPUs that the options ask for on this machine. With a domain the policy places each task,
/// and there are none.
pub fn preferred(options: &Options, machine: &Machine) -> Result<CpuMask, Failure> {
    match options.primary_domain {
        Some(_) => Ok(CpuMask::EMPTY),
        None => machine.urgent(&options.urgent_cpus),
    }
}

/// Publishes the CPUs of the start, and says which they are.
pub fn begin(options: &Options, machine: &Machine, shared: &Shared) -> Result<(), Failure> {
    let cpus = preferred(options, machine)?;
    if shared.urgent_cpus.publish(&cpus) {
        output::print(&format!("urgent tasks prefer the CPUs {}", machine::list(&cpus)));
    }
    Ok(())
}

/// Publishes them again, and says so if they have changed. If all of a list are offline, none are
/// preferred.
pub fn follow(options: &Options, machine: &Machine, shared: &Shared) {
    let cpus = preferred(options, machine).unwrap_or(CpuMask::EMPTY);
    if !shared.urgent_cpus.publish(&cpus) {
        return;
    }
    output::print(&match cpus.is_empty() {
        true => "all CPUs are alike now: urgent tasks prefer none".into(),
        false => format!("CPUs have changed: urgent tasks prefer {}", machine::list(&cpus)),
    });
}

/// Follows the machine, from a thread that ends with the process.
pub fn keep(options: &Options, shared: Arc<Shared>) {
    if options.urgent_cpus != UrgentWish::Auto || options.primary_domain.is_some() {
        return;
    }
    let options = options.clone();
    thread::spawn(move || {
        loop {
            thread::sleep(INTERVAL);
            // While a CPU comes or goes, the kernel's files may contradict each other.
            if let Ok(machine) = Machine::observe() {
                follow(&options, &machine, &shared);
            }
        }
    });
}
