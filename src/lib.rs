// SPDX-License-Identifier: GPL-2.0-only

//! The only code that meets kernel, clock, files and other processes.
//!
//! Two processes share the work. The *worker* ([`worker`]) schedules: one thread that never
//! touches a file, a terminal or a lock once it has begun. The *supervisor* ([`supervisor`])
//! starts it, starts it again when the kernel asks for that, prints, serves statistics and waits
//! for signals. They share one page-locked piece of memory ([`shared`]) and nothing else. So
//! nothing that the supervisor does, or waits for, can hold up scheduling; and the worker may
//! leave with its memory locked and `mmap` forbidden, since a restart is a fresh process.

mod adaptive;
mod backend;
mod cli;
mod event_log;
mod explain;
mod fast_path;
mod fast_path_counters;
mod listen;
mod machine;
mod procdb_command;
mod procdb_file;
mod process;
mod programs;
mod record;
mod settings;
mod shared;
mod stats;
mod supervisor;
mod tasks;
mod telemetry;
mod tune;
mod wake_worker;
mod worker;
mod worker_counters;

// The generated connector looks for its bindings at the root of the crate.
use backend::{bpf_intf, bpf_skel};

use clap::Parser as _;
use cli::{Command, Options};
use pandemonium_engine::PolicyInfo;
pub use pandemonium_engine::policies;
use pandemonium_host::failure::Failure;
use pandemonium_host::program;
use std::process::ExitCode;
use std::time::Duration;

/// Runs the program that the command line asks for, with these policies besides the built-in ones;
/// the first is the default.
pub fn main(policies: &'static [PolicyInfo]) -> ExitCode {
    cli::offer(policies);
    // Errors that carry a backtrace need more memory to print it than our allocator has.
    // SAFETY: no other thread exists yet.
    unsafe { std::env::set_var("RUST_LIB_BACKTRACE", "0") };
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("error: this is a bug in scx_pandemonium_user, please report it: {panic}");
    }));
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => return pandemonium_host::usage::explain(&error),
    };
    let outcome = match run(&options) {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    eprintln!("error: {outcome}");
    outcome.exit_code()
}

fn run(options: &Options) -> Result<ExitCode, Failure> {
    options.check()?;
    if let Some(fd) = shared::inherited() {
        return worker::run(options, fd);
    }
    if let Some(command) = &options.command {
        match command {
            Command::Tune(arguments) => tune::run(arguments)?,
            Command::Explain(arguments) => explain::run(arguments)?,
            Command::Procdb(arguments) => procdb_command::run(arguments)?,
            Command::Bench(arguments) => {
                return Err(program::become_program("pandemonium_bench", &arguments.words));
            }
            Command::Probe(arguments) => {
                return Err(program::become_program("pandemonium_probe", &arguments.words));
            }
            Command::Completions { shell } => telemetry::print_bytes(&cli::completions(*shell)),
            Command::Man => telemetry::print_bytes(&cli::manual()),
        }
    } else if options.version {
        println!("{}", cli::version());
    } else if options.help_stats {
        stats::describe(&mut std::io::stdout()).map_err(Failure::internal)?;
    } else if let Some(seconds) = options.monitor {
        stats::monitor(Duration::from_secs_f64(seconds)).map_err(Failure::internal)?;
    } else {
        return supervisor::run(options);
    }
    Ok(ExitCode::SUCCESS)
}
