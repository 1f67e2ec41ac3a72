// SPDX-License-Identifier: GPL-2.0-only

//! Runs drawn from a seed: the machine, the workload, and the faults. The first phase of a run, the
//! storm, injects faults, and no checker may find a violation (safety). The second phase injects
//! none, and every task must be served in time (liveness).

use super::checkers::{Checker, Demands};
use super::machine::{FaultPlan, Setup};
use super::observer::Fault;
use super::random::Random;
use super::topology::{Mask, Shape};
use super::trial::Trial;
use super::workload::{Draw, Group, Place, Step, Workload};
use alloc::string::String;
use alloc::vec::Vec;
use pandemonium_engine::PolicyInfo;
use pandemonium_engine::knobs::{KeySet, Values};
use pandemonium_engine::time::Span;

/// Length of the second phase: longer than any task may wait in it.
const CALM: Span = Span::from_millis(2_500);

/// So many runs of a million have one switch turned over.
const TURNED_OVER: u32 = 300_000;

/// The parts to leave out of a drawn run, to find the smallest run that still fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    /// Faults that are not injected.
    pub faults: Vec<Fault>,
    /// Groups that are left out, by number.
    pub groups: Vec<usize>,
    /// The most CPUs.
    pub cpus: Option<u32>,
    /// The longest storm.
    pub storm: Option<Span>,
}

/// Draws the run of a seed, without the cut parts.
pub fn draw(seed: u64, cuts: &Cuts, policy: PolicyInfo) -> Trial {
    let mut random = Random::derive(seed, 0x5377_6172);
    let shape = shape(&mut random, cuts.cpus);
    let mut faults = faults(&mut random);
    let stops = faults.of(Fault::StoppedScheduler) > 0 && random.chance(300_000);
    // A long stop needs a long storm.
    let storm = if stops { random.between(1_000, 6_000) } else { random.between(100, 600) };
    let storm = Span::from_millis(storm);
    let storm = cuts.storm.map_or(storm, |at_most| storm.min(at_most));
    let groups = groups(&mut random, shape.cpus);
    let groups = groups.into_iter().enumerate();
    let groups = groups.filter(|(number, _)| !cuts.groups.contains(number));
    let workload = Workload {
        name: String::from("swarm"),
        about: String::new(),
        duration: storm + CALM,
        warmup: Span::ZERO,
        groups: groups.map(|(_, group)| group).collect(),
    };
    for fault in &cuts.faults {
        faults = faults.with(*fault, 0);
    }
    let mut setup = Setup::new(shape, seed);
    setup.faults = faults;
    setup.fast_path = !random.chance(150_000);
    setup.builtin_idle = !random.chance(100_000);
    setup.tells_exits = random.chance(700_000);
    setup.costs.tick_spread = Span::from_micros(random.between(1, 60));
    setup.costs.reload = Span::from_millis(random.between(1, 60));
    let values = values(&mut random, policy);
    let demands = Demands::stated(&setup, &policy, &values);
    let pinned = KeySet::none(policy.knobs);
    Trial { workload, setup, policy, values, pinned, storm: Some(storm), demands }
}

/// Draws knobs: the defaults, in some runs with one switch turned over. The same promises hold.
fn values(random: &mut Random, policy: PolicyInfo) -> Values {
    let mut values = policy.knobs.defaults();
    let switches: Vec<_> = policy.knobs.switches().collect();
    if !switches.is_empty() && random.chance(TURNED_OVER) {
        let knob = switches[random.below(switches.len() as u64) as usize];
        values.put(knob.name, 1 - (knob.default)());
    }
    values
}

/// Draws mostly small machines: they run faster, and a few tasks overload them.
fn shape(random: &mut Random, at_most: Option<u32>) -> Shape {
    let cpus = match random.below(100) {
        0..40 => random.between(1, 2),
        40..80 => random.between(3, 8),
        80..98 => random.between(9, 64),
        _ => random.between(65, 256),
    } as u32;
    let cpus = at_most.map_or(cpus, |at_most| cpus.min(at_most));
    let mut shape = Shape::flat(cpus);
    if random.chance(300_000) {
        shape.smt = 2;
    }
    if random.chance(300_000) {
        (shape.l2, shape.l3) = (2, 4);
    }
    if random.chance(200_000) {
        shape.node = 4;
    }
    if random.chance(200_000) {
        (shape.fast, shape.slow_speed) = (cpus.div_ceil(2), 600);
    }
    shape.sane()
}

fn faults(random: &mut Random) -> FaultPlan {
    let mut plan = FaultPlan::NONE;
    for fault in Fault::ALL {
        // Each run injects only some kinds of faults: all together, they would hide each other.
        let likely = match fault {
            Fault::Hotplug => 5_000,
            Fault::StoppedScheduler => 20_000,
            Fault::RingFull | Fault::Refusal | Fault::LateScheduler | Fault::LostKick => 100_000,
            Fault::OfflineAtStart => 700_000,
            _ => 200_000,
        };
        if random.chance(300_000) {
            plan = plan.with(fault, random.between(1, likely) as u32);
        }
    }
    plan
}

fn groups(random: &mut Random, cpus: u32) -> Vec<Group> {
    let mut groups = Vec::new();
    for _ in 0..random.between(1, 6) {
        let mut group = group(random, cpus);
        if random.chance(300_000) {
            group.nice = random.between(0, 39) as i8 - 20;
        }
        if random.chance(150_000) {
            group.place = Place::OneEach;
        } else if random.chance(150_000) {
            group.place = Place::Within(Mask::only(random.below(u64::from(cpus)) as u32));
        }
        if random.chance(300_000) {
            group.start = Span::from_millis(random.between(0, 300));
        }
        groups.push(group);
    }
    groups
}

fn group(random: &mut Random, cpus: u32) -> Group {
    let us = Span::from_micros;
    // A large machine has fewer tasks for each CPU, so that its runs are not much longer.
    let many = if cpus > 64 { u64::from(cpus / 2) } else { u64::from(cpus) };
    let span = |random: &mut Random, low, high| {
        let from = random.between(low, high);
        Draw::between(us(from), us(random.between(from, 2 * from)))
    };
    match random.below(6) {
        0 => Group::hogs("hog", random.between(1, 2 * many) as u32),
        1 => {
            let (sleep, work) = (span(random, 100, 20_000), span(random, 5, 5_000));
            Group::sleepers("sleeper", random.between(1, many) as u32, sleep, work)
        }
        2 => {
            let program = alloc::vec![Step::Work(span(random, 50, 30_000)), Step::Exit];
            let mut jobs = Group::new("cc1", random.between(1, 8 * many) as u32, program);
            jobs.again = random.chance(300_000);
            jobs
        }
        3 => pipe(random, many),
        4 => chain(random),
        _ => {
            let program = alloc::vec![
                Step::Period,
                Step::Begin,
                Step::Work(span(random, 50, 4_000)),
                Step::End,
            ];
            let mut periodic = Group::new("frame", random.between(1, many) as u32, program);
            periodic.period = Draw::fixed(us(random.between(2_000, 20_000)));
            periodic
        }
    }
}

fn pipe(random: &mut Random, cpus: u64) -> Group {
    let work = Step::Work(Draw::fixed(Span::from_micros(random.between(20, 500))));
    let to = |offset| Step::Wake { offset, sync: true };
    let mut pipe = Group::new("pipe", random.between(1, cpus.min(4)) as u32, Vec::new());
    pipe.row = 2;
    pipe.programs = alloc::vec![
        alloc::vec![Step::Begin, work, to(1), Step::Wait, Step::End],
        alloc::vec![Step::Wait, work, to(-1)],
    ];
    pipe
}

fn chain(random: &mut Random) -> Group {
    let work = Step::Work(Draw::fixed(Span::from_micros(random.between(20, 1_000))));
    let next = Step::Wake { offset: 1, sync: false };
    let mut chain = Group::new("game", 1, Vec::new());
    chain.row = random.between(2, 20) as u32;
    chain.period = Draw::fixed(Span::from_micros(random.between(4_000, 33_000)));
    chain.programs = alloc::vec![alloc::vec![Step::Period, Step::Begin, work, next]];
    chain.programs.resize(chain.row as usize - 1, alloc::vec![Step::Wait, work, next]);
    chain.programs.push(alloc::vec![Step::Wait, work, Step::End]);
    chain
}

/// Finds a smaller run of the seed in which the same checker still finds a violation. `fails`
/// runs one and returns the checker.
pub fn shrink(
    seed: u64,
    policy: PolicyInfo,
    checker: Checker,
    mut cuts: Cuts,
    mut fails: impl FnMut(&Trial) -> Option<Checker>,
) -> Cuts {
    loop {
        let smaller = smaller(seed, policy, &cuts);
        let found =
            smaller.into_iter().find(|cuts| fails(&draw(seed, cuts, policy)) == Some(checker));
        match found {
            Some(found) => cuts = found,
            None => return cuts,
        }
    }
}

/// All ways to leave out one more part.
fn smaller(seed: u64, policy: PolicyInfo, cuts: &Cuts) -> Vec<Cuts> {
    let trial = draw(seed, cuts, policy);
    let mut all = Vec::new();
    for fault in Fault::ALL {
        if trial.setup.faults.of(fault) > 0 {
            let mut cuts = cuts.clone();
            cuts.faults.push(fault);
            all.push(cuts);
        }
    }
    let all_groups =
        draw(seed, &Cuts { groups: Vec::new(), ..cuts.clone() }, policy).workload.groups.len();
    if trial.workload.groups.len() > 1 {
        for number in (0..all_groups).filter(|number| !cuts.groups.contains(number)) {
            let mut cuts = cuts.clone();
            cuts.groups.push(number);
            all.push(cuts);
        }
    }
    let cpus = trial.setup.shape.cpus;
    if cpus > 1 {
        all.extend([cpus / 2, cpus - 1].map(|cpus| Cuts { cpus: Some(cpus), ..cuts.clone() }));
    }
    if let Some(storm) = trial.storm.filter(|storm| *storm > Span::from_millis(10)) {
        all.push(Cuts { storm: Some(storm.scale(1, 2)), ..cuts.clone() });
    }
    all
}
