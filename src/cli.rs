// SPDX-License-Identifier: GPL-2.0-only

//! The command line, in the spelling of the other sched_ext schedulers.

mod words;

use super::fast_path::Part;
use super::planted::Fault;
use super::shared::RING_MAX;
use clap::builder::RangedU64ValueParser;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use pandemonium_engine::NAMES_MAX;
use pandemonium_engine::PolicyInfo;
use pandemonium_engine::task::{CPUS_MAX, Comm};
use pandemonium_host::ejection::DUMP_MAX;
use pandemonium_host::failure::Failure;
use pandemonium_policies::{COMPOSITORS, Catalog};
use pandemonium_view::tasks::Key;
use scx_utils::libbpf_clap_opts::LibbpfOpts;
use std::path::PathBuf;
use std::sync::OnceLock;
use words::OneOf;
pub use words::{Boost, DomainWish, UrgentWish};

/// Shortest and longest slice, in microseconds. Below 100 us a CPU would mostly switch tasks. Above
/// 100 ms the user would notice the wait of a task that preempts none.
const SLICE_US: std::ops::RangeInclusive<u64> = 100..=100_000;
/// Shortest and longest interval of statistics, in seconds.
const INTERVAL_S: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

static CATALOG: OnceLock<Catalog> = OnceLock::new();

/// Sets the policies that this program offers. To be called before it parses the command line.
pub fn offer(own: &'static [PolicyInfo]) {
    CATALOG.get_or_init(|| Catalog::new(own));
}

/// The policies that this program offers.
pub fn catalog() -> Catalog {
    *CATALOG.get_or_init(|| Catalog::new(&[]))
}

/// The policies of the catalog.
const POLICIES: OneOf<PolicyInfo> = OneOf {
    parse: |name| catalog().find(name),
    names: || catalog().iter().filter(|info| !info.hidden).map(|info| info.name).collect(),
};
/// The profiles of the default policy. Those of another are known when the whole line is read.
const PROFILES: OneOf<String> = OneOf {
    parse: |name| Ok(name.to_owned()),
    names: || catalog().default_policy().profiles.iter().map(|profile| profile.name).collect(),
};

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
    /// What to do instead of scheduling.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Which policy decides: pandemonium, fifo, vruntime, or one of the program's own
    #[arg(long, value_name = "NAME", value_parser = POLICIES, hide_possible_values = true)]
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

    /// Start with a profile, a named set of knobs: auto, gaming, lowlatency, powersave or server.
    /// `tune profile=NAME` changes it later. Knobs that are set by options, --knobs or `tune` win
    #[arg(long, value_name = "NAME", value_parser = PROFILES, hide_possible_values = true)]
    pub profile: Option<String>,

    /// Leave the knobs as they are at the start; without this option they follow the load
    #[arg(long)]
    pub no_adaptive: bool,

    /// Decide in user space about idle CPUs too: every wakeup and every preemption is queued to it.
    /// Slower, but complete: for debugging a policy
    #[arg(long)]
    pub full_user: bool,

    /// Never kick a CPU for a task that wakes up: the running task goes on to the next tick
    #[arg(long)]
    pub no_preempt: bool,

    /// Give no standing orders: the policy decides each wakeup that finds no idle CPU
    #[arg(long)]
    pub no_orders: bool,

    /// Make the kernel refuse a part of the fast path, to test that the rest works without it. May
    /// be given several times
    #[arg(long, value_enum, value_name = "PART", hide = true)]
    pub break_fast_path: Vec<Part>,

    /// Delay every round by so many microseconds, to test that the benchmark detects it
    #[arg(long, value_name = "US", hide = true)]
    pub plant_delay_us: Option<u64>,

    /// Start the first round so many milliseconds after the backend, to test that the machine goes
    /// on meanwhile
    #[arg(long, value_name = "MS", hide = true)]
    pub plant_start_delay_ms: Option<u64>,

    /// Have the worker fail after two seconds, to test that the machine goes on
    #[arg(long, value_enum, value_name = "FAULT", hide = true)]
    pub plant: Option<Fault>,

    /// How many milliseconds that lasts, instead of without end
    #[arg(long, value_name = "MS", hide = true)]
    pub plant_for_ms: Option<u64>,

    /// Load everything and attach nothing, to find out whether this program could take over from
    /// the one that schedules
    #[arg(long, hide = true)]
    pub upgrade_trial: bool,

    /// Let Batch tasks leave CPUs idle rather than wake them up
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

    /// CPUs that tasks above Batch prefer while they are idle: a list, a mask, none, or auto for
    /// the fast CPUs of a hybrid machine, else those with the larger cache
    #[arg(long, value_name = "CPUS", default_value = "auto", conflicts_with = "primary_domain")]
    pub urgent_cpus: UrgentWish,

    /// Schedule only the tasks that asked for the SCHED_EXT class, not all
    #[arg(short = 'p', long)]
    pub partial: bool,

    /// Send tasks that may run on one CPU only to that CPU's own queue
    #[arg(short = 'l', long)]
    pub percpu_local: bool,

    /// Look for idle CPUs in the task's NUMA node only
    #[arg(short = 'n', long)]
    pub numa_local: bool,

    /// Number of CPUs from which limits are derived, 1 to 1024 [default: those online]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=CPUS_MAX as i64))]
    pub nr_cpus: Option<u32>,

    /// Give programs whose name begins with NAME a fixed tier: lat-critical (the default),
    /// interactive or batch. May be given several times; the first match counts
    #[arg(long, value_name = "NAME[:TIER]")]
    pub boost: Vec<Boost>,

    /// Treat processes by the rules in FILE, or in a folder of such files: by name, executable,
    /// cgroup, user, ancestor and more a tier, a slice, a weight, CPUs. May be given several times;
    /// the first rule that matches counts. `rules test` shows what matches
    #[arg(long, value_name = "FILE")]
    pub rules: Vec<PathBuf>,

    /// The same as --boost NAME, in the spelling of PANDEMONIUM
    #[arg(long, value_name = "NAME", value_parser = words::name)]
    pub compositor: Vec<Comm>,

    /// The file of learned profiles of programs
    /// [default: /var/lib/scx_pandemonium_user/procdb.bin]
    #[arg(long, value_name = "PATH", conflicts_with = "no_procdb")]
    pub procdb: Option<PathBuf>,

    /// Neither use nor save learned profiles of programs
    #[arg(long)]
    pub no_procdb: bool,

    /// Print a line of statistics every S seconds while scheduling
    #[arg(long, value_name = "S", value_parser = interval)]
    pub stats: Option<f64>,

    /// Let the members of GROUP read the statistics, and change or ask nothing: for --monitor, top
    /// and metrics without root
    #[arg(long, value_name = "GROUP", conflicts_with = "monitor")]
    pub stats_group: Option<String>,

    /// Let the members of GROUP see and choose the profile, and nothing else: for `tune
    /// profile=NAME` and pandemonium_follow without root
    #[arg(long, value_name = "GROUP", conflicts_with = "monitor")]
    pub profile_group: Option<String>,

    /// Watch the running scheduler, with news every S seconds: a view in a terminal, else lines; do
    /// not schedule
    #[arg(long, value_name = "S", value_parser = interval)]
    pub monitor: Option<f64>,

    /// Describe every field of the statistics
    #[arg(long)]
    pub help_stats: bool,

    /// Print at the end a table of the last 8192 seconds, and a summary
    #[arg(long)]
    pub dump_log: bool,

    /// Print at the end the known tasks, with tier and usual run
    #[arg(long)]
    pub dump_tasks: bool,

    /// Record the policy's inputs and decisions, for `pandemonium_lab replay` and `explain`; FILE
    /// must not exist
    #[arg(long, value_name = "FILE", conflicts_with = "monitor")]
    pub record: Option<PathBuf>,

    /// Memory for entries of the recording that wait for its thread, in MiB, locked like all memory
    /// of the worker: 50,000 decisions a second fill 2 MiB in 0.1 s
    #[arg(long, value_name = "MIB", requires = "record", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(RING_MAX)))]
    pub record_buffer: u32,

    /// Replace the names of programs in the recording, but not those of --boost
    #[arg(long, requires = "record")]
    pub redact: bool,

    /// Print the kernel's debug dump after an error, up to BYTES long; 0 prints none, unless
    /// --verbose does
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub exit_dump_len: u32,

    /// Print a line of statistics every second (every other while nothing happens), the messages of
    /// libbpf, and the kernel's debug dump after an error
    #[arg(short = 'v', long)]
    pub verbose: bool,

    /// Print the version
    #[arg(short = 'V', long)]
    pub version: bool,

    #[command(flatten, next_help_heading = "libbpf options")]
    pub libbpf: LibbpfOpts,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Check whether this machine can run the scheduler, and what to do if not
    ///
    /// Loads nothing and changes nothing. The exit code is that of a start: 0 if it would succeed.
    Check(CheckArguments),
    /// Show or change the knobs of the running scheduler
    ///
    /// Without arguments it prints every knob, with its value, meaning and range. The adaptive loop
    /// leaves a knob alone that was set, until it is released.
    Tune(TuneArguments),
    /// Explain a task of the running scheduler: its tier and why, and why it waits
    Explain(ExplainArguments),
    /// List the tasks of the running scheduler: tier, rule, CPU share, wakeups, longest wait
    ///
    /// A view in a terminal, with keys to sort, filter and explain; else a table every interval.
    Top(TopArguments),
    /// Print the statistics of the running scheduler as OpenMetrics
    Metrics(MetricsArguments),
    /// Show, export or forget learned profiles of programs
    Procdb(ProcdbArguments),
    /// Test rules for processes: which rule applies to which running process
    Rules(RulesArguments),
    /// Measure schedulers side by side, and read the results: `bench --help` (pandemonium_bench)
    #[command(disable_help_flag = true)]
    Bench(Words),
    /// Measure one workload under the loaded scheduler, and print the results as JSON
    /// (pandemonium_probe)
    #[command(disable_help_flag = true)]
    Probe(Words),
    /// Print a script that completes this program's command line
    Completions {
        /// For which shell
        shell: Shell,
    },
    /// Print the manual page
    #[command(hide = true)]
    Man,
}

#[derive(Args, Clone, Debug)]
pub struct CheckArguments {
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct TuneArguments {
    /// Set a knob, or with profile=NAME the profile; rules=reload reads the rules again
    #[arg(value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Give knobs back to the profile or the adaptive loop, with their values from the start
    #[arg(long, value_name = "KEY", num_args = 1..)]
    pub release: Vec<String>,
}

#[derive(Args, Clone, Debug)]
pub struct ExplainArguments {
    /// The pid of a task: a process or a thread
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: i32,
    /// Observe it for S seconds, 1 to 60
    #[arg(long = "for", value_name = "S", default_value_t = 2,
          value_parser = clap::value_parser!(u64).range(1..=60))]
    pub seconds: u64,
    /// Report each longer wait, in microseconds
    #[arg(long, value_name = "US", default_value_t = 1_000)]
    pub over_us: u64,
}

#[derive(Args, Clone, Debug)]
pub struct TopArguments {
    /// Print one table and end
    #[arg(long)]
    pub once: bool,
    /// The interval in seconds, 0.1 to 86400
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
    /// Sort by cpu, wait, wakeups, tier, name or pid
    #[arg(long, value_name = "KEY", default_value = "cpu", value_parser = words::SORT_KEYS,
          hide_possible_values = true)]
    pub sort: Key,
    /// Rows of a table that is printed
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,
}

#[derive(Args, Clone, Debug)]
pub struct MetricsArguments {
    /// Write them to PATH, for the textfile collector of node_exporter; complete or not at all
    #[arg(long, value_name = "PATH")]
    pub textfile: Option<PathBuf>,
    /// Write them again every S seconds, until interrupted
    #[arg(long, value_name = "S", requires = "textfile", value_parser = interval)]
    pub every: Option<f64>,
}

#[derive(Args, Clone, Debug)]
pub struct ProcdbArguments {
    /// Another file than /var/lib/scx_pandemonium_user/procdb.bin
    #[arg(long, value_name = "PATH", global = true)]
    pub procdb: Option<PathBuf>,
    #[command(subcommand)]
    pub what: ProcdbCommand,
}

/// Commands for learned profiles.
#[derive(Clone, Debug, Subcommand)]
pub enum ProcdbCommand {
    /// Print a table
    Show,
    /// Print everything as JSON
    Export,
    /// Forget one program, or all
    Forget(ForgetArguments),
}

#[derive(Args, Clone, Debug)]
pub struct RulesArguments {
    #[command(subcommand)]
    pub what: RulesCommand,
}

/// Commands for rules.
#[derive(Clone, Debug, Subcommand)]
pub enum RulesCommand {
    /// Print which rule applies to which running process; needs neither root nor a scheduler
    Test {
        /// A file of rules, or a folder of such; may be given several times [default: the installed
        /// rules]
        #[arg(long, value_name = "FILE")]
        rules: Vec<PathBuf>,
    },
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

/// The arguments of another program.
#[derive(Args, Clone, Debug)]
pub struct Words {
    /// Passed on unchanged
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

impl Command {
    /// Whether it only reads files, or asks the scheduler that runs.
    pub fn only_reads(&self) -> bool {
        matches!(
            self,
            Command::Tune(_)
                | Command::Explain(_)
                | Command::Top(_)
                | Command::Metrics(_)
                | Command::Procdb(_)
                | Command::Rules(_)
        )
    }
}

impl Options {
    /// The chosen policy.
    pub fn policy(&self) -> PolicyInfo {
        self.policy.unwrap_or_else(|| catalog().default_policy())
    }

    /// Bytes of the kernel's debug dump after an error: as many as are kept, unless the user asks
    /// for others. It tells the culprit also if it is not printed.
    pub fn dump_length(&self) -> u32 {
        match self.exit_dump_len {
            0 => DUMP_MAX as u32,
            asked => asked,
        }
    }

    /// Whether the user wants to see that dump.
    pub fn prints_dump(&self) -> bool {
        self.verbose || self.exit_dump_len > 0
    }

    /// Checks what clap cannot: options against each other.
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

/// The script by which a shell completes command lines.
pub fn completions(shell: Shell) -> Vec<u8> {
    crate::completions::script(Options::command(), shell)
}

/// The manual page.
pub fn manual() -> Vec<u8> {
    crate::manual::page(Options::command())
}

/// The name and version of this program, and of the backend.
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
    fn the_refusal_of_a_value_names_its_range() {
        for (args, range) in [
            (["--slice-us", "0"], "100..=100000"),
            (["-s", "100001"], "100..=100000"),
            (["-S", "99"], "100..=100000"),
            (["--nr-cpus", "0"], "1..=1024"),
            (["--nr-cpus", "1025"], "1..=1024"),
            (["--record-buffer", "0"], "1..=256"),
            (["--stats", "0"], "0.1..=86400"),
            (["--monitor", "nan"], "0.1..=86400"),
            (["--boost", "game:urgent"], "lat-critical, interactive or batch"),
            (["--primary-domain", "0-"], "0-3,8,10-20:2"),
            (["--primary-domain", "1024"], "0 to 1023"),
            (["top", "--interval=0"], "0.1..=86400"),
            (["top", "--sort=age"], "cpu, wait, wakeups, tier, name, pid"),
            (["metrics", "--every=5"], "--textfile"),
        ] {
            let message = parse(&args).unwrap_err();
            assert!(message.contains(range), "{args:?}: {message}");
        }
        assert!(parse(&["--compositor", ""]).is_err());
        assert!(parse(&["--policy", "magic"]).is_err());
    }

    #[test]
    fn the_kernel_is_asked_for_the_dump_that_is_kept_and_it_is_printed_if_the_user_wants_it() {
        let of = |args: &[&str]| {
            let options = parse(args).unwrap();
            (options.dump_length() as usize, options.prints_dump())
        };
        assert_eq!(of(&[]), (DUMP_MAX, false));
        assert_eq!(of(&["--verbose"]), (DUMP_MAX, true));
        assert_eq!(of(&["--exit-dump-len", "65536"]), (65_536, true));
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let many = ["--compositor=x", "--boost=y"].repeat(30);
        assert!(parse(&many).unwrap().check().is_err());
        assert!(parse(&[]).unwrap().check().is_ok());
        assert!(parse(&["--domain-strict"]).unwrap_err().contains("--primary-domain"));
        assert!(parse(&["--no-procdb", "--procdb", "x"]).is_err());
        assert!(parse(&["-v", "tune"]).is_err(), "options and commands exclude each other");
        assert!(parse(&["procdb", "forget"]).is_err(), "forget needs a name or --all");
        assert!(parse(&["procdb", "forget", "--all", "cc1"]).is_err());
    }

    #[test]
    fn the_short_options_of_other_schedulers_exist() {
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
    fn the_manual_and_the_completions_have_every_option() {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (manual, script) = (text(manual()).replace("\\-", "-"), text(completions(Shell::Bash)));
        for option in
            ["--primary-domain", "--record", "--dump-log", "--dump-tasks", "--boost", "--no-procdb"]
        {
            assert!(manual.contains(option) && script.contains(option), "{option}");
        }
        assert!(script.contains("procdb") && manual.contains("tune"));
    }

    #[test]
    fn completions_offer_the_values_of_options_that_take_a_word() {
        let script = String::from_utf8(completions(Shell::Bash)).unwrap();
        let keys = Key::ALL.map(Key::name).join(" ");
        for words in ["pandemonium fifo vruntime", "auto gaming lowlatency powersave server", &keys]
        {
            let offered = format!("COMPREPLY=($(compgen -W \"{words}\" -- \"${{cur}}\"))");
            assert!(script.contains(&offered), "{words}");
        }
    }

    /// The patch gives scx_loader the flags of each mode.
    #[test]
    fn the_flags_for_scx_loader_are_options() {
        let patch = include_str!("../docs/upstream.md").split("# A patch for scx_loader").nth(1);
        let added = patch.expect("its section").lines().filter(|line| line.starts_with("+ "));
        let arms = added.filter(|line| line.contains("SchedMode::"));
        let flags = arms.filter_map(|line| line.split("vec![").nth(1)?.split(']').next());
        let flags: Vec<Vec<&str>> = flags
            .map(|flags| flags.split(", ").map(|flag| flag.trim_matches('"')).collect())
            .map(|flags: Vec<&str>| flags.into_iter().filter(|flag| !flag.is_empty()).collect())
            .collect();
        assert_eq!(flags.len(), 5, "{flags:?}");
        assert_eq!(flags.iter().filter(|flags| !flags.is_empty()).count(), 4, "{flags:?}");
        for flags in flags {
            assert!(parse(&flags).is_ok_and(|options| options.check().is_ok()), "{flags:?}");
        }
    }

    /// `tests/operating.rs` runs those that only read.
    #[test]
    fn every_command_in_the_documents_is_a_command() {
        let pages = [
            include_str!("../README.md"),
            include_str!("../docs/operating.md"),
            include_str!("../docs/gaming.md"),
        ];
        let mut count = 0;
        for line in pages.iter().flat_map(|page| page.lines()) {
            let line = line.split(" #").next().unwrap_or_default().trim();
            let line = line.strip_prefix("sudo ").unwrap_or(line).trim_start();
            let line = line.strip_prefix("target/release/").unwrap_or(line);
            let mut words = line.split_whitespace();
            if words.next() == Some("scx_pandemonium_user") {
                let words: Vec<&str> = words.take_while(|word| !">|".contains(*word)).collect();
                let parsed = parse(&words);
                let asks = words.contains(&"--help");
                assert!(asks || parsed.is_ok_and(|it| it.check().is_ok()), "{words:?}");
                count += 1;
            }
        }
        assert!(count > 20, "{count}");
    }
}
