// SPDX-License-Identifier: GPL-2.0-only

//! The model keeps the backend's contract, a seed repeats a run, and what a person knows of such
//! machines holds.

use crate::common::*;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_policies::{Fifo, Vruntime};
use pandemonium_sim::observer::{Event, Observer};
use pandemonium_sim::topology::{Mask, Shape};
use pandemonium_sim::workload::{Draw, Group, Place, Step};

fn two_hogs_a_cpu(cpus: u32) -> Vec<Group> {
    vec![Group::hogs("hog", 2 * cpus), probe()]
}

#[test]
fn a_seed_repeats_a_run_and_another_seed_does_not() {
    let ran = |seed| {
        let ran =
            run(setup(4, seed), workload(two_hogs_a_cpu(4), ms(500)), DEMANDS, pandemonium(4));
        (ran.outcome, ran.counters)
    };
    assert_eq!(ran(7), ran(7));
    assert_ne!(ran(7), ran(8));
}

/// No time is lost and none is made: work, scheduler, idling and switching add up to the CPUs.
#[test]
fn work_never_exceeds_the_cpus_and_little_is_lost() {
    for cpus in [1, 4, 16] {
        let w = workload(two_hogs_a_cpu(cpus), ms(1000));
        let ran = run(setup(cpus, 3), w, DEMANDS, pandemonium(cpus));
        let work: u64 = ran.outcome.groups.iter().map(|group| group.work).sum();
        let spent = Span::from_nanos(work) + ran.outcome.own + ran.outcome.idle;
        let all = ms(1000).scale(u64::from(cpus), 1);
        assert!(spent <= all, "{cpus} CPUs: {spent} of {all}");
        assert!(spent.as_nanos() * 100 > all.as_nanos() * 98, "{cpus} CPUs: {spent} of {all}");
        ran.verdict.unwrap();
    }
}

/// What the lab measured: with the fast path a wakeup takes some microseconds, without it up to
/// a tick.
#[test]
fn the_fast_path_is_what_makes_wake_ups_fast() {
    let p99 = |fast_path| {
        let setup = pandemonium_sim::machine::Setup { fast_path, ..setup(2, 1) };
        let ran = run(setup, workload(two_hogs_a_cpu(2), ms(3000)), DEMANDS, pandemonium(2));
        ran.outcome.groups[1].wake.quantile(950)
    };
    assert!(p99(true) < us(100), "{}", p99(true));
    assert!(p99(false) > ms(1), "{}", p99(false));
}

#[test]
fn a_task_that_finds_an_idle_cpu_never_comes_up() {
    let w = workload(vec![probe()], ms(1000));
    let ran = run(setup(2, 1), w, DEMANDS, Fifo::new);
    assert_eq!(ran.outcome.decisions, [0; 3]);
    assert!(ran.outcome.direct > 150);
    assert!(ran.outcome.groups[0].wake.longest() < us(10));
}

/// It never woke up while the machine was quiet, and is not taken for one of the new tasks.
#[test]
fn who_found_idle_cpus_is_known_when_the_machine_becomes_busy() {
    let runs = |cpus| (1..6).map(move |seed| (cpus, seed));
    for (cpus, seed) in [2, 4, 8].into_iter().flat_map(runs) {
        let newcomers = Group { start: ms(1_000), ..Group::hogs("newcomer", 8 * cpus) };
        let w = workload(vec![probe(), newcomers], ms(1_500));
        let ran = run(setup(cpus, seed), w, DEMANDS, pandemonium(cpus));
        let longest = ran.outcome.groups[0].wake.longest();
        assert!(longest <= ms(1), "{longest}, more than a slice, on {cpus} CPUs with seed {seed}");
    }
}

/// The ring holds 4096 messages; the next task goes to the shared queue.
#[test]
fn a_full_ring_is_counted_and_nobody_is_lost() {
    let job = Group::new("cc1", 6000, vec![Step::Work(Draw::fixed(us(20))), Step::Exit]);
    let ran = run(setup(1, 1), workload(vec![job], ms(1500)), DEMANDS, Vruntime::new);
    assert!(ran.counters.congested > 1000, "{:?}", ran.counters);
    assert_eq!(ran.outcome.groups[0].ended, 6000);
}

#[test]
fn a_pinned_task_runs_on_its_cpu_only_and_a_fork_storm_ends() {
    let mut pinned = Group::hogs("pinned", 3);
    pinned.place = Place::Within(Mask::only(1));
    let mut storm =
        Group::new("cc1", 200, vec![Step::Work(Draw::between(us(100), us(900))), Step::Exit]);
    storm.start = ms(100);
    let w = workload(vec![pinned, Group::hogs("hog", 4), storm], ms(1500));
    let ran = run(setup(4, 5), w, DEMANDS, pandemonium(4));
    ran.verdict.unwrap();
    assert_eq!(ran.outcome.groups[2].ended, 200);
    let pinned = Span::from_nanos(ran.outcome.groups[0].work);
    assert!(pinned <= ms(1500) && pinned > ms(300), "{pinned}");
}

/// A hardware thread is slower while its sibling is busy; a slow core does less.
/// As many CPUs as the backend can have: each has two hogs, a sleeper, and a hog that may use no
/// other CPU.
#[test]
fn no_checker_complains_of_1024_cpus() {
    let cpus = 1024;
    let mut groups = two_hogs_a_cpu(cpus);
    let sleep = Draw::between(ms(3), ms(7));
    groups.push(Group::sleepers("sleeper", cpus, sleep, Draw::fixed(us(50))));
    groups.push(Group { place: Place::OneEach, ..Group::hogs("bound", cpus) });
    let storm = workload(groups, ms(200));
    let ran = run(setup(cpus, 1), storm, DEMANDS, pandemonium(cpus));
    assert_eq!(ran.verdict, Ok(()));
    assert!(ran.outcome.groups.iter().all(|group| group.least > 0), "a task did no work");
}

#[test]
fn smt_and_hybrid_cpus_are_as_fast_as_they_are() {
    let work = |shape: Shape, hogs| {
        let setup = pandemonium_sim::machine::Setup::new(shape, 1);
        let cpus = shape.cpus;
        let w = workload(vec![Group::hogs("hog", hogs)], ms(1000));
        let ran = run(setup, w, DEMANDS, pandemonium(cpus));
        Span::from_nanos(ran.outcome.groups[0].work).as_micros() / 1_000
    };
    let smt = Shape { smt: 2, ..Shape::flat(4) };
    assert_eq!(work(smt, 2), 1_999, "each has a core");
    assert!(work(smt, 4).abs_diff(2_400) <= 2, "60 % each");
    let hybrid = Shape { fast: 1, slow_speed: 512, ..Shape::flat(2) };
    assert!(work(hybrid, 2).abs_diff(1_500) <= 2);
}

#[test]
fn a_chain_measures_its_frames_from_their_beginning() {
    let next = Step::Wake { offset: 1, sync: false };
    let work = Step::Work(Draw::fixed(us(500)));
    let mut game = Group::new("game", 1, vec![Step::Period, Step::Begin, work, next]);
    game.row = 3;
    game.programs.push(vec![Step::Wait, work, next]);
    game.programs.push(vec![Step::Wait, work, Step::End]);
    game.period = Draw::fixed(us(16_667));
    game.deadline = Some(us(1_000));
    let ran = run(setup(4, 1), workload(vec![game], ms(1000)), DEMANDS, pandemonium(4));
    let frames = &ran.outcome.groups[0].measured;
    assert_eq!(frames.count(), 59);
    assert!(frames.quantile(500) >= us(1_500) && frames.longest() < us(1_600));
    assert_eq!(ran.outcome.groups[0].missed, 59);
}

/// Counts the switches on each CPU at the same moment: there is one task on a CPU, and one CPU
/// under a task.
#[derive(Default)]
struct OneAtATime {
    on: std::collections::BTreeMap<u32, u32>,
}

impl Observer for OneAtATime {
    fn saw(&mut self, now: Stamp, event: &Event) {
        use pandemonium_sim::observer::Occupant;
        let Event::Switched { cpu, to, .. } = event else { return };
        self.on.remove(cpu);
        if let Occupant::Task(task, _) = to {
            assert!(!self.on.values().any(|slot| *slot == task.slot), "{now:?}: {task:?} twice");
            self.on.insert(*cpu, task.slot);
        }
    }
}

#[test]
fn a_task_runs_on_one_cpu_at_a_time() {
    use pandemonium_sim::machine::Machine;
    let w = workload(two_hogs_a_cpu(8), ms(500));
    let mut machine = Machine::new(setup(8, 1), w, OneAtATime::default());
    let mut make = pandemonium(8);
    machine.run(ms(500), &mut make(), &mut make);
    assert!(!machine.into_observer().on.is_empty());
}
