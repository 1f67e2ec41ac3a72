// SPDX-License-Identifier: GPL-2.0-only

//! The guest part: PID 1 of a freshly booted kernel, and the agent that runs one scenario.
//!
//! PID 1 only reaps orphans and powers the machine off. The agent is its child. So the agent can
//! wait for the scenario's children, and a crashed agent differs from a dead kernel.
//!
//! In a scenario of the distribution PID 1 becomes systemd, which starts the agent as a service.

use crate::guest::{Guest, boot, distribution, kernel, metronome, report};
use crate::protocol::{Mode, Orders};
use crate::scenarios;
use anyhow::{Context, Result};
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

/// Whether this process belongs to the guest: it is PID 1, or systemd has started it.
pub fn is_wanted() -> bool {
    let asked = std::env::args_os().nth(1).is_some_and(|word| word == distribution::AGENT);
    std::process::id() == 1 || asked
}

/// Runs as PID 1 or as a service. It never returns, because the kernel would panic.
pub fn main() -> ExitCode {
    if std::process::id() == 1 { be_first() } else { serve() }
}

fn be_first() -> ExitCode {
    if let Err(error) = boot::mount_everything() {
        // Without /dev there is no port to report on, only the console.
        eprintln!("vm guest: {error:#}");
        boot::power_off();
    }
    if belongs_to_a_distribution() {
        report::open();
        report::hello(&kernel::release().unwrap_or_default(), kernel::online_cpus().unwrap_or(0));
        report::progress("systemd starts");
        let Err(error) = distribution::enter();
        report::fail(&format!("{error:#}"));
        boot::power_off();
    }
    // SAFETY: no other thread exists yet, so the child may continue as an ordinary process.
    match unsafe { libc::fork() } {
        0 => {
            agent();
            // SAFETY: plain exit, so that no cleanup of the parent runs twice.
            unsafe { libc::_exit(0) }
        }
        agent => boot::reap_until_exit(agent),
    }
    boot::power_off()
}

/// Runs as a service of systemd. It ends the machine at once: the disk is thrown away.
fn serve() -> ExitCode {
    agent();
    boot::power_off()
}

fn orders() -> Result<Orders> {
    let line = std::fs::read_to_string("/proc/cmdline").context("reading /proc/cmdline")?;
    Orders::from_command_line(&line)
}

fn belongs_to_a_distribution() -> bool {
    let scenario = orders().ok().and_then(|orders| scenarios::find(&orders.scenario));
    scenario.is_some_and(|scenario| scenario.distribution)
}

/// Runs the scenario and sends exactly one verdict.
fn agent() {
    report::open();
    let verdict = std::panic::catch_unwind(AssertUnwindSafe(run_scenario));
    match verdict {
        Ok(Ok(())) => report::pass(),
        Ok(Err(error)) => report::fail(&format!("{error:#}")),
        Err(panic) => report::fail(&format!("the guest agent panicked: {}", panic_text(&*panic))),
    }
}

fn run_scenario() -> Result<()> {
    let orders = orders()?;
    let scenario = scenarios::find(&orders.scenario)
        .with_context(|| format!("there is no scenario named {}", orders.scenario))?;
    if !scenario.distribution {
        boot::prepare_user_land()?;
    }
    let cpus = kernel::online_cpus()?;
    if orders.mode == Mode::Exact {
        metronome::start(cpus, scenario.instruction_ns)?;
    }
    // The agent is a real-time task, so that it measures independently of the scheduler under test.
    boot::become_real_time()?;
    let guest = Guest { cpus, instruction_ns: scenario.instruction_ns, orders };
    report::hello(&kernel::release()?, guest.cpus);
    (scenario.run)(&guest)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()))
        .unwrap_or_else(|| "no message".into())
}
