// SPDX-License-Identifier: GPL-2.0-only

//! What the tests of the wind tunnel share.

use pandemonium_engine::Policy;
use pandemonium_engine::time::Span;
use pandemonium_policies::Pandemonium;
use pandemonium_sim::checkers::{Checkers, Demands, Violation};
use pandemonium_sim::machine::{KernelCounters, Machine, START, Setup};
use pandemonium_sim::measure::{Measure, Outcome};
use pandemonium_sim::topology::Shape;
use pandemonium_sim::workload::{Draw, Group, Workload};

pub fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

pub fn us(us: u64) -> Span {
    Span::from_micros(us)
}

pub fn workload(groups: Vec<Group>, duration: Span) -> Workload {
    let (name, about) = (String::from("test"), String::new());
    Workload { name, about, duration, warmup: Span::ZERO, groups }
}

/// A probe that sleeps to 3 to 7 ms and works 50 us, as in the VM.
pub fn probe() -> Group {
    Group::sleepers("probe", 1, Draw::between(ms(3), ms(7)), Draw::fixed(us(50)))
}

pub fn setup(cpus: u32, seed: u64) -> Setup {
    Setup::new(Shape::flat(cpus), seed)
}

pub const DEMANDS: Demands = Demands {
    wait: Span::from_millis(200),
    wait_each: Span::from_millis(8),
    storm: Span::from_millis(1_000),
    idle: Span::from_millis(10),
    shares_percent: None,
};

pub struct Ran {
    pub outcome: Outcome,
    pub verdict: Result<(), Violation>,
    pub counters: KernelCounters,
}

/// Runs `make`'s policy and judges it.
pub fn run<Q: Policy>(
    setup: Setup,
    workload: Workload,
    demands: Demands,
    mut make: impl FnMut() -> Q,
) -> Ran {
    let cpus = setup.shape.cpus;
    let duration = workload.duration;
    let checkers = Checkers::new(cpus, demands, false);
    let observer = (Measure::new(&workload, cpus), checkers);
    let mut machine = Machine::new(setup, workload, observer);
    let mut policy = make();
    machine.run(duration, &mut policy, &mut make);
    let counters = *machine.counters();
    let (measure, checkers) = machine.into_observer();
    let end = START + duration;
    Ran { outcome: measure.finish(end), verdict: checkers.finish(end), counters }
}

pub fn pandemonium(cpus: u32) -> impl FnMut() -> Pandemonium {
    move || Pandemonium::new(&pandemonium_engine::Setup::of_cpus(cpus))
}
