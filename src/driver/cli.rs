// SPDX-License-Identifier: GPL-2.0-only

//! The command line, in the spelling of the other sched_ext schedulers.

use super::failure::Failure;
use clap::builder::RangedU64ValueParser;
use clap::{Parser, ValueEnum};
use scx_pandemonium_user::engine::Knobs;
use scx_pandemonium_user::policy::COMPOSITORS;
use scx_pandemonium_user::policy::COMPOSITORS_MAX;
use scx_pandemonium_user::task::{CPUS_MAX, Comm};
use scx_pandemonium_user::time::Span;
use scx_utils::libbpf_clap_opts::LibbpfOpts;
use std::process::ExitCode;

/// Shortest and longest slice, in microseconds. Below 100 us a CPU would mostly switch tasks;
/// above 100 ms the backend, which never preempts, would make others wait longer than a person
/// does not notice.
const SLICE_US: std::ops::RangeInclusive<u64> = 100..=100_000;
/// Shortest and longest interval between two lines of statistics, in seconds.
const INTERVAL_S: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

/// A policy by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// Tiers by behaviour, fair inside a tier, nobody forgotten
    Pandemonium,
    /// First come, first served
    Fifo,
    /// Plain weighted fair order
    Vruntime,
    /// Loses every 100th task. Exists so that the tests can show that they would notice.
    #[value(hide = true)]
    Dropping,
}

/// The PANDEMONIUM CPU scheduling policy, decided entirely in user space.
///
/// Loads a sched_ext scheduler and runs it until a signal ends it; the kernel's own scheduler
/// takes over again then.
#[derive(Clone, Debug, Parser)]
#[command(name = "scx_pandemonium_user", disable_version_flag = true, max_term_width = 100)]
pub struct Options {
    /// Which policy decides
    #[arg(long, value_enum, default_value = "pandemonium", value_name = "NAME")]
    pub policy: PolicyName,

    /// Longest time slice in microseconds, 100 to 100000
    #[arg(short = 's', long, value_name = "US", default_value_t = knob_us(|k| k.slice),
          value_parser = RangedU64ValueParser::<u64>::new().range(SLICE_US))]
    pub slice_us: u64,

    /// Shortest time slice in microseconds, 100 to 100000
    #[arg(short = 'S', long, value_name = "US", default_value_t = knob_us(|k| k.slice_min),
          value_parser = RangedU64ValueParser::<u64>::new().range(SLICE_US))]
    pub slice_us_min: u64,

    /// Decide in user space about idle CPUs too: every wake-up and every preemption comes up.
    /// Slower, and complete: for debugging a policy
    #[arg(long)]
    pub full_user: bool,

    /// Never interrupt a running task for one that wakes up: it runs to its next tick
    #[arg(long)]
    pub no_preempt: bool,

    /// Schedule only the tasks that asked for the SCHED_EXT class, not all
    #[arg(short = 'p', long)]
    pub partial: bool,

    /// Send tasks that may run on one CPU only to that CPU's own queue
    #[arg(short = 'l', long)]
    pub percpu_local: bool,

    /// Look for idle CPUs in the task's NUMA node only
    #[arg(short = 'n', long)]
    pub numa_local: bool,

    /// Number of CPUs that limits are derived from, 1 to 1024 [default: those of the machine]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=CPUS_MAX as i64))]
    pub nr_cpus: Option<u32>,

    /// Treat programs whose name begins with NAME as compositors: always latency-critical.
    /// May be given several times
    #[arg(long, value_name = "NAME", value_parser = compositor)]
    pub compositor: Vec<String>,

    /// Print a line of statistics every S seconds while scheduling
    #[arg(long, value_name = "S", value_parser = interval)]
    pub stats: Option<f64>,

    /// Print the statistics of the instance that is running, every S seconds; do not schedule
    #[arg(long, value_name = "S", value_parser = interval)]
    pub monitor: Option<f64>,

    /// Explain every field of the statistics
    #[arg(long)]
    pub help_stats: bool,

    /// Print the kernel's debug dump after an error, up to BYTES long; 0 prints none, unless
    /// --verbose does
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub exit_dump_len: u32,

    /// Print what libbpf says, and the kernel's debug dump after an error
    #[arg(short = 'v', long)]
    pub verbose: bool,

    /// Print the version
    #[arg(short = 'V', long)]
    pub version: bool,

    #[command(flatten, next_help_heading = "libbpf options")]
    pub libbpf: LibbpfOpts,
}

impl Options {
    /// What clap cannot check: options against each other.
    pub fn check(&self) -> Result<(), Failure> {
        if self.slice_us_min > self.slice_us {
            return Err(Failure::Usage(format!(
                "--slice-us-min {} is above --slice-us {}: the shortest slice cannot be longer \
                 than the longest",
                self.slice_us_min, self.slice_us
            )));
        }
        let extra_max = COMPOSITORS_MAX - COMPOSITORS.len();
        if self.compositor.len() > extra_max {
            return Err(Failure::Usage(format!(
                "--compositor was given {} times, at most {extra_max} are possible",
                self.compositor.len()
            )));
        }
        Ok(())
    }

    /// The policy's settings.
    pub fn knobs(&self) -> Knobs {
        Knobs {
            slice: Span::from_micros(self.slice_us),
            slice_min: Span::from_micros(self.slice_us_min),
            percpu_local: self.percpu_local,
        }
    }

    /// The compositor names as the kernel would spell them.
    pub fn compositors(&self) -> Vec<Comm> {
        self.compositor.iter().map(|name| Comm::from_text(name)).collect()
    }
}

/// Name and version of everything that decides how we schedule.
pub fn version() -> String {
    format!(
        "scx_pandemonium_user {} - scx_rustland_core {}",
        scx_utils::build_id::full_version(env!("CARGO_PKG_VERSION")),
        scx_rustland_core::VERSION
    )
}

/// Prints what clap has to say: help as it is, an error as one line, without the usage that would
/// push it out of sight.
pub fn explain(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let sentence = text.lines().map(str::trim);
    let sentence = sentence.take_while(|line| !line.starts_with("Usage:"));
    let sentence: Vec<&str> =
        sentence.filter(|line| !line.is_empty() && !line.starts_with("For more info")).collect();
    eprintln!("{} (see --help)", sentence.join(" "));
    ExitCode::from(2)
}

fn knob_us(knob: fn(&Knobs) -> Span) -> u64 {
    knob(&Knobs::default()).as_micros()
}

fn interval(text: &str) -> Result<f64, String> {
    let (low, high) = (INTERVAL_S.start(), INTERVAL_S.end());
    match text.parse::<f64>() {
        Ok(seconds) if INTERVAL_S.contains(&seconds) => Ok(seconds),
        _ => Err(format!("{text} is not a number of seconds in {low}..={high}")),
    }
}

fn compositor(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('\0') {
        return Err("a program name has at least one letter".into());
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(args: &[&str]) -> Result<Options, String> {
        let all = std::iter::once("scx_pandemonium_user").chain(args.iter().copied());
        Options::try_parse_from(all).map_err(|error| error.to_string())
    }

    #[test]
    fn the_definition_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_the_range() {
        for (args, range) in [
            (["--slice-us", "0"], "100..=100000"),
            (["-s", "100001"], "100..=100000"),
            (["-S", "99"], "100..=100000"),
            (["--nr-cpus", "0"], "1..=1024"),
            (["--nr-cpus", "1025"], "1..=1024"),
            (["--stats", "0"], "0.1..=86400"),
            (["--monitor", "nan"], "0.1..=86400"),
        ] {
            let message = parse(&args).unwrap_err();
            assert!(message.contains(range), "{args:?}: {message}");
        }
        assert!(parse(&["--compositor", ""]).is_err());
        assert!(parse(&["--policy", "magic"]).is_err());
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let both = parse(&["-s", "1000", "-S", "2000"]).unwrap();
        assert!(both.check().unwrap_err().to_string().contains("--slice-us-min 2000"));
        let many = vec!["--compositor=x"; 40];
        assert!(parse(&many).unwrap().check().is_err());
        assert!(parse(&[]).unwrap().check().is_ok());
    }

    #[test]
    fn every_short_form_of_the_ecosystem_is_there() {
        let options = parse(&["-s", "2000", "-S", "500", "-l", "-n", "-p", "-v"]).unwrap();
        assert!(options.percpu_local && options.numa_local && options.partial && options.verbose);
        assert_eq!(options.knobs().slice, Span::from_millis(2));
        assert!(parse(&["-V"]).unwrap().version);
    }
}
