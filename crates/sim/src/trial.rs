// SPDX-License-Identifier: GPL-2.0-only

//! One run of a policy, with checkers and measurements.

use super::checkers::{Checkers, Demands, Violation};
use super::machine::{KernelCounters, Machine, START, Setup};
use super::measure::{Measure, Outcome};
use super::observer::{Event, Observer};
use super::sampler::Sampler;
use super::topology::Shape;
use super::workload::Workload;
use alloc::boxed::Box;
use core::cell::Cell;
use pandemonium_engine::adapting::{Adapting, INTERVAL};
use pandemonium_engine::knobs::{KeySet, Values};
use pandemonium_engine::time::Span;
use pandemonium_engine::topology::{CpuPlace, Topology};
use pandemonium_engine::{Policy, PolicyInfo};

/// How long a CPU may idle while a task waits that may use it, and how much longer that task may
/// wait. Such a wait should last microseconds, and mostly does; docs/simulator.md, "What it found",
/// says why it can be this long.
const IDLE_BESIDE: Span = Span::from_millis(1_000);

/// The kernel's watchdog timeout: the bound on waits under a policy that guarantees none.
const WATCHDOG: Span = Span::from_millis(5_000);

/// Everything that determines a run.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The workload.
    pub workload: Workload,
    /// The machine.
    pub setup: Setup,
    /// The policy.
    pub policy: PolicyInfo,
    /// The values of its knobs at the start.
    pub values: Values,
    /// The knobs that the adaptive loop must not change.
    pub pinned: KeySet,
    /// Until when faults are injected, if they are.
    pub storm: Option<Span>,
    /// The bounds that the checkers apply.
    pub demands: Demands,
}

/// The result of a trial.
#[derive(Debug)]
pub struct Tried {
    /// The measurements.
    pub outcome: Outcome,
    /// The first violation that the checkers found, if any.
    pub verdict: Result<(), Violation>,
    /// The counters of the backend and the fast path.
    pub counters: KernelCounters,
}

impl Trial {
    /// Runs the policy, and reports the events to `extra` too.
    pub fn run(&self, extra: &mut dyn Observer) -> Tried {
        let setup = self.policy_setup();
        self.run_with(extra, || (self.policy.build)(&setup))
    }

    /// Runs the policies that `make` returns in the place of the trial's own.
    pub fn run_with<Q: Policy>(&self, extra: &mut dyn Observer, make: impl Fn() -> Q) -> Tried {
        let (cpus, end) = (self.setup.shape.cpus, self.workload.duration);
        let control = (self.policy.adapting)(cpus, self.values, self.pinned);
        // A scheduler that is loaded again starts with the newest values.
        let values = Cell::new(control.values());
        let mut make = || {
            let mut policy = make();
            policy.tune(&values.get());
            policy
        };
        let checkers = Checkers::new(cpus, self.demands, self.storm.is_some());
        let measured = (Measure::new(&self.workload, cpus), Sampler::new(cpus));
        let observer = (measured, checkers, extra);
        let mut machine = Machine::new(self.setup.clone(), self.workload.clone(), observer);
        let mut policy = make();
        machine.obey(&policy.kernel_rules(START));
        machine.observer().saw(START, &Event::Applied(values.get()));
        let mut adaptive = Adaptive { control, next: INTERVAL, values: &values };
        // Stopping at the warm-up's end accounts the work so far, so that none of it is measured.
        adaptive.run(&mut machine, self.workload.warmup, &mut policy, &mut make);
        if let Some(storm) = self.storm {
            adaptive.run(&mut machine, storm, &mut policy, &mut make);
            machine.calm();
        }
        adaptive.run(&mut machine, end, &mut policy, &mut make);
        let counters = *machine.counters();
        let ((measure, _), checkers, _) = machine.into_observer();
        let end = START + end;
        Tried { outcome: measure.finish(end), verdict: checkers.finish(end), counters }
    }

    /// The setup that a policy gets at its start.
    pub fn policy_setup(&self) -> pandemonium_engine::Setup {
        let shape = &self.setup.shape;
        pandemonium_engine::Setup {
            topology: topology(shape),
            ..pandemonium_engine::Setup::of_cpus(shape.cpus)
        }
    }
}

/// The adaptive loop, which the driver runs once a second.
struct Adaptive<'a> {
    control: Box<dyn Adapting>,
    /// When it runs next.
    next: Span,
    /// The newest settings.
    values: &'a Cell<Values>,
}

/// The observers of a trial: measurements, the adaptive loop's sampler, the checkers, and the
/// caller's observer.
type Watched<'w> = ((Measure, Sampler), Checkers, &'w mut dyn Observer);

impl Adaptive<'_> {
    /// Runs the machine until `end` after its start.
    fn run<Q: Policy>(
        &mut self,
        machine: &mut Machine<Watched<'_>>,
        end: Span,
        policy: &mut Q,
        renew: &mut dyn FnMut() -> Q,
    ) {
        while self.next <= end {
            machine.run(self.next, policy, renew);
            let now = START + self.next;
            let sample = machine.observer().0.1.take(now);
            if self.control.step(now, &sample) {
                let values = self.control.values();
                policy.tune(&values);
                machine.obey(&policy.kernel_rules(now));
                self.values.set(values);
                machine.observer().saw(now, &Event::Applied(values));
            }
            let regime = self.control.report().regime;
            machine.observer().saw(now, &Event::Looked { regime, idle: sample.idle });
            self.next += INTERVAL;
        }
        machine.run(end, policy, renew);
    }
}

impl Demands {
    /// The bounds that the policy guarantees, and what the machine adds: every task before it has a
    /// slice, a slice ends at a tick, and a CPU may idle for `IDLE_BESIDE` before it looks for
    /// work.
    pub fn stated(setup: &Setup, policy: &PolicyInfo, values: &Values) -> Demands {
        let bounds = (policy.bounds)(setup.shape.cpus, values);
        let slice = bounds.slice + setup.costs.tick.scale(2, 1);
        Demands {
            wait: bounds.wait.map_or(WATCHDOG, |wait| wait + slice + IDLE_BESIDE),
            wait_each: slice,
            storm: Span::from_millis(1_000),
            idle: IDLE_BESIDE,
            shares_percent: None,
        }
    }
}

fn topology(shape: &Shape) -> Topology {
    let place = |cpu: u32| CpuPlace {
        core: (cpu / shape.smt) as u16,
        l2: (cpu / shape.l2) as u16,
        llc: (cpu / shape.l3) as u16,
        node: (cpu / shape.node) as u16,
    };
    Topology::new((0..shape.cpus).map(place).collect())
}
