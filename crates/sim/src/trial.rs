// SPDX-License-Identifier: GPL-2.0-only

//! One judged and measured run of a policy.

use super::judge::{Checkers, Demands, Violation};
use super::machine::{KernelCounters, Machine, START, Setup};
use super::measure::{Measure, Outcome};
use super::observer::{Event, Observer};
use super::pulse::Pulse;
use super::topology::Shape;
use super::workload::Workload;
use core::cell::Cell;
use pandemonium_engine::Policy;
use pandemonium_engine::knobs::{KeySet, Knobs};
use pandemonium_engine::time::Span;
use pandemonium_engine::topology::{CpuPlace, Topology};
use pandemonium_policies::control::{Controller, INTERVAL};
use pandemonium_policies::{self, LIGHT_WAIT, Scaling};

/// How long a CPU may idle beside a task that waits for it, and how much longer a task may wait for
/// that. It should be some microseconds, and mostly is; docs/simulator.md, "What it found", says
/// why it can be this long.
const IDLE_BESIDE: Span = Span::from_millis(1_000);

/// Everything that decides how a run goes, but for the policy.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What runs.
    pub workload: Workload,
    /// On which machine.
    pub setup: Setup,
    /// With which settings at the start.
    pub knobs: Knobs,
    /// Those of them that the adaptive loop leaves alone. It does not run at all if the settings
    /// say so.
    pub pinned: KeySet,
    /// Until when things go wrong on purpose, if they do.
    pub storm: Option<Span>,
    /// What the judges demand.
    pub demands: Demands,
}

/// What came of it.
#[derive(Debug)]
pub struct Tried {
    /// What was measured.
    pub outcome: Outcome,
    /// What the judges say.
    pub verdict: Result<(), Violation>,
    /// What the kernel half counted.
    pub counters: KernelCounters,
}

impl Trial {
    /// Runs `make`'s policy, and shows `extra` what happens.
    pub fn run<Q: Policy>(&self, extra: &mut dyn Observer, make: impl Fn() -> Q) -> Tried {
        let (cpus, end) = (self.setup.shape.cpus, self.workload.duration);
        let control = Controller::new(cpus, self.knobs, self.pinned);
        // A scheduler that is loaded anew begins with the newest settings.
        let knobs = Cell::new(*control.knobs());
        let mut make = || {
            let mut policy = make();
            policy.apply(&knobs.get());
            policy
        };
        let checkers = Checkers::new(cpus, self.demands, self.storm.is_some());
        let measured = (Measure::new(&self.workload, cpus), Pulse::new(cpus));
        let observer = (measured, checkers, extra);
        let mut machine = Machine::new(self.setup.clone(), self.workload.clone(), observer);
        let mut policy = make();
        machine.tune(&knobs.get());
        machine.observer().saw(START, &Event::Applied(knobs.get()));
        let mut adaptive = Adaptive { control, next: INTERVAL, knobs: &knobs };
        // A stop books what was done so far, so that none of it counts as measured.
        adaptive.run(&mut machine, self.workload.warmup, &mut policy, &mut make);
        if let Some(storm) = self.storm {
            adaptive.run(&mut machine, storm, &mut policy, &mut make);
            machine.calm();
        }
        adaptive.run(&mut machine, end, &mut policy, &mut make);
        let counters = *machine.counters();
        let ((measure, _), checkers, _) = machine.into_witness();
        let end = START + end;
        Tried { outcome: measure.finish(end), verdict: checkers.finish(end), counters }
    }

    /// What a policy is told at its start.
    pub fn policy_setup(&self) -> pandemonium_engine::Setup {
        let shape = &self.setup.shape;
        pandemonium_engine::Setup {
            topology: topology(shape),
            ..pandemonium_engine::Setup::of_cpus(shape.cpus)
        }
    }
}

/// The adaptive loop, which the driver runs once a second beside the scheduler.
struct Adaptive<'a> {
    control: Controller,
    /// When it looks next.
    next: Span,
    /// The newest settings.
    knobs: &'a Cell<Knobs>,
}

/// Who watches a trial: measurements and the facts for the loop, judges, and who else wants to.
type Watched<'w> = ((Measure, Pulse), Checkers, &'w mut dyn Observer);

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
            if let Some(knobs) = self.control.step(now, &sample) {
                policy.apply(&knobs);
                machine.tune(&knobs);
                self.knobs.set(knobs);
                machine.observer().saw(now, &Event::Applied(knobs));
            }
            let regime = self.control.regime();
            machine.observer().saw(now, &Event::Looked { regime, idle: sample.idle });
            self.next += INTERVAL;
        }
        machine.run(end, policy, renew);
    }
}

impl Demands {
    /// The bounds that Pandemonium states. A rescue comes at the latest when two starvation limits
    /// have passed and everybody who came before has had a slice, which ends at a tick; while
    /// somebody looks for work. Beside heavy tasks the turn of others comes later by up to
    /// [`LIGHT_WAIT`], and a light task is rescued as much later again.
    pub fn stated(setup: &Setup, knobs: &Knobs) -> Demands {
        let scaling = Scaling::new(setup.shape.cpus);
        let tick = setup.costs.tick;
        // The adaptive loop may give a Batch task a quarter more (`control::tune`).
        let slice = knobs.batch_slice.scale(5, 4).max(knobs.slice) + tick.scale(2, 1);
        Demands {
            wait: scaling.starvation.scale(2, 1) + LIGHT_WAIT.scale(2, 1) + slice + IDLE_BESIDE,
            wait_each: slice,
            storm: Span::from_millis(1_000),
            idle: IDLE_BESIDE,
            shares_percent: None,
        }
    }

    /// What the kernel demands of every policy: nobody waits for 5 s.
    pub fn of_the_kernel(self) -> Demands {
        Demands { wait: Span::from_millis(5_000), ..self }
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
