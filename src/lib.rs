// SPDX-License-Identifier: GPL-2.0-only

//! The driver: the code that uses the kernel, the clock, files and other processes.
//!
//! There are two processes. The *worker* (`worker`) schedules. It is one thread, which uses no
//! file, terminal or lock after its first round. The *supervisor* (`supervisor`) starts the
//! worker, restarts it when the kernel asks for that, prints, serves statistics and waits for
//! signals. They share one page-locked piece of memory (`shared`) and nothing else, so the
//! supervisor cannot delay scheduling. A worker can end with its memory locked and `mmap`
//! forbidden, since a restart is a new process.
//!
//! Imports run downwards only, in this order: `supervisor`, `worker`; `worker_process`, `stats`,
//! `backend`; `telemetry`, `tune`, `explain`, `exposition`, `task_list`; `metrics`; `adaptive`,
//! `observers`, `rules`; `reading`, `fast_path`; `shared`; `server`, and plain data such as
//! `fast_path_counters`.
//!
//! A program with policies of its own calls [`main`]; here a built-in one stands for them:
//!
//! ```no_run
//! use pandemonium_policies::Vruntime;
//!
//! fn main() -> std::process::ExitCode {
//!     scx_pandemonium_user::main(scx_pandemonium_user::policies![Vruntime])
//! }
//! ```

#![warn(missing_docs)]
// Those macros panic if the output has no reader; `output` does not.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// docs.rs has no clang, so no generated bindings: `cfg(docsrs)` leaves out the driver.

#[cfg(not(docsrs))]
mod adaptive;
#[cfg(all(not(docsrs), any(test, fuzzing)))]
#[doc(hidden)]
pub mod any_bytes;
#[cfg(not(docsrs))]
mod backend;
#[cfg(not(docsrs))]
mod check;
#[cfg(not(docsrs))]
mod cli;
#[cfg(not(docsrs))]
mod client;
#[cfg(not(docsrs))]
mod clock;
#[cfg(not(docsrs))]
mod compaction;
#[cfg(not(docsrs))]
mod completions;
#[cfg(not(docsrs))]
mod event_log;
#[cfg(not(docsrs))]
mod explain;
#[cfg(not(docsrs))]
mod exposition;
#[cfg(not(docsrs))]
mod fast_path;
#[cfg(not(docsrs))]
mod fast_path_counters;
#[cfg(not(docsrs))]
mod group_socket;
#[cfg(not(docsrs))]
mod health;
mod hotplug;
#[cfg(not(docsrs))]
mod instance;
#[cfg(not(docsrs))]
mod kernel_setting;
#[cfg(not(docsrs))]
mod libbpf_print;
#[cfg(not(docsrs))]
mod machine;
#[cfg(not(docsrs))]
mod manual;
#[cfg(not(docsrs))]
mod memory;
#[cfg(not(docsrs))]
mod metrics;
#[cfg(not(docsrs))]
mod metrics_command;
#[cfg(not(docsrs))]
mod monitor;
#[cfg(target_env = "musl")]
mod musl;
#[cfg(not(docsrs))]
mod mutex;
#[cfg(not(docsrs))]
mod observers;
#[cfg(not(docsrs))]
mod output;
#[cfg(not(docsrs))]
mod planted;
#[cfg(not(docsrs))]
mod privileges;
#[cfg(not(docsrs))]
mod procdb_command;
#[cfg(not(docsrs))]
mod procdb_file;
#[cfg(not(docsrs))]
mod process;
#[cfg(not(docsrs))]
mod programs;
#[cfg(not(docsrs))]
mod reading;
#[cfg(not(docsrs))]
mod record;
#[cfg(not(docsrs))]
mod report;
#[cfg(not(docsrs))]
mod restarts;
#[cfg(not(docsrs))]
mod rules;
#[cfg(not(docsrs))]
mod rules_command;
#[cfg(not(docsrs))]
mod server;
#[cfg(not(docsrs))]
mod settings;
#[cfg(not(docsrs))]
mod shared;
#[cfg(not(docsrs))]
mod silence;
#[cfg(not(docsrs))]
mod stalls;
#[cfg(not(docsrs))]
mod stats;
#[cfg(not(docsrs))]
mod summary;
#[cfg(not(docsrs))]
mod supervisor;
#[cfg(not(docsrs))]
mod syscall_program;
#[cfg(not(docsrs))]
mod syscalls;
#[cfg(not(docsrs))]
mod takeover;
#[cfg(not(docsrs))]
mod task_list;
#[cfg(not(docsrs))]
mod tasks;
#[cfg(not(docsrs))]
mod telemetry;
#[cfg(not(docsrs))]
mod top;
#[cfg(not(docsrs))]
mod trusted;
#[cfg(not(docsrs))]
mod tune;
#[cfg(not(docsrs))]
mod upgrade;
#[cfg(not(docsrs))]
mod urgent_cpus;
#[cfg(not(docsrs))]
mod wake_worker;
#[cfg(not(docsrs))]
mod worker;
#[cfg(not(docsrs))]
mod worker_counters;
#[cfg(not(docsrs))]
mod worker_process;

// The generated connector imports its bindings from the root of the crate.
#[cfg(not(docsrs))]
use backend::{bpf_intf, bpf_skel};

use pandemonium_engine::PolicyInfo;
pub use pandemonium_engine::policies;
use std::process::ExitCode;
#[cfg(not(docsrs))]
use {
    clap::Parser as _,
    cli::{Command, Options},
    pandemonium_host::{failure::Failure, print::print_bytes, program},
    std::time::Duration,
};

/// Executes the command line, with these policies besides the built-in ones. The first is the
/// default.
pub fn main(policies: &'static [PolicyInfo]) -> ExitCode {
    #[cfg(docsrs)]
    unreachable!("docs.rs executes nothing, for any of {} policies", policies.len());
    #[cfg(not(docsrs))]
    start(policies)
}

#[cfg(not(docsrs))]
fn start(policies: &'static [PolicyInfo]) -> ExitCode {
    cli::offer(policies);
    // To print an error's backtrace needs more memory than scx_rustland_core's allocator has.
    // SAFETY: no other thread exists yet.
    unsafe { std::env::set_var("RUST_LIB_BACKTRACE", "0") };
    std::panic::set_hook(Box::new(|panic| {
        output::error(&format!("this is a bug in scx_pandemonium_user, please report it: {panic}"));
    }));
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => return pandemonium_host::usage::explain(&error),
    };
    let code = run(&options).unwrap_or_else(|failure| {
        output::error(&failure.to_string());
        failure.exit_code()
    });
    output::finish();
    code
}

#[cfg(not(docsrs))]
fn run(options: &Options) -> Result<ExitCode, Failure> {
    options.check()?;
    if let Some(fd) = shared::inherited() {
        return worker::run(options, fd);
    }
    if let Some(command) = &options.command {
        if command.only_reads() {
            privileges::ask();
        }
        match command {
            Command::Check(arguments) => return check::run(arguments),
            Command::Tune(arguments) => tune::run(arguments)?,
            Command::Explain(arguments) => explain::run(arguments)?,
            Command::Top(arguments) => top::run(arguments)?,
            Command::Metrics(arguments) => metrics_command::run(arguments)?,
            Command::Procdb(arguments) => procdb_command::run(arguments)?,
            Command::Rules(arguments) => rules_command::run(arguments)?,
            Command::Bench(arguments) => {
                return Err(program::become_program("pandemonium_bench", &arguments.words));
            }
            Command::Probe(arguments) => {
                return Err(program::become_program("pandemonium_probe", &arguments.words));
            }
            Command::Completions { shell } => print_bytes(&cli::completions(*shell)),
            Command::Man => print_bytes(&cli::manual()),
        }
    } else if options.version {
        output::print(&cli::version());
    } else if options.help_stats {
        stats::describe(&mut std::io::stdout()).map_err(Failure::internal)?;
    } else if let Some(seconds) = options.monitor {
        privileges::ask();
        monitor::run(Duration::from_secs_f64(seconds))?;
    } else if options.upgrade_trial {
        upgrade::trial::run(options)?;
    } else {
        return supervisor::run(options);
    }
    Ok(ExitCode::SUCCESS)
}
