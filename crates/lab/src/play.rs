// SPDX-License-Identifier: GPL-2.0-only

//! One simulated run: which workload, on which machine, under which policy.

use crate::offered::catalog;
use crate::shipped;
use crate::what::What;
use anyhow::{Context, Result, anyhow, bail};
use pandemonium_engine::knobs::{KeySet, Values};
use pandemonium_engine::time::Span;
use pandemonium_engine::{KernelRules, PolicyInfo};
use pandemonium_print::print_error;
use pandemonium_sim::checkers::Demands;
use pandemonium_sim::machine::{Costs, Setup};
use pandemonium_sim::observer::Observer;
use pandemonium_sim::trial::{Trial, Tried};
use std::time::{Duration, Instant};

/// A trial that is about to be played.
#[derive(Clone, Debug)]
pub struct Case {
    pub trial: Trial,
}

/// What came of it, and how long that took.
pub struct Played {
    pub tried: Tried,
    pub took: Duration,
}

impl Case {
    /// The case that the command line describes.
    pub fn new(what: &What, policy: PolicyInfo, seed: u64) -> Result<Case> {
        let (workload, shape) = shipped::load(&what.workload, what.cpus)?;
        let mut setup = Setup::new(shape, seed);
        setup.fast_path = !what.no_fast_path;
        setup.builtin_idle = !what.full_user;
        for cost in &what.cost {
            set_cost(&mut setup.costs, cost)?;
        }
        let (values, pinned) = values(policy, &what.set)?;
        let usual = KernelRules::default().idle_slice;
        setup.kernel_slice = values.time("slice_min_us").unwrap_or(usual);
        let demands = Demands::stated(&setup, &policy, &values);
        Ok(Case { trial: Trial { workload, setup, policy, values, pinned, storm: None, demands } })
    }

    /// The policy.
    pub fn policy(&self) -> PolicyInfo {
        self.trial.policy
    }

    /// Runs it.
    pub fn play(&self, extra: &mut dyn Observer) -> Played {
        let started = Instant::now();
        let tried = self.trial.run(extra);
        Played { tried, took: started.elapsed() }
    }
}

/// The policy's defaults, changed by `--set`. A knob that only other policies have is left out, so
/// that policies can be compared over it.
fn values(policy: PolicyInfo, set: &[String]) -> Result<(Values, KeySet)> {
    let name = |assignment: &&String| assignment.split('=').next().unwrap_or_default().to_owned();
    let knows = |info: &PolicyInfo, name: &str| info.knobs.named(name.trim()).is_some();
    let is_another_s = |assignment: &&String| {
        let name = name(assignment);
        !knows(&policy, &name) && catalog().iter().any(|info| knows(&info, &name))
    };
    let own: Vec<&str> = set.iter().filter(|it| !is_another_s(it)).map(String::as_str).collect();
    let amended = policy.knobs.defaults().amended(&own.join("\n"));
    let amended = amended.map_err(|error| anyhow!("--set: {}", error.error))?;
    for (old, new) in &amended.renamed {
        print_error(&format!("warning: {old} is called {new} now"));
    }
    Ok((amended.values, amended.named))
}

type Cost = (&'static str, &'static str, fn(&mut Costs) -> &mut Span);

/// The costs that a person may change, in nanoseconds.
const COSTS: [Cost; 11] = [
    ("tick_ns", "from one tick to the next", |costs| &mut costs.tick),
    ("tick_spread_ns", "within which all CPUs take their tick", |costs| &mut costs.tick_spread),
    ("switch_ns", "from one task to another", |costs| &mut costs.switch),
    ("interrupt_ns", "until an interrupt reaches another CPU", |costs| &mut costs.interrupt),
    ("idle_exit_ns", "until an idle CPU is awake", |costs| &mut costs.idle_exit),
    ("wake_ns", "what a wakeup costs the waker", |costs| &mut costs.wake),
    ("round_ns", "a round of the scheduler process", |costs| &mut costs.round),
    ("arrival_ns", "taking in one message", |costs| &mut costs.arrival),
    ("decision_ns", "making one decision", |costs| &mut costs.decision),
    ("call_ns", "a system call of the scheduler process", |costs| &mut costs.call),
    ("reload_ns", "without a scheduler while CPUs come or go", |costs| &mut costs.reload),
];

fn set_cost(costs: &mut Costs, assignment: &str) -> Result<()> {
    if assignment == "help" {
        let mut defaults = Costs::default();
        let lines = COSTS.map(|(name, about, at)| {
            format!("  {name:16} {about}; {} by default", at(&mut defaults).as_nanos())
        });
        bail!("the costs, in nanoseconds:\n{}", lines.join("\n"));
    }
    let (name, value) = assignment
        .split_once('=')
        .with_context(|| format!("--cost {assignment}: expected COST=VALUE"))?;
    let ns: u64 = value
        .parse()
        .with_context(|| format!("--cost {assignment}: expected nanoseconds, not {value:?}"))?;
    if name == "smt_percent" {
        costs.smt_percent = ns.clamp(1, 100) as u32;
        return Ok(());
    }
    let known = COSTS.iter().find(|cost| cost.0 == name);
    let (_, _, at) = known.with_context(|| {
        let names = COSTS.map(|cost| cost.0).join(", ");
        format!("there is no cost {name:?}; the costs are {names}, smt_percent")
    })?;
    *at(costs) = Span::from_nanos(ns);
    Ok(())
}
