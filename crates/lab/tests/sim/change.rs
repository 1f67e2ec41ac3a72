// SPDX-License-Identifier: GPL-2.0-only

//! A task that changes its behaviour: it computes, and then wakes up often and runs briefly.

use crate::common::{ms, pandemonium, setup, us, workload};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_sim::machine::Machine;
use pandemonium_sim::observer::{Event, Observer, Occupant};
use pandemonium_sim::workload::{Draw, Group, Step};

/// The waits of the first group's task, from its second wakeup on: the first is its start.
#[derive(Default)]
struct Waits {
    woke: Option<Stamp>,
    waits: Vec<Span>,
}

impl Observer for Waits {
    fn saw(&mut self, now: Stamp, event: &Event) {
        match *event {
            Event::Woke { task } if task.group == 0 => self.woke = Some(now),
            Event::Switched { to: Occupant::Task(task, _), .. } if task.group == 0 => {
                self.waits.extend(self.woke.take().map(|woke| now.since(woke)));
            }
            _ => {}
        }
    }
}

fn short(times: usize) -> Vec<Step> {
    let sleep = Step::Sleep(Draw::between(ms(3), ms(7)));
    [sleep, Step::Work(Draw::fixed(us(50)))].repeat(times)
}

/// What a task does before it changes.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// It computes from its start.
    Computes,
    /// It wakes up often, computes in between, and wakes up often again.
    Wakes,
    /// It computes in parts with short sleeps, as one that loads files.
    Loads,
}

/// The waits of the first 20 wakeups after the change.
fn waits(before: Before, computes: Span, cpus: u32, seed: u64, others: &[Group]) -> Vec<Span> {
    let work = |span| Step::Work(Draw::fixed(span));
    let sleep = |span| Step::Sleep(Draw::fixed(span));
    let mut program = match before {
        Before::Computes => vec![work(computes)],
        Before::Wakes => [short(20), vec![work(computes)]].concat(),
        Before::Loads => {
            let part = work(computes.scale(1, 12));
            [vec![part], [sleep(ms(1)), part].repeat(11)].concat()
        }
    };
    let is_sleep = |step: &&Step| matches!(step, Step::Sleep(_));
    // A task that begins with a sleep wakes up after it; any other at its start, too.
    let starts = usize::from(!program.first().as_ref().is_some_and(is_sleep));
    let skip = starts + program.iter().filter(is_sleep).count();
    program.extend([sleep(ms(1_000)), work(us(50))]);
    let once = program.len() as u8;
    program.extend(short(1));
    let task = Group { once, ..Group::new("editor", 1, program) };
    // On every CPU two hogs and the others' work leave the task at least a seventh of one.
    let end = ms(1_500) + computes.scale(7, 1);
    let w = workload([&[task], others].concat(), end);
    let mut machine = Machine::new(setup(cpus, seed), w, Waits::default());
    let mut make = pandemonium(cpus);
    machine.run(end, &mut make(), &mut make);
    let waits = machine.into_observer().waits;
    assert!(waits.len() >= skip + 20, "{before:?} {computes} {cpus}: {} wakeups", waits.len());
    waits[skip..skip + 20].to_vec()
}

fn hogs(cpus: u32) -> Vec<Group> {
    vec![Group::hogs("hog", 2 * cpus)]
}

/// Hogs, four sleepers of 1 kHz, and twelve children every 50 ms.
fn company(cpus: u32) -> Vec<Group> {
    let sleepers = Group::sleepers("sleeper", 4, Draw::fixed(ms(1)), Draw::fixed(us(20)));
    let mut steps = vec![Step::Sleep(Draw::fixed(ms(50)))];
    steps.extend([Step::Work(Draw::fixed(us(300))), Step::Fork].repeat(12));
    steps.extend([Step::Wait; 12]);
    let storm = Group::new("sh", 1, steps);
    let child = vec![Step::Work(Draw::between(us(300), us(1_200))), Step::Exit];
    let children = Group { forked: true, ..Group::new("sh", 12, child) };
    [hogs(cpus), vec![sleepers, storm, children]].concat()
}

/// Whether every one of the first 20 waits after a change is at most `bound`.
fn holds(cpus: u32, bound: Span, computes: &[u64], others: &[Group]) {
    for before in [Before::Computes, Before::Wakes, Before::Loads] {
        for (&computes, seed) in computes.iter().flat_map(|each| [1, 2].map(|seed| (each, seed))) {
            let waits = waits(before, ms(computes), cpus, seed, others);
            let longest = *waits.iter().max().expect("it woke up");
            let what = format!("{before:?} {computes} ms, {cpus} CPUs, seed {seed}");
            println!("{what}: {}", longest.as_micros());
            assert!(longest <= bound, "{what}: {longest} in {waits:?}");
        }
    }
}

#[test]
fn no_wakeup_waits_long_after_a_change_beside_hogs() {
    for cpus in [1, 2, 4] {
        holds(cpus, ms(2), &[50, 200, 1_000, 5_000], &hogs(cpus));
    }
}

/// On one CPU the sleepers and the children leave no time within 3 ms. On two, children of the same
/// tier that an order preempted have the earlier keys and finish their slices first.
#[test]
fn no_wakeup_waits_long_after_a_change_in_company() {
    for cpus in [2, 4] {
        holds(cpus, ms(2), &[50, 200, 1_000, 5_000], &company(cpus));
    }
}

/// The work of a hog that runs `program` beside plain hogs, as a part of their average, in percent,
/// and the longest wait of a probe beside them.
fn gain(cpus: u32, seed: u64, comm: &str, program: Vec<Step>) -> (u64, Span) {
    let others = hogs(cpus);
    let probe = crate::common::probe();
    let w = workload([vec![Group::new(comm, 1, program), probe], others].concat(), ms(6_000));
    let demands = pandemonium_sim::checkers::Demands { wait: ms(1_000), ..crate::common::DEMANDS };
    let ran = crate::common::run(setup(cpus, seed), w, demands, pandemonium(cpus));
    let [other, probe, hogs] = &ran.outcome.groups[..] else { panic!("three groups") };
    (other.work * 100 * u64::from(2 * cpus) / hogs.work, probe.wake.quantile(990))
}

#[test]
fn no_hog_gains_by_sleeping_or_by_its_name() {
    let work = |span| Step::Work(Draw::fixed(span));
    let sleep = |span| Step::Sleep(Draw::fixed(span));
    let programs = [
        ("other", "one short sleep", vec![work(ms(200)), sleep(ms(1))]),
        ("other", "a short run", vec![work(ms(200)), sleep(ms(1)), work(us(10)), sleep(us(50))]),
        ("other", "a long sleep", vec![work(ms(200)), sleep(ms(130))]),
        ("kwin", "a compositor's name", vec![work(ms(1_000))]),
        ("kwin", "that name and short sleeps", vec![work(ms(20)), sleep(us(100))]),
    ];
    for (cpus, seed) in [1, 2, 4].into_iter().flat_map(|cpus| [1, 2].map(|seed| (cpus, seed))) {
        for (comm, name, program) in &programs {
            let (percent, wait) = gain(cpus, seed, comm, program.clone());
            println!("{name}, {cpus} CPUs, seed {seed}: {percent} %, {}", wait.as_micros());
            assert!(
                percent <= 110,
                "{name}, {cpus} CPUs, seed {seed}: {percent} % of a hog's work"
            );
            assert!(wait <= ms(1), "{name}, {cpus} CPUs, seed {seed}: a probe waits {wait}");
        }
    }
}
