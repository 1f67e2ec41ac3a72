// SPDX-License-Identifier: GPL-2.0-only

//! The command line, in the spelling of the other sched_ext schedulers.

mod words;

use super::fast_path::Part;
use clap::builder::RangedU64ValueParser;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use pandemonium_engine::NAMES_MAX;
use pandemonium_engine::PolicyInfo;
use pandemonium_engine::task::{CPUS_MAX, Comm};
use pandemonium_host::failure::Failure;
use pandemonium_policies::{COMPOSITORS, Catalog};
use scx_utils::libbpf_clap_opts::LibbpfOpts;
use std::path::PathBuf;
use std::sync::OnceLock;
pub use words::{Boost, DomainWish};

/// Shortest and longest slice, in microseconds. Below 100 us a CPU would mostly switch tasks;
/// above 100 ms a task that nobody is interrupted for would wait longer than a person does not
/// notice.
const SLICE_US: std::ops::RangeInclusive<u64> = 100..=100_000;
/// Shortest and longest interval between two lines of statistics, in seconds.
const INTERVAL_S: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

static CATALOG: OnceLock<Catalog> = OnceLock::new();

/// The policies that this program offers; set before the command line is read.
pub fn offer(own: &'static [PolicyInfo]) {
    CATALOG.get_or_init(|| Catalog::new(own));
}

/// The policies that this program offers.
pub fn catalog() -> Catalog {
    *CATALOG.get_or_init(|| Catalog::new(&[]))
}

fn policy(name: &str) -> Result<PolicyInfo, String> {
    catalog().find(name)
}

/// The PANDEMONIUM CPU scheduling policy, decided entirely in user space.
///
/// Loads a sched_ext scheduler and runs it until a signal ends it; the kernel's own scheduler
/// takes over again then.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "scx_pandemonium_user",
    disable_version_flag = true,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub struct Options {
    /// Other things to do than to schedule.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Which policy decides: pandemonium, fifo, vruntime, or one of the program's own
    #[arg(long, value_name = "NAME", value_parser = policy)]
    pub policy: Option<PolicyInfo>,

    /// Longest time slice in microseconds, 100 to 100000; sets batch_slice_us [default: 4000]
    #[arg(short = 's', long, value_name = "US",
          value_parser = RangedU64ValueParser::<u64>::new().range(SLICE_US))]
    pub slice_us: Option<u64>,

    /// Shortest time slice in microseconds, 100 to 100000; sets slice_min_us [default: 100]
    #[arg(short = 'S', long, value_name = "US",
          value_parser = RangedU64ValueParser::<u64>::new().range(SLICE_US))]
    pub slice_us_min: Option<u64>,

    /// Start with the knobs in FILE, lines of KEY=VALUE; `tune` says which there are
    #[arg(long, value_name = "FILE")]
    pub knobs: Option<PathBuf>,

    /// Leave the knobs as they are at the start; without it they follow the load
    #[arg(long)]
    pub no_adaptive: bool,

    /// Decide in user space about idle CPUs too: every wake-up and every preemption comes up.
    /// Slower, and complete: for debugging a policy
    #[arg(long)]
    pub full_user: bool,

    /// Never interrupt a running task for one that wakes up: it runs to its next tick
    #[arg(long)]
    pub no_preempt: bool,

    /// Have the kernel refuse a part of the fast path. Exists so that the tests can show that the
    /// rest goes on. May be given several times
    #[arg(long, value_enum, value_name = "PART", hide = true)]
    pub break_fast_path: Vec<Part>,

    /// Decide so many microseconds late. Exists so that the benchmark can show that it would notice
    #[arg(long, value_name = "US", hide = true)]
    pub plant_delay_us: Option<u64>,

    /// Begin to decide so many milliseconds after the kernel half. Exists so that a test can show
    /// that the machine goes on meanwhile
    #[arg(long, value_name = "MS", hide = true)]
    pub plant_start_delay_ms: Option<u64>,

    /// Let batch work leave CPUs idle rather than wake them up
    #[arg(long)]
    pub low_power: bool,

    /// Run tasks in the order of their arrival while CPUs are free
    #[arg(long)]
    pub fifo_mode: bool,

    /// CPUs to prefer: a list such as 0-7:2, a mask such as 0xff, or all, performance, powersave
    #[arg(long, value_name = "CPUS")]
    pub primary_domain: Option<DomainWish>,

    /// Never leave the CPUs of --primary-domain, not even when all of them are busy
    #[arg(long, requires = "primary_domain")]
    pub domain_strict: bool,

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

    /// Programs whose name begins with NAME belong to a tier whatever they do: lat-critical (the
    /// default), interactive or batch. May be given several times; the first that fits counts
    #[arg(long, value_name = "NAME[:TIER]")]
    pub boost: Vec<Boost>,

    /// The same as --boost NAME, in the spelling of PANDEMONIUM
    #[arg(long, value_name = "NAME", value_parser = words::name)]
    pub compositor: Vec<Comm>,

    /// Where what was learned of programs is kept
    /// [default: /var/lib/scx_pandemonium_user/procdb.bin]
    #[arg(long, value_name = "PATH", conflicts_with = "no_procdb")]
    pub procdb: Option<PathBuf>,

    /// Neither use nor keep what was learned of programs
    #[arg(long)]
    pub no_procdb: bool,

    /// Print a line of statistics every S seconds while scheduling
    #[arg(long, value_name = "S", value_parser = interval)]
    pub stats: Option<f64>,

    /// Print the statistics of the instance that is running, every S seconds; do not schedule
    #[arg(long, value_name = "S", value_parser = interval)]
    pub monitor: Option<f64>,

    /// Explain every field of the statistics
    #[arg(long)]
    pub help_stats: bool,

    /// Print at the end what happened in each second, of the last 8192, and a summary
    #[arg(long)]
    pub dump_log: bool,

    /// Print at the end which tasks were known, in which tier, and for how long each usually runs
    #[arg(long)]
    pub dump_tasks: bool,

    /// Write down what the policy is told and decides, for `pandemonium_lab replay` and `explain`;
    /// FILE must not exist
    #[arg(long, value_name = "FILE", conflicts_with = "monitor")]
    pub record: Option<PathBuf>,

    /// Replace the names of programs in the recording
    #[arg(long, requires = "record")]
    pub redact: bool,

    /// Print the kernel's debug dump after an error, up to BYTES long; 0 prints none, unless
    /// --verbose does
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub exit_dump_len: u32,

    /// Print a line of statistics every second (every other while nothing happens), what libbpf
    /// says, and the kernel's debug dump after an error
    #[arg(short = 'v', long)]
    pub verbose: bool,

    /// Print the version
    #[arg(short = 'V', long)]
    pub version: bool,

    #[command(flatten, next_help_heading = "libbpf options")]
    pub libbpf: LibbpfOpts,
}

/// What the program does besides scheduling.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show the knobs of the instance that is running, or change them
    ///
    /// Without arguments every knob is printed, with its value, meaning and range. A knob that was
    /// set is left alone by the adaptive loop until it is released.
    Tune(TuneArguments),
    /// Ask the instance that is running about one task: its tier and why, and why it waits
    Explain(ExplainArguments),
    /// Show, export or forget what was learned of programs
    Procdb(ProcdbArguments),
    /// Measure schedulers side by side, and read the results: `bench --help` (pandemonium_bench)
    #[command(disable_help_flag = true)]
    Bench(Words),
    /// Measure one workload under whatever scheduler is loaded, and print what was found as JSON
    /// (pandemonium_probe)
    #[command(disable_help_flag = true)]
    Probe(Words),
    /// Print a script that completes this command line
    Completions {
        /// For which shell
        shell: Shell,
    },
    /// Print the manual page
    #[command(hide = true)]
    Man,
}

#[derive(Args, Clone, Debug)]
pub struct TuneArguments {
    /// Set a knob
    #[arg(value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Give knobs back to the adaptive loop: they are as at the start
    #[arg(long, value_name = "KEY", num_args = 1..)]
    pub release: Vec<String>,
}

#[derive(Args, Clone, Debug)]
pub struct ExplainArguments {
    /// The task: the number of a process or thread
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: i32,
    /// Watch it for so long, 1 to 60
    #[arg(long = "for", value_name = "S", default_value_t = 2,
          value_parser = clap::value_parser!(u64).range(1..=60))]
    pub seconds: u64,
    /// Tell of each wait that was longer, in microseconds
    #[arg(long, value_name = "US", default_value_t = 1_000)]
    pub over_us: u64,
}

#[derive(Args, Clone, Debug)]
pub struct ProcdbArguments {
    /// Another file than /var/lib/scx_pandemonium_user/procdb.bin
    #[arg(long, value_name = "PATH", global = true)]
    pub procdb: Option<PathBuf>,
    #[command(subcommand)]
    pub what: ProcdbCommand,
}

/// What can be done with what was learned.
#[derive(Clone, Debug, Subcommand)]
pub enum ProcdbCommand {
    /// Print a table for people
    Show,
    /// Print everything as JSON
    Export,
    /// Forget one program, or all
    Forget(ForgetArguments),
}

#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct ForgetArguments {
    /// Which program
    #[arg(value_parser = words::name)]
    pub name: Option<Comm>,
    /// Every program
    #[arg(long)]
    pub all: bool,
}

/// What another program is told.
#[derive(Args, Clone, Debug)]
pub struct Words {
    /// Passed on as they are
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

impl Options {
    /// The policy that decides.
    pub fn policy(&self) -> PolicyInfo {
        self.policy.unwrap_or_else(|| catalog().default_policy())
    }

    /// What clap cannot check: options against each other.
    pub fn check(&self) -> Result<(), Failure> {
        let extra_max = NAMES_MAX - COMPOSITORS.len();
        let extra = self.boost.len() + self.compositor.len();
        if extra > extra_max {
            return Err(Failure::Usage(format!(
                "--boost and --compositor were given {extra} times, at most {extra_max} are \
                 possible",
            )));
        }
        Ok(())
    }
}

/// A script that completes the command line.
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Options::command(), "scx_pandemonium_user", &mut script);
    script
}

/// The manual page.
pub fn manual() -> Vec<u8> {
    let mut page = Vec::new();
    // Writing to memory cannot fail.
    let _ = clap_mangen::Man::new(Options::command()).render(&mut page);
    page
}

/// Name and version of everything that decides how we schedule.
pub fn version() -> String {
    format!(
        "scx_pandemonium_user {} - scx_rustland_core {}",
        pandemonium_host::version(),
        scx_rustland_core::VERSION
    )
}

fn interval(text: &str) -> Result<f64, String> {
    let (low, high) = (INTERVAL_S.start(), INTERVAL_S.end());
    match text.parse::<f64>() {
        Ok(seconds) if INTERVAL_S.contains(&seconds) => Ok(seconds),
        _ => Err(format!("{text} is not a number of seconds in {low}..={high}")),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn parse(args: &[&str]) -> Result<Options, String> {
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
            (["--boost", "game:urgent"], "lat-critical, interactive or batch"),
            (["--primary-domain", "0-"], "0-3,8,10-20:2"),
            (["--primary-domain", "1024"], "0 to 1023"),
        ] {
            let message = parse(&args).unwrap_err();
            assert!(message.contains(range), "{args:?}: {message}");
        }
        assert!(parse(&["--compositor", ""]).is_err());
        assert!(parse(&["--policy", "magic"]).is_err());
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let many = ["--compositor=x", "--boost=y"].repeat(30);
        assert!(parse(&many).unwrap().check().is_err());
        assert!(parse(&[]).unwrap().check().is_ok());
        assert!(parse(&["--domain-strict"]).unwrap_err().contains("--primary-domain"));
        assert!(parse(&["--no-procdb", "--procdb", "x"]).is_err());
        assert!(parse(&["-v", "tune"]).is_err(), "options are for scheduling");
        assert!(parse(&["procdb", "forget"]).is_err(), "forget what?");
        assert!(parse(&["procdb", "forget", "--all", "cc1"]).is_err());
    }

    #[test]
    fn every_short_form_of_the_ecosystem_is_there() {
        let options = parse(&["-s", "2000", "-S", "500", "-l", "-n", "-p", "-v"]).unwrap();
        assert!(options.percpu_local && options.numa_local && options.partial && options.verbose);
        assert_eq!((options.slice_us, options.slice_us_min), (Some(2_000), Some(500)));
        assert!(parse(&["-V"]).unwrap().version);
    }

    #[test]
    fn tune_takes_assignments_and_releases_in_any_order() {
        let tune = |args: &[&str]| match parse(args).unwrap().command {
            Some(Command::Tune(tune)) => (tune.assignments, tune.release),
            other => panic!("{other:?}"),
        };
        let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        assert_eq!(tune(&["tune"]), (vec![], vec![]));
        let both = (words(&["slice_us=1", "affinity=off"]), words(&["lag_scale", "rule.deficit"]));
        let args = ["slice_us=1", "affinity=off", "--release", "lag_scale", "rule.deficit"];
        assert_eq!(tune(&[&["tune"], &args[..]].concat()), both);
    }

    #[test]
    fn the_manual_and_the_completions_know_every_option() {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (manual, script) = (text(manual()).replace("\\-", "-"), text(completions(Shell::Bash)));
        for option in
            ["--primary-domain", "--record", "--dump-log", "--dump-tasks", "--boost", "--no-procdb"]
        {
            assert!(manual.contains(option) && script.contains(option), "{option}");
        }
        assert!(script.contains("procdb") && manual.contains("tune"));
    }
}
