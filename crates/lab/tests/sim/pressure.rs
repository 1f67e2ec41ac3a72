// SPDX-License-Identifier: GPL-2.0-only

//! Very many tasks, and a long time.

use crate::common::*;
use pandemonium_engine::Policy;
use pandemonium_engine::procdb::Minute;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::Span;
use pandemonium_sim::checkers::{Checkers, Demands, Violation};
use pandemonium_sim::machine::{Machine, START, Setup};
use pandemonium_sim::measure::{Measure, Outcome};
use std::time::Instant;

/// What a policy holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    records: u32,
    tasks: usize,
    programs: usize,
}

impl Held {
    fn by<Q: Policy>(policy: &mut Q) -> Held {
        let records = policy.waiting().nr_records();
        let learning = policy.learning().expect("this policy learns");
        let mut tasks = 0;
        learning.export(&mut |_| tasks += 1);
        Held { records, tasks, programs: learning.programs().len() }
    }
}

const HOURS: usize = 24;
const MINUTES: u64 = 60 * HOURS as u64;

/// Runs a workload on so many CPUs for 8 s, in which no task may wait for more than 2.5 s.
fn eight_seconds_of(text: &str, cpus: u32) -> Result<Outcome, Violation> {
    let (crowd, shape) = pandemonium_workload::read(text, Some(cpus)).expect("a workload");
    let demands = Demands { wait: ms(2_500), wait_each: Span::ZERO, idle: ms(100), ..DEMANDS };
    let observer = (Measure::new(&crowd, shape.cpus), Checkers::new(shape.cpus, demands, false));
    let mut machine = Machine::new(Setup::new(shape, 1), crowd, observer);
    let mut make = pandemonium(cpus);
    machine.run(ms(8_000), &mut make(), &mut make);
    let ((measure, checkers), end) = (machine.into_observer(), START + ms(8_000));
    checkers.finish(end).map(|()| measure.finish(end))
}

/// Ten thousand tasks that compute, on two CPUs, and one that wakes up; the hogs begin `spread_us`
/// apart. Returns the longest wait of the one that wakes up, in the last 3 s.
fn beside_crowd(spread_us: u64) -> Result<Span, Violation> {
    let crowd = format!(
        r#"
        name = "crowd"
        about = "10,000 tasks that compute, and one that wakes up"
        duration_ms = 8000
        warmup_ms = 5000
        [[task]]
        name = "hog"
        kind = "burn"
        count = 10000
        spread_us = {spread_us}
        [[task]]
        name = "waking"
        kind = "sleep"
        sleep_us = 20000
        work_us = 75
        "#
    );
    eight_seconds_of(&crowd, 2).map(|outcome| outcome.groups[1].wake.longest())
}

/// Tasks that compute for 3 ms, wait for a while, and fill three CPUs together, as in a fork bomb.
const VERY_MANY: &str = r#"
    name = "many"
    about = "tasks that each take little and fill the machine together"
    duration_ms = 8000
    warmup_ms = 3000
    [[task]]
    name = "hog"
    kind = "burn"
    count = 6
    [[task]]
    name = "many"
    kind = "sleep"
    count = 300
    sleep_us = 20000
    work_us = 3000
    spread_us = 500
    [[task]]
    name = "waking"
    kind = "sleep"
    count = 4
    sleep_us = 2000
    work_us = 100
"#;

/// Batch starves, and the tasks that wake up take more than each of the many, but they are not why.
#[test]
fn very_many_tasks_that_take_little_become_batch_and_not_those_that_wake_up() {
    let outcome = eight_seconds_of(VERY_MANY, 3).expect("no task waits for too long");
    let [hogs, _, waking] = &outcome.groups[..] else { unreachable!("three groups") };
    assert!(waking.wake.longest() <= ms(2), "a wakeup waited for {}", waking.wake.longest());
    // Each hog and each of the many would get a part in 306 of three CPUs.
    let fair = outcome.window.as_nanos() * 3 * 6 / 306;
    assert!(hogs.work * 8 > fair, "hogs did {} of {fair}", hogs.work);
}

/// The kernel ejects a scheduler that leaves a task waiting for 5 s, and half of that is demanded.
/// A wakeup waits for the hogs that are overdue: it took a second while it waited for all hogs.
/// Hogs that begin at once do not fit into the ring, so many of them wait in the kernel.
#[test]
fn beside_a_crowd_that_comes_at_once_a_wakeup_is_early() {
    let longest = beside_crowd(0).expect("no hog waits for too long");
    assert!(longest <= ms(200), "a wakeup waited for {longest}");
}

#[test]
fn beside_a_crowd_that_comes_one_by_one_a_wakeup_is_early() {
    let longest = beside_crowd(400).expect("no hog waits for too long");
    assert!(longest <= ms(200), "a wakeup waited for {longest}");
}

/// Tasks that sleep briefly and together want more than one CPU, so that more than eight of them
/// are queued, beside pipes and hogs.
const MANY_WAKEUPS: &str = r#"
    name = "wakeups"
    about = "short sleepers that fill one CPU, beside pipes and hogs"
    duration_ms = 8000
    warmup_ms = 0
    [[task]]
    name = "hog"
    kind = "burn"
    count = 4
    [[task]]
    name = "pipe"
    kind = "pipe"
    count = 2
    work_us = 5
    [[task]]
    name = "sleeper"
    kind = "sleep"
    count = 24
    sleep_us = 1000
    work_us = 60
"#;

/// One waited for 504 ms while a LatCritical task came before all tasks that had been queued
/// earlier, once more than eight were.
#[test]
fn a_crowd_that_grows_does_not_put_off_its_first_tasks() {
    let outcome = eight_seconds_of(MANY_WAKEUPS, 1).expect("no task waits for too long");
    let waits = &outcome.wake[Tier::Interactive.index()];
    let longest = waits.longest();
    assert!(longest <= ms(60), "an Interactive task waited for {longest}");
}

/// Work that passes from task to task around a ring, beside a hog, on one CPU. Returns what part of
/// the work of all is the hog's.
fn share_beside_ring(work_us: u64) -> f64 {
    let ring = format!(
        r#"
        name = "ring"
        about = "a ring of four tasks, one of which works at any time, and a hog"
        duration_ms = 8000
        warmup_ms = 1000
        [[task]]
        name = "hog"
        kind = "burn"
        nice = 10
        [[task]]
        name = "ring"
        kind = "pipe"
        length = 4
        work_us = {work_us}
        sync = true
        "#
    );
    let outcome = eight_seconds_of(&ring, 1).expect("no task waits for too long");
    let [hog, ring] = &outcome.groups[..] else { unreachable!("two groups") };
    hog.work as f64 / (hog.work + ring.work) as f64
}

/// The hog has a weight of 110 beside 1,024 of the task that works: it is owed 9.7 %. Eight
/// tenths of that are demanded. It had 2 % while each task of the ring collected credit when
/// another worked, and 7 % while the virtual clock ran ahead of all.
#[test]
fn a_ring_that_fills_a_cpu_leaves_a_hog_its_share() {
    for work_us in [3, 50] {
        let share = share_beside_ring(work_us);
        assert!(share > 0.078, "beside runs of {work_us} us the hog did {share:.3} of the work");
    }
}

/// The tasks of a pair work for so long between their messages, beside a hog on one CPU. As Batch
/// tasks both wait for a whole slice of the hog every few messages. They took just enough to stay
/// Batch then, together a tenth of the CPU.
#[test]
fn a_pair_that_works_between_its_messages_is_not_batch_for_good() {
    for work_us in [10, 20, 30] {
        let workload = format!(
            r#"
            name = "pair"
            about = "a pair beside a hog"
            duration_ms = 8000
            [[task]]
            name = "hog"
            kind = "burn"
            [[task]]
            name = "pair"
            kind = "pipe"
            work_us = {work_us}
            "#
        );
        let outcome = eight_seconds_of(&workload, 1).expect("no task waits for too long");
        let [hog, pair] = &outcome.groups[..] else { unreachable!("two groups") };
        let part = |work| work as f64 / outcome.window.as_nanos() as f64;
        let (hog, pair) = (part(hog.work), part(pair.work));
        assert!(hog > 0.25 && pair > 0.25, "{work_us} us: hog {hog}, pair {pair}");
    }
}

#[test]
#[ignore = "minutes: cargo test --release --workspace --test sim a_day -- --ignored --nocapture"]
fn a_day_of_a_light_desktop_takes_no_more_memory_than_half_a_day() {
    let started = Instant::now();
    let text = include_str!("day.toml");
    let (day, shape) = pandemonium_workload::read(text, Some(2)).expect("a workload");
    let demands = Demands { wait: ms(1_000), wait_each: Span::ZERO, idle: ms(1_000), ..DEMANDS };
    let observer = (Measure::new(&day, shape.cpus), Checkers::new(shape.cpus, demands, false));
    let mut machine = Machine::new(Setup::new(shape, 1), day, observer);
    let mut make = pandemonium(2);
    let mut policy = make();
    let mut held = Vec::new();
    for minute in 1..=MINUTES {
        machine.run(Span::from_millis(60_000 * minute), &mut policy, &mut make);
        let learning = policy.learning().expect("this policy learns");
        learning.minute(Minute::from_unix(minute as u32));
        if minute % 60 == 0 {
            held.push(Held::by(&mut policy));
        }
    }
    let (events, took) = (machine.counters().events, started.elapsed());
    println!("{events} events in {took:?}; held in each hour: {held:?}");
    let (measure, checkers) = machine.into_observer();
    let end = START + Span::from_millis(60_000 * MINUTES);
    assert_eq!(checkers.finish(end), Ok(()));
    let (first, last) = held.split_at(HOURS / 2);
    let grew = |of: fn(&Held) -> usize| last.iter().map(of).max() > first.iter().map(of).max();
    assert!(!grew(|held| held.records as usize), "records in the second half: {held:?}");
    assert!(!grew(|held| held.programs), "programs in the second half: {held:?}");
    // Of those that live at the end of an hour.
    let tasks = |held: &[Held]| held.iter().map(|held| held.tasks).sum::<usize>();
    assert!(tasks(last) <= tasks(first) * 11 / 10, "tasks in the second half: {held:?}");
    assert!(measure.finish(end).groups.iter().all(|group| group.work > 0), "a task did not run");
}
