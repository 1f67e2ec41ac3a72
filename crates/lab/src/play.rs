// SPDX-License-Identifier: GPL-2.0-only

//! One simulated run: which workload, on which machine, under which policy.

use crate::cli::{PolicyName, What};
use crate::shipped;
use anyhow::{Context, Result, anyhow, bail};
use pandemonium_engine::knobs::Knobs;
use pandemonium_engine::time::Span;
use pandemonium_policies::{Dropping, Fifo, Pandemonium, Vruntime};
use pandemonium_sim::judge::Demands;
use pandemonium_sim::machine::{Costs, Setup};
use pandemonium_sim::observer::Observer;
use pandemonium_sim::trial::{Trial, Tried};
use std::time::{Duration, Instant};

/// A trial and the policy that it is for.
#[derive(Clone, Debug)]
pub struct Case {
    pub trial: Trial,
    pub policy: PolicyName,
}

/// What came of it, and how long that took.
pub struct Played {
    pub tried: Tried,
    pub took: Duration,
}

impl Case {
    /// The case that the command line describes.
    pub fn new(what: &What, policy: PolicyName, seed: u64) -> Result<Case> {
        let (workload, shape) = shipped::load(&what.workload, what.cpus)?;
        let mut setup = Setup::new(shape, seed);
        setup.fast_path = !what.no_fast_path;
        setup.builtin_idle = !what.full_user;
        for cost in &what.cost {
            set_cost(&mut setup.costs, cost)?;
        }
        let set = Knobs::parse_file(&what.set.join("\n"));
        let (knobs, pinned) = set.map_err(|error| anyhow!("--set: {}", error.error))?;
        setup.kernel_slice = knobs.slice_min;
        let demands = Demands::stated(&setup, &knobs);
        let trial = Trial { workload, setup, knobs, pinned, storm: None, demands };
        Ok(Case::of(trial, policy))
    }

    /// A trial under a policy, of which no more is demanded than it states.
    pub fn of(mut trial: Trial, policy: PolicyName) -> Case {
        if matches!(policy, PolicyName::Fifo | PolicyName::Vruntime) {
            trial.demands = trial.demands.of_the_kernel();
            // As the driver has it: a yardstick should not change its length.
            trial.knobs.rules.adaptive = false;
        }
        Case { trial, policy }
    }

    /// Runs it. The one place where a policy's name becomes a policy.
    pub fn play(&self, extra: &mut dyn Observer) -> Played {
        let started = Instant::now();
        let (trial, setup) = (&self.trial, self.trial.policy_setup());
        let tried = match self.policy {
            PolicyName::Pandemonium => trial.run(extra, || Pandemonium::new(&setup)),
            PolicyName::Fifo => trial.run(extra, Fifo::new),
            PolicyName::Vruntime => trial.run(extra, Vruntime::new),
            PolicyName::Dropping => trial.run(extra, || Dropping::new(Pandemonium::new(&setup))),
        };
        Played { tried, took: started.elapsed() }
    }
}

type Cost = (&'static str, &'static str, fn(&mut Costs) -> &mut Span);

/// The costs that a person may change, in nanoseconds.
const COSTS: [Cost; 11] = [
    ("tick_ns", "from one tick to the next", |costs| &mut costs.tick),
    ("tick_spread_ns", "within which all CPUs take their tick", |costs| &mut costs.tick_spread),
    ("switch_ns", "from one task to another", |costs| &mut costs.switch),
    ("interrupt_ns", "until an interrupt reaches another CPU", |costs| &mut costs.interrupt),
    ("idle_exit_ns", "until an idle CPU is awake", |costs| &mut costs.idle_exit),
    ("wake_ns", "what waking somebody costs the waker", |costs| &mut costs.wake),
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
