// SPDX-License-Identifier: GPL-2.0-only

//! From the command line to the knobs, the domain and the policy's setup.

use super::cli::{Options, UrgentWish};
use super::machine::Machine;
use super::output;
use super::urgent_cpus;
use anyhow::{Context, Result, ensure};
use pandemonium_engine::Setup;
use pandemonium_engine::knobs::{Amended, KeySet, KnobProfile, Values};
use pandemonium_engine::task::{Comm, Tier};
use pandemonium_engine::time::Span;
use pandemonium_engine::topology::Domain;
use pandemonium_host::failure::Failure;
use pandemonium_rules::Rules;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The largest file of knobs that is read. The one that the lab prints has 4 KiB.
const FILE_MAX: u64 = 64 * 1024;

/// Checks the options against each other, the files that they name, and the machine.
pub fn check(options: &Options) -> Result<(), Failure> {
    knobs(options)?;
    profile(options)?;
    Rules::read(&options.rules).map_err(Failure::Usage)?;
    if options.primary_domain.is_some() {
        domain(options, &Machine::observe()?)?;
    } else if options.urgent_cpus != UrgentWish::Auto {
        urgent_cpus::preferred(options, &Machine::observe()?)?;
    }
    Ok(())
}

/// The values of the policy's knobs at the start, and the knobs that the user has set: in the file
/// first, then by options, which win.
pub fn knobs(options: &Options) -> Result<(Values, KeySet), Failure> {
    let policy = options.policy();
    let defaults = policy.knobs.defaults();
    let (values, named) = match &options.knobs {
        Some(path) => {
            let amended = read(path, &defaults).map_err(|e| Failure::Usage(format!("{e:#}")))?;
            for (old, new) in &amended.renamed {
                output::warn(&format!("the knob {old} is now named {new}"));
            }
            (amended.values, amended.named)
        }
        None => (defaults, KeySet::none(policy.knobs)),
    };
    let mut start = Start { policy: policy.name, values, chosen: named };
    slices(options, &mut start)?;
    if options.no_adaptive && policy.knobs.named("rule.adaptive").is_some() {
        start.put("rule.adaptive", 0, "--no-adaptive")?;
    }
    if options.no_procdb && policy.knobs.named("rule.procdb").is_some() {
        start.put("rule.procdb", 0, "--no-procdb")?;
    }
    for (given, knob, word, option) in [
        (options.no_preempt, "rule.preempt", 0, "--no-preempt"),
        (options.no_orders, "rule.orders", 0, "--no-orders"),
        (options.low_power, "rule.low_power", 1, "--low-power"),
        (options.fifo_mode, "rule.fifo_mode", 1, "--fifo-mode"),
        (options.percpu_local, "percpu_local", 1, "--percpu-local"),
    ] {
        if given {
            start.put(knob, word, option)?;
        }
    }
    start.values.check().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok((start.values, start.chosen))
}

/// The profile of the command line.
pub fn profile(options: &Options) -> Result<Option<&'static KnobProfile>, Failure> {
    let find = |name: &String| KnobProfile::find(options.policy().profiles, name);
    options.profile.as_ref().map(find).transpose().map_err(Failure::Usage)
}

/// The values so far.
struct Start {
    policy: &'static str,
    values: Values,
    chosen: KeySet,
}

impl Start {
    fn put(&mut self, knob: &str, word: u64, option: &str) -> Result<(), Failure> {
        if !self.values.put(knob, word) {
            return Err(Failure::Usage(format!(
                "{option} sets the knob {knob}, which the policy {} does not have",
                self.policy
            )));
        }
        self.chosen = self.chosen.with(knob);
        Ok(())
    }

    /// Limits a knob that the option does not name, if the policy has it.
    fn bound(&mut self, knob: &str, bound: impl Fn(Span) -> Span) {
        if let Some(now) = self.values.time(knob) {
            self.values.put(knob, bound(now).as_nanos());
        }
    }
}

/// `-s` is the longest slice of any task, `-S` the shortest. A policy with one slice for all tasks
/// has the knob `slice_us` only.
fn slices(options: &Options, start: &mut Start) -> Result<(), Failure> {
    let tiered =
        start.values.get("batch_slice_us").is_some() && start.values.get("slice_min_us").is_some();
    let longest_knob = if tiered { "batch_slice_us" } else { "slice_us" };
    if let Some(us) = options.slice_us {
        let longest = Span::from_micros(us);
        start.put(longest_knob, longest.as_nanos(), "--slice-us")?;
        if tiered {
            start.bound("slice_us", |slice| slice.min(longest));
            start.bound("burst_slice_us", |slice| slice.min(longest));
        }
    }
    if let Some(us) = options.slice_us_min {
        let shortest = Span::from_micros(us);
        let longest = start.values.time(longest_knob).unwrap_or(shortest);
        if shortest > longest {
            return Err(Failure::Usage(format!(
                "--slice-us-min {us} is above --slice-us {}: the shortest slice cannot be longer \
                 than the longest",
                longest.as_micros()
            )));
        }
        start.put("slice_min_us", shortest.as_nanos(), "--slice-us-min")?;
        start.bound("slice_us", |slice| slice.max(shortest));
        start.bound("burst_slice_us", |slice| slice.max(shortest));
    }
    Ok(())
}

fn read(path: &Path, defaults: &Values) -> Result<Amended> {
    let place = || format!("the file of knobs {}", path.display());
    let mut text = String::new();
    let mut file = File::open(path).with_context(place)?.take(FILE_MAX + 1);
    file.read_to_string(&mut text).with_context(place)?;
    ensure!(text.len() as u64 <= FILE_MAX, "{}: it is larger than {FILE_MAX} bytes", place());
    defaults.amended(&text).with_context(place)
}

/// The number of CPUs from which limits are derived: those online, since no other one runs a task.
pub fn cpus(options: &Options, machine: &Machine) -> u32 {
    options.nr_cpus.unwrap_or(machine.online().count())
}

/// The policy's setup. If all CPUs of the domain have gone offline since the start, there is no
/// domain until the next restart.
pub fn setup(options: &Options, machine: &Machine) -> Setup {
    let boosts = options.boost.iter().map(|boost| (boost.name, boost.tier));
    let compositors = options.compositor.iter().map(|name| (*name, Tier::LatCritical));
    let domain = domain(options, machine).unwrap_or_else(|failure| {
        output::warn(&format!("{failure}; until the next restart every CPU is used"));
        None
    });
    Setup {
        cpus: cpus(options, machine),
        names: boosts.chain(compositors).chain([supervisor()]).collect(),
        topology: machine.topology(),
        domain,
    }
}

/// The supervisor serves statistics, writes recordings and prints. It is Interactive, so that the
/// user sees the state of a machine that is crowded with Batch tasks. The kernel truncates its name
/// to this.
fn supervisor() -> (Comm, Tier) {
    (Comm::from_text("scx_pandemonium"), Tier::Interactive)
}

/// The CPUs to prefer; `None` for all of them.
pub fn domain(options: &Options, machine: &Machine) -> Result<Option<Domain>, Failure> {
    match &options.primary_domain {
        Some(wish) => machine.domain(wish, options.domain_strict),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::parse;
    use pandemonium_engine::knobs::Table;
    use pandemonium_policies::knobs::{Knobs, TABLE};

    fn of(args: &[&str]) -> Result<(Knobs, Vec<&'static str>), String> {
        let (values, chosen) = knobs(&parse(args).unwrap()).map_err(|error| error.to_string())?;
        Ok((Knobs::of(&values), chosen.iter().map(|knob| knob.name).collect()))
    }

    fn with_file(text: &str, args: &[&str]) -> Result<(Knobs, Vec<&'static str>), String> {
        let id = std::thread::current().id();
        let name = format!("pandemonium-knobs-{}-{id:?}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        let outcome = of(&[&["--knobs", path.to_str().unwrap()], args].concat());
        std::fs::remove_file(&path).unwrap();
        outcome.map_err(|error| error.replace(path.to_str().unwrap(), "FILE"))
    }

    #[test]
    fn without_options_no_knob_is_set() {
        assert_eq!(of(&[]), Ok((Knobs::default(), vec![])));
    }

    #[test]
    fn the_longest_slice_limits_the_other_slices() {
        let (knobs, chosen) = of(&["-s", "500"]).unwrap();
        let us = Span::from_micros;
        assert_eq!(
            (knobs.batch_slice, knobs.slice, knobs.burst_slice),
            (us(500), us(500), us(500))
        );
        assert_eq!(chosen, ["batch_slice_us"]);
        let (knobs, chosen) = of(&["-s", "20000", "-S", "2000"]).unwrap();
        let slices = (knobs.batch_slice, knobs.slice, knobs.slice_min);
        assert_eq!(slices, (us(20_000), us(2_000), us(2_000)));
        assert_eq!(chosen, ["slice_min_us", "batch_slice_us"]);
    }

    #[test]
    fn a_shortest_slice_above_the_longest_is_refused() {
        for args in [&["-s", "1000", "-S", "2000"][..], &["-S", "5000"]] {
            assert!(of(args).unwrap_err().contains("is above --slice-us"), "{args:?}");
        }
        assert!(of(&["-s", "100000", "-S", "100000"]).is_ok());
    }

    #[test]
    fn each_option_sets_its_knob() {
        let (knobs, chosen) =
            of(&["--no-adaptive", "--no-preempt", "--no-procdb", "--low-power"]).unwrap();
        let rules = knobs.rules;
        assert!(!rules.adaptive && !rules.preempt && !rules.procdb && rules.low_power);
        assert_eq!(chosen, ["rule.low_power", "rule.preempt", "rule.adaptive", "rule.procdb"]);
        let (knobs, _) = of(&["--fifo-mode", "--percpu-local"]).unwrap();
        assert!(knobs.rules.fifo_mode && knobs.percpu_local);
        let refused = of(&["--policy", "fifo", "--low-power"]).unwrap_err();
        assert!(refused.contains("which the policy fifo does not have"), "{refused}");
    }

    #[test]
    fn an_unknown_profile_is_refused_with_the_names_that_there_are() {
        let named = |args: &[&str]| match profile(&parse(args).unwrap()) {
            Ok(profile) => Ok(profile.map(|profile| profile.name)),
            Err(failure) => Err(failure.to_string()),
        };
        assert_eq!(named(&["--profile", "server"]), Ok(Some("server")));
        assert_eq!(named(&[]), Ok(None));
        let refused = named(&["--profile", "turbo"]).unwrap_err();
        let names = "there are auto, gaming, lowlatency, powersave, server";
        assert_eq!(refused, format!("there is no profile \"turbo\"; {names}"));
        assert!(named(&["--profile", "auto", "--policy", "fifo"]).unwrap_err().contains("none"));
    }

    #[test]
    fn a_file_is_read_and_options_win() {
        let text = "# mine\nslice_us=2000\nbatch_slice_us=8000 # long\nrule.adaptive=on\n";
        let (knobs, chosen) = with_file(text, &[]).unwrap();
        assert_eq!(knobs.slice, Span::from_millis(2));
        assert_eq!(chosen, ["slice_us", "batch_slice_us", "rule.adaptive"]);
        let (knobs, _) = with_file(text, &["-s", "1000", "--no-adaptive"]).unwrap();
        let slices = (knobs.slice, knobs.batch_slice);
        assert_eq!(slices, (Span::from_millis(1), Span::from_millis(1)));
        assert!(!knobs.rules.adaptive);
    }

    #[test]
    fn an_error_in_the_file_names_the_line() {
        let error = |text: &str| with_file(text, &[]).unwrap_err();
        assert_eq!(
            error("lag_scale=4\n\nslice_us=99\n"),
            "the file of knobs FILE: line 3: slice_us takes 100 to 100000 microseconds, not \"99\""
        );
        assert_eq!(error("speed=1"), "the file of knobs FILE: line 1: there is no knob \"speed\"");
        assert!(error("slice_min_us=5000").contains("must not be above"));
        let long = "#".repeat(FILE_MAX as usize + 1);
        assert!(error(&long).ends_with("it is larger than 65536 bytes"));
        let missing = of(&["--knobs", "/nowhere/knobs"]).unwrap_err();
        assert!(missing.starts_with("the file of knobs /nowhere/knobs: No such file"), "{missing}");
        assert!(of(&["--knobs", "/dev/zero"]).is_err());
    }

    #[test]
    fn the_printed_knobs_are_a_valid_file() {
        let (knobs, chosen) =
            with_file(&Table::file_of(&TABLE.defaults()).to_string(), &[]).unwrap();
        assert_eq!(knobs, Knobs::default());
        assert_eq!(chosen.len(), TABLE.len());
    }

    #[test]
    fn boosts_come_before_compositors() {
        let options =
            parse(&["--compositor", "x", "--boost", "y:batch", "--nr-cpus", "7"]).unwrap();
        let setup = setup(&options, &Machine::observe().unwrap());
        let names: Vec<_> =
            setup.names.iter().map(|(name, tier)| (name.to_string(), *tier)).collect();
        let own = ("scx_pandemonium".into(), Tier::Interactive);
        assert_eq!(names, [("y".into(), Tier::Batch), ("x".into(), Tier::LatCritical), own]);
        assert_eq!(setup.cpus, 7);
    }
}
