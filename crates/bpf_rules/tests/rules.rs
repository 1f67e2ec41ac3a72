// SPDX-License-Identifier: GPL-2.0-only

//! The BPF programs and the simulated machine choose the same CPU: `src/bpf/rules.h`, compiled for
//! the host, against `crates/sim/src/machine/rules.rs`, for random states of a machine. And their
//! timers outlive a kernel that refuses to start one: `src/bpf/timer_rules.h`.

use pandemonium_bpf_rules as bpf;
use pandemonium_engine::orders::{
    self, Event, LAST_CREDIT, LAST_LIFE, Occupant, Posted, REST_MIN, Verdict, View,
};
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::{Span, Stamp, Vtime};
use pandemonium_sim::machine::limits::{
    BATCH, CROWD_LEAD, CROWD_SLICE_MIN, CROWD_TURN, DEFAULT_SLICE, FOREIGN, HANDOFF, HANDOFF_TRUST,
    IDLE, KICK_INTERVAL, KICKS_PER_WINDOW, MEAN_TURN_MIN, OFFLINE, PERIOD_MAX, WINDOW_BITS,
};
use pandemonium_sim::machine::rules::{
    CpuView, Kicks, Need, Protection, count_handoff, crowd_key, crowd_passing_key, crowd_slice,
    find_victim, key_by_weight,
};
use proptest::prelude::*;
use std::collections::VecDeque;

const CPUS_MAX: usize = 1_024;
/// Far from zero, and in the middle of a window.
const NOW: u64 = (1 << 40) + (1 << (WINDOW_BITS - 1));
/// Some windows back, and some slices.
const PAST: u64 = 4 << WINDOW_BITS;

/// A length of time up to [`PAST`], often one at which a rule changes its mind.
fn span() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..PAST,
        1 => prop::sample::select(vec![0, 1, KICK_INTERVAL - 1, KICK_INTERVAL, 1 << WINDOW_BITS]),
        2 => prop::sample::select(vec![100_000u64, 1_000_000, 2_000_000]),
    ]
}

/// A CPU, and whether the task may use it.
fn cpu() -> impl Strategy<Value = (CpuView, bool)> {
    let kicks = (span(), 0u64..2, 0..KICKS_PER_WINDOW + 2);
    let what = (IDLE..=OFFLINE, span(), span(), any::<bool>());
    (what, kicks, prop::bool::weighted(0.8)).prop_map(
        |((occupant, ran, slice, low_weight), (ago, windows_ago, count), allowed)| {
            let window = (NOW >> WINDOW_BITS) - windows_ago;
            let (since, kicks) = (NOW - ran, Kicks { last: NOW - ago, window, count });
            (CpuView { occupant, since, slice, low_weight, kicks }, allowed)
        },
    )
}

/// A machine, and on which of its CPUs the wakeup is seen.
fn machine() -> impl Strategy<Value = (Vec<(CpuView, bool)>, u32)> {
    let few = prop::collection::vec(cpu(), 1..=64);
    let many = prop::collection::vec(cpu(), 65..=CPUS_MAX);
    (prop_oneof![3 => few, 1 => many], any::<prop::sample::Index>())
        .prop_map(|(cpus, here)| (here.index(cpus.len()) as u32, cpus))
        .prop_map(|(here, cpus)| (cpus, here))
}

fn need() -> impl Strategy<Value = Need> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (IDLE + 1..FOREIGN, flags).prop_map(|(tier, (spare_here, never_preempts, overdue))| Need {
        now: NOW,
        tier,
        spare_here,
        never_preempts,
        overdue,
        ..Need::default()
    })
}

fn bpf_cpu(&(cpu, allowed): &(CpuView, bool)) -> bpf::Cpu {
    bpf::Cpu {
        since: cpu.since,
        slice: cpu.slice,
        kicked: cpu.kicks.last,
        window: cpu.kicks.window,
        kicks: cpu.kicks.count,
        occupant: cpu.occupant,
        low_weight: cpu.low_weight.into(),
        forbidden: (!allowed).into(),
        ..bpf::Cpu::default()
    }
}

fn bpf_need(need: &Need, protection: &Protection) -> bpf::Need {
    bpf::Need {
        now: need.now,
        thresh_ns: protection.thresh,
        here: need.here,
        tier: need.tier,
        spare_here: need.spare_here.into(),
        never_preempts: need.never_preempts.into(),
        overdue: need.overdue.into(),
        burst: protection.burst.into(),
        last_cpu: need.bound_to.unwrap_or(0),
        is_bound: need.bound_to.is_some().into(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn both_choose_the_same_victim(
        (cpus, here) in machine(),
        need in need(),
        last_cpu in prop::option::of(any::<prop::sample::Index>()),
        thresh in span(),
        burst in any::<bool>(),
    ) {
        let protection = Protection { thresh, burst };
        let bound_to = last_cpu.map(|cpu| cpu.index(cpus.len()) as u32);
        let ours = Need { here, bound_to, ..need };
        let theirs = bpf_need(&ours, &protection);
        let records: Vec<bpf::Cpu> = cpus.iter().map(bpf_cpu).collect();
        let view = |cpu: u32| Some(cpus[cpu as usize]).filter(|one| one.1).map(|one| one.0);
        let victim = find_victim(cpus.len() as u32, &ours, &protection, view);
        prop_assert_eq!(bpf::find_victim(&records, &theirs), victim);
    }

    /// A CPU whose occupant is about to end is as one that the task may not use.
    #[test]
    fn a_cpu_with_an_ending_task_is_never_chosen(
        (cpus, here) in machine(),
        need in need(),
        ending in any::<u64>(),
    ) {
        let mut records: Vec<bpf::Cpu> = cpus.iter().map(bpf_cpu).collect();
        let protection = Protection::default();
        let need = bpf_need(&Need { here, ..need }, &protection);
        for (cpu, record) in records.iter_mut().enumerate() {
            record.ending = (ending >> (cpu % 64) & 1) as u32;
        }
        let without: Vec<bpf::Cpu> = records
            .iter()
            .map(|&one| bpf::Cpu { forbidden: one.forbidden | one.ending, ..one })
            .collect();
        let chosen = bpf::find_victim(&records, &need);
        prop_assert_eq!(chosen, bpf::find_victim(&without, &need));
    }

    /// Whether or not the CPU is one of the first that a search from here looks at.
    #[test]
    fn a_bound_task_gets_its_cpu_on_a_large_machine(
        cpus in 1..=CPUS_MAX,
        here in any::<prop::sample::Index>(),
        only in any::<prop::sample::Index>(),
    ) {
        let (here, only) = (here.index(cpus) as u32, only.index(cpus) as u32);
        let busy = bpf::Cpu { occupant: BATCH, forbidden: 1, ..bpf::Cpu::default() };
        let mut records = vec![busy; cpus];
        records[only as usize].forbidden = 0;
        let now = NOW;
        let need = bpf::Need { now, here, tier: BATCH + 1, ..bpf::Need::default() };
        let need = bpf::Need { last_cpu: only, is_bound: 1, ..need };
        prop_assert_eq!(bpf::find_victim(&records, &need), Some(only));
    }

    #[test]
    fn both_count_handoffs_alike(
        before in 0..=HANDOFF_TRUST,
        asleep in any::<bool>(),
        ago in prop_oneof![Just(None), (0..2 * HANDOFF).prop_map(Some), Just(Some(HANDOFF))],
    ) {
        let woke = ago.map_or(0, |ago| NOW - ago);
        let counted = count_handoff(before, asleep, woke, NOW);
        prop_assert_eq!(bpf::count_handoff(before, asleep, woke, NOW), counted);
    }

    /// And a turn of all that wait takes no longer than the limit, unless slices are the least.
    #[test]
    fn both_shorten_slices_alike(
        slice in prop_oneof![0..20_000_000u64, CROWD_SLICE_MIN - 1..CROWD_SLICE_MIN + 2],
        waiting in prop_oneof![0..2_000u32, 0..200_000u32],
        cpus in 1..=1024u32,
    ) {
        let shortened = crowd_slice(slice, waiting, cpus);
        prop_assert_eq!(bpf::crowd_slice(slice, waiting, cpus), shortened);
        prop_assert!(shortened <= slice && shortened >= slice.min(CROWD_SLICE_MIN));
        let turn = shortened / u64::from(cpus) * u64::from(waiting);
        prop_assert!(turn <= CROWD_TURN || shortened <= CROWD_SLICE_MIN);
    }

    #[test]
    fn both_put_off_turns_alike(
        ahead in -20_000_000i64..40_000_000,
        slice in 0..20_000_000u64,
        queued in prop_oneof![0..2_000u32, 0..200_000u32],
        cpus in 1..=1024u32,
    ) {
        let key = NOW.saturating_add_signed(ahead);
        let put_off = crowd_key(key, NOW, slice, queued, cpus);
        prop_assert_eq!(bpf::crowd_key(key, NOW, slice, queued, cpus), put_off);
        prop_assert!(put_off >= key && put_off <= key.max(NOW + CROWD_TURN));
        let passing = crowd_passing_key(key, queued, cpus);
        prop_assert_eq!(bpf::crowd_passing_key(key, queued, cpus), passing);
        prop_assert!((key - CROWD_TURN..=key).contains(&passing));
        // A crowd that grows by a task for each CPU puts off the tasks before by no more.
        prop_assert!(passing - crowd_passing_key(key, queued + cpus, cpus) <= CROWD_LEAD);
    }

    #[test]
    fn both_weigh_keys_alike(
        turn in MEAN_TURN_MIN.cast_unsigned()..PERIOD_MAX.cast_unsigned(),
        ago in -PERIOD_MAX * 2..PERIOD_MAX * 2,
        ran in 0..20_000_000u64,
        weight in prop_oneof![1..=100u32, 1..=10_000u32],
    ) {
        let last = NOW.saturating_add_signed(-ago);
        let (mut ours, mut theirs) = (turn, turn);
        let key = key_by_weight(&mut ours, last, NOW, ran, weight);
        prop_assert_eq!(bpf::key_by_weight(&mut theirs, last, NOW, ran, weight), key);
        prop_assert_eq!(theirs, ours);
        let ahead = key.wrapping_sub(NOW).cast_signed();
        prop_assert!((-4 * PERIOD_MAX..=2 * PERIOD_MAX).contains(&ahead));
    }

    /// A CPU that is kicked whenever it may be is kicked at most ten times in a window, and never
    /// twice within the interval.
    #[test]
    fn kicks_are_limited(steps in prop::collection::vec(1..3 * KICK_INTERVAL, 1..200)) {
        let mut record = bpf::Cpu { occupant: IDLE, ..bpf::Cpu::default() };
        let mut kicks: Vec<u64> = Vec::new();
        let mut now = NOW;
        for step in steps {
            now += step;
            let need = bpf::Need { now, tier: FOREIGN - 1, ..bpf::Need::default() };
            if bpf::find_victim(&[record], &need).is_some() {
                bpf::note_kick(&mut record, now);
                kicks.push(now);
            }
        }
        prop_assert!(kicks.windows(2).all(|pair| pair[1] - pair[0] >= KICK_INTERVAL));
        for kick in &kicks {
            let same = kicks.iter().filter(|one| *one >> WINDOW_BITS == kick >> WINDOW_BITS);
            prop_assert!(same.count() <= KICKS_PER_WINDOW as usize);
        }
    }
}

/// A time near [`NOW`], often exactly then.
fn near_now() -> impl Strategy<Value = u64> {
    prop_oneof![Just(NOW), Just(NOW + 1), Just(NOW - 1), NOW - PAST..NOW + PAST]
}

fn tier() -> impl Strategy<Value = Tier> {
    prop::sample::select(Tier::ALL.to_vec())
}

fn occupant() -> impl Strategy<Value = Occupant> {
    prop_oneof![Just(Occupant::Idle), tier().prop_map(Occupant::Task), Just(Occupant::Foreign)]
}

fn posted() -> impl Strategy<Value = Option<Posted>> {
    let later = near_now().prop_map(|time| time + LAST_LIFE.as_nanos());
    let until = prop_oneof![near_now(), later];
    let order = (tier(), 0u64..3, until, 0..LAST_CREDIT + 2, 0u32..6);
    let order = order.prop_map(|(tier, key_offset, until, left, epoch)| {
        let (until, key_offset) = (Stamp::from_nanos(until), Span::from_nanos(key_offset));
        Posted { tier, key_offset, until, left, epoch }
    });
    prop::option::weighted(0.9, order)
}

fn order_event() -> impl Strategy<Value = Event> {
    let rest = REST_MIN.as_nanos();
    let rests = prop_oneof![Just(0), Just(rest - 1), Just(rest), 0..4 * rest];
    let rests = rests.prop_map(Span::from_nanos);
    prop_oneof![
        2 => (rests, posted()).prop_map(|(rest, order)| Event::Requeue { rest, order }),
        4 => posted().prop_map(Event::Wakeup),
    ]
}

fn order_view() -> impl Strategy<Value = View> {
    let published = (0u32..6, prop::option::of(tier()), prop::option::of(near_now()), 0u32..2);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let cpu = (occupant(), near_now(), flags);
    (order_event(), published, cpu).prop_map(|(event, published, cpu)| {
        let (epoch, waiting, due, deficit_left) = published;
        let (occupant, key, (occupied, limited, decides, waker_sleeps, looked)) = cpu;
        View {
            now: Stamp::from_nanos(NOW),
            event,
            epoch,
            waiting,
            batch_due: due.map(Stamp::from_nanos),
            deficit_left,
            occupant,
            occupant_key: Vtime::from_raw(key),
            occupied,
            limited,
            decides: occupant == Occupant::Foreign && decides,
            waker_sleeps,
            looked,
        }
    })
}

fn bpf_order_view(view: &View) -> bpf::OrderView {
    let number = |tier: Tier| IDLE + 1 + tier.index() as u32;
    let (order, rest) = match view.event {
        Event::Wakeup(order) => (order, None),
        Event::Requeue { rest, order } => (order, Some(rest)),
    };
    bpf::OrderView {
        now: view.now.as_nanos(),
        until: order.map_or(0, |order| order.until.as_nanos()),
        batch_due: view.batch_due.map_or(u64::MAX, Stamp::as_nanos),
        key: order.map_or(0, |order| (view.now + order.key_offset).as_nanos()),
        occupant_key: view.occupant_key.as_raw(),
        tier: order.map_or(IDLE, |order| number(order.tier)),
        left: order.map_or(0, |order| order.left),
        epoch: order.map_or(0, |order| order.epoch),
        epoch_now: view.epoch,
        rest: rest.map_or(0, |rest| rest.as_nanos() as u32),
        waiting: view.waiting.map_or(IDLE, number),
        deficit_left: view.deficit_left,
        occupant: match view.occupant {
            Occupant::Idle => IDLE,
            Occupant::Task(tier) => number(tier),
            Occupant::Foreign => FOREIGN,
        },
        requeued: rest.is_some(),
        occupied: view.occupied,
        limited: view.limited,
        decides: view.decides,
        waker_sleeps: view.waker_sleeps,
        looked: view.looked,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Tasks that compute on CPUs that serve the lowest key and give all the same slice.
    #[test]
    fn keys_give_shares_by_weight(
        cpus in 1..=2usize,
        weights in prop::collection::vec(prop::sample::select(vec![50u32, 100, 200]), 16..=20),
    ) {
        const TURNS: usize = 20_000;
        let (mut turn, mut ran) = (DEFAULT_SLICE, vec![0u32; weights.len()]);
        let mut keys: Vec<u64> = (0..weights.len()).map(|task| NOW + task as u64).collect();
        let mut running = VecDeque::new();
        for step in 0..TURNS {
            if running.len() == cpus {
                let task: usize = running.pop_front().expect("CPUs run something");
                let now = NOW + (step as u64 * DEFAULT_SLICE) / cpus as u64;
                let (last, weight) = (keys[task], weights[task]);
                keys[task] = key_by_weight(&mut turn, last, now, DEFAULT_SLICE, weight);
            }
            let waiting = (0..keys.len()).filter(|task| !running.contains(task));
            let next = waiting.min_by_key(|&task| keys[task]).expect("tasks wait");
            ran[next] += 1;
            running.push_back(next);
        }
        let all: u32 = weights.iter().sum();
        for (ran, weight) in ran.iter().zip(&weights) {
            let share = f64::from(*ran) / TURNS as f64 / (f64::from(*weight) / f64::from(all));
            prop_assert!((0.9..1.1).contains(&share), "{ran} turns of weight {weight}: {share}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16384))]

    #[test]
    fn both_give_the_same_verdict_on_an_order(view in order_view()) {
        let ours = match orders::verdict(&view) {
            Verdict::Ask => bpf::OrderVerdict::Ask,
            Verdict::Preempt => bpf::OrderVerdict::Preempt,
            Verdict::Queue => bpf::OrderVerdict::Queue,
            Verdict::QueueHere => bpf::OrderVerdict::QueueHere,
            Verdict::HandOver => bpf::OrderVerdict::HandOver,
            Verdict::Resume => bpf::OrderVerdict::Resume,
            Verdict::Again => bpf::OrderVerdict::Again,
        };
        prop_assert_eq!(bpf::order_verdict(&bpf_order_view(&view)), Some(ours));
        if let Event::Wakeup(Some(order)) = view.event {
            let ending = bpf::order_is_ending(&bpf_order_view(&view));
            prop_assert_eq!(ending, Some(order.is_ending(view.now, view.epoch)));
        }
    }
}

// ---- Timers that cannot be started --------------------------------------------------------------

/// Longer than `FP_OVERDUE_NS`, and than any test is ahead of now.
const OVERDUE: u64 = bpf::OVERDUE_MAX;

/// What becomes of a start.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Start {
    Works,
    /// The kernel says no.
    Refused,
    /// The kernel says yes, and the callback never comes.
    Lost,
}

fn start() -> impl Strategy<Value = Start> {
    prop::sample::select(vec![Start::Works, Start::Refused, Start::Lost])
}

/// The timer of a CPU as the kernel sees it.
#[derive(Default)]
struct Timer {
    armed: u64,
    fires: Option<u64>,
}

impl Timer {
    fn arm(&mut self, at: u64, now: u64, start: Start) {
        let before = self.armed;
        let after = bpf::timer_arm(before, at, now, start == Start::Refused);
        if after != before {
            self.fires = (start == Start::Works).then_some(at.max(now));
        }
        self.armed = after;
    }

    /// The callback, which clears the flag, if it is due.
    fn run_until(&mut self, now: u64) {
        if self.fires.is_some_and(|at| at <= now) {
            (self.fires, self.armed) = (None, 0);
        }
    }
}

proptest! {
    /// Whatever became of earlier starts, the first one that works after the flag is not believed
    /// any more fires in time.
    #[test]
    fn a_timer_that_cannot_be_started_is_not_dead_for_ever(
        steps in prop::collection::vec((0..2 * OVERDUE, 0..OVERDUE, start()), 0..40),
    ) {
        let (mut timer, mut now) = (Timer::default(), NOW);
        for (pause, ahead, start) in steps {
            now += pause;
            timer.run_until(now);
            timer.arm(now + ahead, now, start);
        }
        now += 2 * OVERDUE;
        timer.run_until(now);
        timer.arm(now + 7, now, Start::Works);
        prop_assert_eq!((timer.fires, timer.armed), (Some(now + 7), now + 7));
    }

    /// A timer that works is started only for an earlier time.
    #[test]
    fn an_armed_timer_is_not_moved_to_a_later_time(ahead in 1..OVERDUE, more in 0..OVERDUE) {
        let armed = NOW + ahead;
        prop_assert_eq!(bpf::timer_arm(armed, armed + more, NOW, false), armed);
        prop_assert_eq!(bpf::timer_arm(armed, armed - 1, NOW, false), armed - 1);
    }
}

#[test]
fn a_watch_whose_callback_does_not_come_is_armed_again() {
    let mut watch = bpf::Watch { armed: 1, calls: 5, calls_before: 3 };
    bpf::watch_look(&mut watch);
    assert_eq!(watch, bpf::Watch { armed: 1, calls: 5, calls_before: 5 }, "it works");
    bpf::watch_look(&mut watch);
    assert_eq!(watch, bpf::Watch { armed: 0, calls: 5, calls_before: 5 }, "it is lost");
}
