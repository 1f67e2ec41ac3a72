// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the process database: number vectors of PANDEMONIUM, and properties that hold for any
//! sequence of observations, merges and bytes.

use pandemonium_engine::procdb::codec::{self, DecodeError};
use pandemonium_engine::procdb::{
    Confidence, Minute, Observation, ProcDb, Profile, Program, RETENTION_DAYS, Rate, Summary,
    Verdict, Votes, rejoin,
};
use pandemonium_engine::task::{Comm, Tier, User};
use pandemonium_engine::time::Span;
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Counts allocations per thread, so that a test counts only its own.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: forwards every call to the system's allocator; the counter allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller fulfils the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller fulfils the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const DAY: u32 = 24 * 60;

fn day(day: u32) -> Minute {
    Minute::from_unix(day * DAY)
}

/// A program of an unknown user.
fn name(text: &str) -> Program {
    Program { comm: Comm::from_text(text), user: User::UNKNOWN }
}

/// A program of a user.
fn of(user: u32, text: &str) -> Program {
    Program { user: User::new(user), ..name(text) }
}

/// An observation of runs of equal length, without a prediction.
fn seen(comm: &str, tier: Tier) -> Observation {
    Observation { program: name(comm), tier, run: Span::from_millis(1), ..Observation::default() }
}

/// A profile with whole votes that have not faded, like PANDEMONIUM's votes.
fn profile(votes: [u32; 3], observations: u32, run_us: u64, dev_us: u64) -> Profile {
    Profile {
        votes: Votes::fresh(votes),
        observations,
        run: Span::from_micros(run_us),
        run_dev: Span::from_micros(dev_us),
        ..Profile::unseen(name("any"))
    }
}

fn permille(profile: &Profile) -> u16 {
    profile.confidence().as_permille()
}

fn predicted_tier(db: &ProcDb, comm: &str) -> Option<Tier> {
    db.predict(&name(comm)).map(|prediction| prediction.tier)
}

// --- confidence -----------------------------------------------------------------------------

#[test]
fn confidence_is_the_share_of_the_tier_times_the_steadiness_of_runs() {
    for (votes, observations, run, dev, expected) in [
        ([5, 0, 0], 5, 1_000, 0, 1_000),
        ([5, 0, 0], 2, 1_000, 0, 0),
        ([3, 2, 0], 5, 1_000, 0, 600),
        ([4, 1, 0], 5, 1_000, 500, 600),
        ([4, 1, 0], 5, 1_000, 1_000, 400),
        ([9, 1, 0], 10, 1_000, 100, 855),
        ([9, 1, 0], 10, 1_000, 800, 540),
        ([5, 0, 0], 5, 0, 0, 500),
        ([5, 0, 0], 5, 1_000, 9_000, 500),
        ([2, 2, 1], 5, 1_000, 0, 400),
        ([0, 0, 0], 5, 1_000, 0, 0),
    ] {
        let profile = profile(votes, observations, run, dev);
        assert_eq!(permille(&profile), expected, "{votes:?}, {run} us +- {dev} us");
        assert_eq!(profile.prediction().is_some(), expected >= 600, "{votes:?}");
    }
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let largest = Profile {
        votes: Votes::from_raw([u32::MAX; 3]),
        run: Span::from_nanos(u64::MAX),
        run_dev: Span::from_nanos(u64::MAX),
        wake_freq: Rate::from_millihertz(u32::MAX),
        observations: u32::MAX,
        last_seen: Minute::from_unix(u32::MAX),
        misses: u8::MAX,
        ..profile([0; 3], 0, 0, 0)
    };
    assert!((165..=167).contains(&permille(&largest)), "{}", permille(&largest));
    let mut learned = largest;
    learned.misses = 0;
    learned.learn(day(1), &Observation { program: learned.program, ..seen("", Tier::Batch) });
    assert_eq!(learned.observations, u32::MAX);
    assert_eq!(learned.last_seen, Minute::from_unix(u32::MAX));
    assert_eq!(
        Minute::from_unix(7).later(Span::from_nanos(u64::MAX)).minutes_since(day(0)),
        7 + (u64::MAX / 60_000_000_000) as u32
    );
}

#[test]
fn of_tiers_with_equal_votes_the_most_urgent_dominates() {
    assert_eq!(Votes::fresh([5, 0, 0]).dominant(), Tier::Batch);
    assert_eq!(Votes::fresh([3, 2, 0]).dominant(), Tier::Batch);
    assert_eq!(Votes::fresh([1, 1, 3]).dominant(), Tier::LatCritical);
    assert_eq!(Votes::fresh([2, 2, 1]).dominant(), Tier::Interactive);
    assert_eq!(Votes::fresh([2, 0, 2]).dominant(), Tier::LatCritical);
    assert_eq!(Votes::fresh([0, 0, 0]).dominant(), Tier::LatCritical);
}

/// The same mixes, learned one by one. Fading weighs the latest votes most, so the confidence
/// differs from that of unfaded votes by at most one fade, a sixteenth.
#[test]
fn learned_votes_differ_from_unfaded_ones_by_one_fade_at_most() {
    for (order, expected) in
        [("BBBBB", 1_000), ("BIBIB", 600), ("BBIBB", 800), ("BBBBBIBBBB", 900), ("BBBIILB", 571)]
    {
        let mut db = ProcDb::new(4);
        for letter in order.chars() {
            let tier = Tier::ALL["BIL".find(letter).unwrap()];
            db.learn(day(1), &seen("mix", tier));
        }
        let learned = permille(db.get(&name("mix")).unwrap());
        let tolerance = 1_000 / 16 + 1;
        assert!(learned.abs_diff(expected) <= tolerance, "{order}: {learned}, not {expected}");
    }
}

// --- learning -------------------------------------------------------------------------------

#[test]
fn a_name_is_predicted_from_its_third_observation_on() {
    let mut db = ProcDb::new(4);
    assert_eq!(db.predict(&name("cc1")), None);
    for before in 0..3 {
        assert_eq!(db.predict(&name("cc1")), None, "after {before} observations");
        let cc1 = Observation {
            run: Span::from_millis(8),
            run_dev: Span::from_millis(1),
            wake_freq: Rate::from_millihertz(20_000),
            csw_rate: Rate::from_millihertz(15_000),
            ..seen("cc1", Tier::Batch)
        };
        assert_eq!(db.learn(day(1), &cc1), Verdict::Unpredicted);
    }
    let prediction = db.predict(&name("cc1")).unwrap();
    assert_eq!(prediction.tier, Tier::Batch);
    assert_eq!(prediction.run, Span::from_millis(8));
    assert_eq!(prediction.run_dev, Span::from_millis(1));
    assert_eq!(prediction.wake_freq.as_millihertz(), 20_000);
    assert_eq!(prediction.csw_rate.as_millihertz(), 15_000);
    // 1 x (1/2 + (1 - 1/8) / 2)
    assert_eq!(prediction.confidence.as_permille(), 937);
    assert_eq!(db.predict(&name("cc1plus")), None);
}

#[test]
fn averages_start_at_the_first_observation_and_move_by_an_eighth() {
    let mut db = ProcDb::new(4);
    let observed = |us, dev, wakes, switches| Observation {
        run: Span::from_micros(us),
        run_dev: Span::from_micros(dev),
        wake_freq: Rate::from_millihertz(wakes),
        csw_rate: Rate::from_millihertz(switches),
        ..seen("any", Tier::Batch)
    };
    db.learn(day(1), &observed(800, 80, 8_000, 16_000));
    db.learn(day(2), &observed(1_600, 0, 16_000, 0));
    let known = db.get(&name("any")).unwrap();
    assert_eq!(known.run, Span::from_micros(900));
    assert_eq!(known.run_dev, Span::from_micros(70));
    assert_eq!(known.wake_freq.as_millihertz(), 9_000);
    assert_eq!(known.csw_rate.as_millihertz(), 14_000);
    assert_eq!(known.observations, 2);
    assert_eq!(known.last_seen, day(2));
}

#[test]
fn an_average_converges_to_constant_observations() {
    for (from, to) in [(0, 7), (7, 0), (1_000_000, 3), (3, 1_000_000), (500, 500)] {
        let mut known = Profile::unseen(name("any"));
        let observed = |ns| Observation { run: Span::from_nanos(ns), ..seen("any", Tier::Batch) };
        known.learn(day(1), &observed(from));
        (0..200).for_each(|_| {
            known.learn(day(1), &observed(to));
        });
        assert!(known.run.as_nanos().abs_diff(to) <= 4, "{from} to {to}: {:?}", known.run);
    }
}

#[test]
fn a_vote_loses_half_its_weight_in_eleven_observations() {
    let mut known = Profile::unseen(name("any"));
    known.learn(day(1), &seen("any", Tier::Batch));
    let weight = |known: &Profile| f64::from(known.votes.as_raw()[0]) / f64::from(Votes::ONE);
    (0..10).for_each(|_| {
        known.learn(day(1), &seen("any", Tier::LatCritical));
    });
    assert!(weight(&known) > 0.5);
    known.learn(day(1), &seen("any", Tier::LatCritical));
    assert!(weight(&known) < 0.5);
    (0..400).for_each(|_| {
        known.learn(day(1), &seen("any", Tier::LatCritical));
    });
    assert_eq!(weight(&known), 0.0, "an old vote reaches zero");
}

/// No prediction is checked here (as if all tasks were running already), so only fading changes the
/// prediction. Between the two predictions there is none.
#[test]
fn changed_behaviour_changes_the_prediction_however_long_the_old_one_lasted() {
    for lasted in [16, 1_000, 100_000] {
        let mut db = ProcDb::new(4);
        for _ in 0..lasted {
            db.learn(day(1), &seen("editor", Tier::Interactive));
        }
        let tiers: Vec<Option<Tier>> = (0..15)
            .map(|_| {
                db.learn(day(1), &seen("editor", Tier::Batch));
                predicted_tier(&db, "editor")
            })
            .collect();
        // Two thirds of the full weight after 16 observations, all of it after a thousand.
        let (lost, found) = if lasted == 16 { (5, 10) } else { (7, 14) };
        assert!(tiers[..lost].iter().all(|tier| *tier == Some(Tier::Interactive)), "{tiers:?}");
        assert!(tiers[lost..found].iter().all(Option::is_none), "{tiers:?}");
        assert!(tiers[found..].iter().all(|tier| *tier == Some(Tier::Batch)), "{tiers:?}");
    }
}

// --- checking predictions -------------------------------------------------------------------

/// Learns an observation of a task that got the database's present prediction.
fn observe(db: &mut ProcDb, comm: &str, tier: Tier) -> Verdict {
    let predicted = predicted_tier(db, comm);
    db.learn(day(1), &Observation { predicted, ..seen(comm, tier) })
}

#[test]
fn three_wrong_predictions_in_a_row_reset_a_profile() {
    let mut db = ProcDb::new(4);
    (0..1_000).for_each(|_| {
        observe(&mut db, "java", Tier::Batch);
    });
    assert_eq!(observe(&mut db, "java", Tier::LatCritical), Verdict::Wrong);
    assert_eq!(observe(&mut db, "java", Tier::LatCritical), Verdict::Wrong);
    assert_eq!(predicted_tier(&db, "java"), Some(Tier::Batch));
    assert_eq!(observe(&mut db, "java", Tier::LatCritical), Verdict::Wrong);
    assert_eq!(db.predict(&name("java")), None, "reset at once");
    assert_eq!(db.summary(), Summary { total: 1, confident: 0 });
    let known = *db.get(&name("java")).unwrap();
    assert_eq!((known.observations, known.misses), (1, 0), "it restarts with the last observation");
    assert_eq!(known.run, Span::from_millis(1));
    assert_eq!(observe(&mut db, "java", Tier::LatCritical), Verdict::Unpredicted);
    assert_eq!(observe(&mut db, "java", Tier::LatCritical), Verdict::Unpredicted);
    assert_eq!(predicted_tier(&db, "java"), Some(Tier::LatCritical));
    assert_eq!(observe(&mut db, "java", Tier::LatCritical), Verdict::Right);
}

#[test]
fn one_odd_run_in_five_does_not_end_a_prediction() {
    let mut db = ProcDb::new(4);
    for i in 0..1_000 {
        let tier = if i % 5 == 4 { Tier::LatCritical } else { Tier::Batch };
        observe(&mut db, "bash", tier);
        if i > 20 {
            assert_eq!(predicted_tier(&db, "bash"), Some(Tier::Batch), "observation {i}");
        }
    }
}

#[test]
fn a_prediction_ends_when_run_lengths_begin_to_vary() {
    let mut db = ProcDb::new(4);
    let observed =
        |dev_us, tier| Observation { run_dev: Span::from_micros(dev_us), ..seen("python3", tier) };
    for i in 0..20 {
        let tier = if i % 4 == 3 { Tier::Interactive } else { Tier::Batch };
        db.learn(day(1), &observed(0, tier));
    }
    assert_eq!(db.summary(), Summary { total: 1, confident: 1 });
    assert!(db.predict(&name("python3")).is_some());
    for i in 0..20 {
        let tier = if i % 4 == 3 { Tier::Interactive } else { Tier::Batch };
        db.learn(day(1), &observed(2_000, tier));
    }
    assert_eq!(db.predict(&name("python3")), None);
    assert_eq!(db.summary(), Summary { total: 1, confident: 0 });
}

// --- users ----------------------------------------------------------------------------------

/// Learns so often from a task of this user.
fn teach(db: &mut ProcDb, program: Program, tier: Tier, times: u32) {
    for _ in 0..times {
        db.learn(day(1), &Observation { program, ..seen("", tier) });
    }
}

fn tier_for(db: &ProcDb, program: Program) -> Option<Tier> {
    db.predict(&program).map(|prediction| prediction.tier)
}

#[test]
fn what_one_user_s_programs_teach_counts_for_no_other_user() {
    let mut db = ProcDb::new(8);
    teach(&mut db, of(1_000, "editor"), Tier::Interactive, 5);
    teach(&mut db, of(1_001, "editor"), Tier::Batch, 500);
    assert_eq!(tier_for(&db, of(1_000, "editor")), Some(Tier::Interactive));
    assert_eq!(tier_for(&db, of(1_001, "editor")), Some(Tier::Batch));
    assert_eq!(tier_for(&db, of(0, "editor")), None);
    assert_eq!(tier_for(&db, name("editor")), None, "nor for an unknown user");
    assert_eq!(db.summary(), Summary { total: 2, confident: 2 });
}

#[test]
fn what_was_learned_without_users_counts_until_the_user_s_own_programs_teach() {
    let mut db = ProcDb::new(8);
    teach(&mut db, name("editor"), Tier::Batch, 5);
    assert_eq!(tier_for(&db, of(1_000, "editor")), Some(Tier::Batch));
    teach(&mut db, of(1_000, "editor"), Tier::Interactive, 1);
    assert_eq!(tier_for(&db, of(1_000, "editor")), None, "its own, not known well enough yet");
    assert_eq!(tier_for(&db, of(0, "editor")), Some(Tier::Batch));
}

// --- a clock that is set --------------------------------------------------------------------

/// Names and ages in days.
fn ages(profiles: &[Profile], now: Minute) -> Vec<(String, u32)> {
    let age = |known: &Profile| (known.program.comm.to_string(), now.days_since(known.last_seen));
    profiles.iter().map(age).collect()
}

/// A full database with a program of each of these days.
fn seen_on(days: &[u32]) -> ProcDb {
    let mut db = ProcDb::new(days.len() as u32);
    for at in days {
        db.learn(day(*at), &seen(&format!("d{at}"), Tier::Batch));
    }
    db
}

#[test]
fn a_clock_that_is_set_while_it_runs_keeps_all_ages() {
    for to in [day(103), day(500), day(50), day(20)] {
        let mut db = seen_on(&[80, 95, 100]);
        let before = ages(db.profiles(), day(100));
        db.clock_moved(day(100), to);
        assert_eq!(ages(db.profiles(), to), before, "set to {to:?}");
        db.merge(to, []);
        assert_eq!(db.profiles().len(), 3, "set to {to:?}");
        db.clock_moved(to, day(100));
        let after: BTreeMap<String, u32> = ages(db.profiles(), day(100)).into_iter().collect();
        assert_eq!(after, before.into_iter().collect(), "and back from {to:?}");
    }
}

/// Else the programs that are learned after it would push each other out of a full table.
#[test]
fn after_a_clock_was_set_back_the_oldest_are_evicted_first() {
    let mut db = seen_on(&[80, 95, 100]);
    db.clock_moved(day(100), day(30));
    db.learn(day(30), &seen("new", Tier::Batch));
    let names: Vec<String> = ages(db.profiles(), day(30)).into_iter().map(|it| it.0).collect();
    assert_eq!(names, ["new", "d95", "d100"]);
}

#[test]
fn a_clock_without_a_battery_keeps_the_times_that_are_right_later() {
    let mut db = seen_on(&[9_990, 10_000]);
    db.learn(day(0), &seen("d10000", Tier::Batch));
    db.clock_moved(day(0), day(10_001));
    let expected = [("d9990".into(), 11), ("d10000".into(), 1)];
    assert_eq!(ages(db.profiles(), day(10_001)), expected);
}

#[test]
fn a_step_of_a_day_moves_no_time() {
    let mut db = seen_on(&[99, 100]);
    let before = db.profiles().to_vec();
    db.clock_moved(day(100), day(101));
    db.clock_moved(day(100), day(99));
    assert_eq!(db.profiles(), before);
}

#[test]
fn a_file_goes_on_where_the_last_run_ended() {
    let rejoined = |days: &[u32], now: u32| {
        let mut profiles: Vec<Profile> = days.iter().map(|_| Profile::default()).collect();
        for (profile, at) in profiles.iter_mut().zip(days) {
            profile.last_seen = day(*at);
        }
        rejoin(&mut profiles, day(now));
        ages(&profiles, day(now)).into_iter().map(|it| it.1).collect::<Vec<u32>>()
    };
    assert_eq!(rejoined(&[80, 100], 100), [20, 0], "nothing has happened");
    assert_eq!(rejoined(&[80, 100], 101), [21, 1], "a night");
    assert_eq!(rejoined(&[80, 100], 500), [21, 1], "a year, or a clock that was set");
    assert_eq!(rejoined(&[80, 100], 60), [20, 0], "a clock that was set back");
    assert_eq!(rejoined(&[80, 100], 3), [0, 0], "a clock without a battery: in the future");
    assert_eq!(rejoined(&[], 3), [0; 0]);
}

// --- keeping and forgetting -----------------------------------------------------------------

#[test]
fn a_name_is_kept_for_weeks_and_then_dropped() {
    let mut db = ProcDb::new(4);
    (0..5).for_each(|_| {
        db.learn(day(100), &seen("weekly", Tier::Batch));
    });
    let known = db.profiles().to_vec();
    let kept_until = |minute: Minute| {
        let mut later = ProcDb::new(4);
        later.merge(minute, known.iter().copied());
        later.profiles().len()
    };
    assert_eq!(kept_until(day(100)), 1);
    assert_eq!(kept_until(day(100 + RETENTION_DAYS)), 1);
    assert_eq!(kept_until(Minute::from_unix((101 + RETENTION_DAYS) * DAY - 1)), 1);
    assert_eq!(kept_until(day(101 + RETENTION_DAYS)), 0);
    assert_eq!(kept_until(day(0)), 1, "a clock that stepped back drops nothing");
    assert_eq!(kept_until(day(100 + 21)), 1, "three weeks later");
    assert_eq!(kept_until(day(100 + 90)), 0, "three months later");
    assert_eq!(predicted_tier(&db, "weekly"), Some(Tier::Batch), "only merging drops");
    db.merge(day(200), []);
    assert!(db.get(&name("weekly")).is_none());
    assert_eq!(db.summary(), Summary::default());
}

#[test]
fn the_oldest_name_is_evicted() {
    let mut db = ProcDb::new(3);
    for (comm, when) in [("b", 2), ("a", 1), ("c", 3)] {
        (0..9).for_each(|_| {
            db.learn(day(when), &seen(comm, Tier::Batch));
        });
    }
    db.learn(day(3), &seen("d", Tier::Batch));
    assert!(db.get(&name("a")).is_none());
    assert_eq!(db.summary(), Summary { total: 3, confident: 2 });
    db.learn(day(3), &seen("b", Tier::Batch)); // seen again: no longer the oldest
    db.learn(day(4), &seen("e", Tier::Batch));
    let names: Vec<String> = ["b", "c", "d", "e"]
        .into_iter()
        .filter(|comm| db.get(&name(comm)).is_some())
        .map(str::to_owned)
        .collect();
    assert_eq!(
        names,
        ["b", "c", "e"],
        "of the same day the one with the fewest observations is evicted"
    );
    db.learn(day(3), &seen("c", Tier::Batch));
    assert_eq!(db.get(&name("c")).unwrap().observations, 10);
}

#[test]
fn a_flood_of_names_seen_once_evicts_only_its_own_names() {
    let mut db = ProcDb::new(64);
    for comm in 0..60 {
        (0..3).for_each(|_| {
            db.learn(day(9), &seen(&format!("known-{comm}"), Tier::Interactive));
        });
    }
    for i in 0..10_000u32 {
        let when = Minute::from_unix(9 * DAY + i / 10);
        db.learn(when, &seen(&format!("flood-{i}"), Tier::Batch));
    }
    assert_eq!(db.summary(), Summary { total: 64, confident: 60 });
}

#[test]
fn an_empty_database_predicts_nothing() {
    let db = ProcDb::new(1);
    assert_eq!(db.summary(), Summary::default());
    assert_eq!(db.predict(&name("")), None);
    assert!(db.profiles().is_empty());
}

#[test]
fn learning_and_looking_up_never_allocate() {
    let mut db = ProcDb::new(50);
    let observed: Vec<Observation> =
        (0..100).map(|i| seen(&format!("name-{i}"), Tier::ALL[i % 3])).collect();
    db.merge(day(1), (0..20).map(|i| Profile::unseen(observed[i].program)));
    let before = ALLOCATIONS.get();
    for _ in 0..5 {
        for seen in &observed {
            db.learn(day(1), seen);
            std::hint::black_box((db.predict(&seen.program), db.summary()));
        }
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert_eq!(db.profiles().len(), 50);
    assert!(before > 0, "the counter counts");
}

// --- properties -----------------------------------------------------------------------------

fn any_tier() -> impl Strategy<Value = Tier> {
    (0..3usize).prop_map(|i| Tier::ALL[i])
}

/// Names: some are equal, some differ in one letter, some are not text.
fn any_comm() -> impl Strategy<Value = Comm> {
    prop_oneof![
        "[ab]{0,2}".prop_map(|text| Comm::from_text(&text)),
        any::<[u8; 16]>().prop_map(Comm::from_kernel),
    ]
}

/// Few users, so that names are shared.
fn any_program() -> impl Strategy<Value = Program> {
    let user = prop_oneof![Just(0), Just(1_000), Just(u32::MAX)].prop_map(User::new);
    (any_comm(), user).prop_map(|(comm, user)| Program { comm, user })
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let votes = prop_oneof![
        any::<[u32; 3]>().prop_map(Votes::from_raw),
        prop::array::uniform3(0..6u32).prop_map(Votes::fresh),
    ];
    // Few days and minutes, so that ties occur.
    let last_seen = (1000..1040u32, 0..3u32).prop_map(|(d, m)| Minute::from_unix(d * DAY + m));
    let averages = (any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>());
    let counts = (prop_oneof![0..5u32, any::<u32>()], last_seen, 0..3u8);
    (any_program(), votes, averages, counts).prop_map(
        |(program, votes, (run, run_dev, wakes, switches), (observations, last_seen, misses))| {
            Profile {
                program,
                votes,
                run: Span::from_nanos(run),
                run_dev: Span::from_nanos(run_dev),
                wake_freq: Rate::from_millihertz(wakes),
                csw_rate: Rate::from_millihertz(switches),
                observations,
                last_seen,
                misses,
            }
        },
    )
}

fn any_profiles() -> impl Strategy<Value = Vec<Profile>> {
    prop::collection::vec(any_profile(), 0..24)
}

fn merged(capacity: u32, when: Minute, sides: &[&[Profile]]) -> Vec<Profile> {
    let mut db = ProcDb::new(capacity);
    sides.iter().for_each(|side| db.merge(when, side.iter().copied()));
    for profile in db.profiles() {
        assert_eq!(db.get(&profile.program), Some(profile));
    }
    let confident = db.profiles().iter().filter(|p| p.prediction().is_some()).count();
    assert_eq!(db.summary(), Summary { total: db.profiles().len(), confident });
    db.profiles().to_vec()
}

proptest! {
    /// The model is a list with linear search, which evicts by sorting.
    #[test]
    fn the_table_agrees_with_a_plain_list(
        capacity in 1..6u32,
        steps in prop::collection::vec((0..9u32, any_tier(), 0..4u32, any::<bool>()), 1..120),
    ) {
        let mut db = ProcDb::new(capacity);
        let mut model: Vec<Profile> = Vec::new();
        for (number, tier, when, predicted) in steps {
            let seen = Observation {
                predicted: predicted.then_some(Tier::Batch),
                ..seen(&format!("n{number}"), tier)
            };
            db.learn(day(when), &seen);
            if model.iter().all(|profile| profile.program != seen.program) {
                if model.len() == capacity as usize {
                    let key = |p: &Profile| (p.last_seen, p.observations, p.program);
                    model.sort_by_key(key);
                    model.remove(0);
                }
                model.push(Profile::unseen(seen.program));
            }
            let known = model.iter_mut().find(|profile| profile.program == seen.program).unwrap();
            known.learn(day(when), &seen);
            for number in 0..9 {
                let comm = name(&format!("n{number}"));
                let expected = model.iter().find(|profile| profile.program == comm);
                prop_assert_eq!(db.get(&comm), expected);
                prop_assert_eq!(db.predict(&comm), expected.and_then(Profile::prediction));
            }
            let confident = model.iter().filter(|p| p.prediction().is_some()).count();
            prop_assert_eq!(db.summary(), Summary { total: model.len(), confident });
        }
    }

    #[test]
    fn votes_stay_below_their_maximum_and_predictions_above_the_limit(
        start in any_profile(),
        steps in prop::collection::vec((any_tier(), any::<bool>()), 0..60),
    ) {
        let mut known = start;
        for (tier, is_predicted) in steps {
            let predicted = known.prediction().filter(|_| is_predicted).map(|p| p.tier);
            known.learn(day(1000), &Observation { predicted, ..seen("any", tier) });
            prop_assert!(known.votes.total() <= Votes::MAX);
            prop_assert!(known.confidence().as_permille() <= 1_000);
            prop_assert!(known.misses < 3);
            if let Some(prediction) = known.prediction() {
                prop_assert!(prediction.confidence >= Confidence::LIMIT);
                prop_assert!(known.observations >= 3);
                // With 0.6 of the votes no other tier can have as many.
                prop_assert_eq!(prediction.tier, known.votes.dominant());
            }
        }
    }

    #[test]
    fn merging_is_commutative_and_idempotent(a in any_profiles(), b in any_profiles()) {
        let when = day(1035);
        for capacity in [4, 64] {
            let both = merged(capacity, when, &[&[&a[..], &b[..]].concat()]);
            prop_assert_eq!(&both, &merged(capacity, when, &[&[&b[..], &a[..]].concat()]));
            prop_assert_eq!(&both, &merged(capacity, when, &[&both, &both]));
            prop_assert!(both.len() <= capacity as usize);
        }
        // If all profiles fit, the order of the merges does not matter.
        prop_assert_eq!(merged(64, when, &[&a, &b]), merged(64, when, &[&b, &a]));
    }

    /// Keep the newer profile of each name, drop old ones, and keep those of most worth.
    #[test]
    fn merging_agrees_with_its_definition(profiles in any_profiles()) {
        let when = day(1035);
        let mut newest: BTreeMap<Program, Profile> = BTreeMap::new();
        for profile in &profiles {
            let kept = newest.entry(profile.program).or_insert(*profile);
            if (profile.last_seen, profile.observations) > (kept.last_seen, kept.observations) {
                *kept = *profile;
            }
        }
        let key = |p: &Profile| (p.program, p.last_seen, p.observations);
        let day_of = |p: &Profile| p.last_seen.as_unix() / DAY;
        let mut expected: Vec<Profile> = newest.into_values().collect();
        expected.retain(|p| p.last_seen >= day(1035 - RETENTION_DAYS - 1)
            && when.days_since(p.last_seen) <= RETENTION_DAYS);
        expected.sort_by_key(|p| std::cmp::Reverse((day_of(p), p.observations, p.program)));
        expected.truncate(6);
        expected.sort_by_key(key);
        let got = merged(6, when, &[&profiles]);
        prop_assert_eq!(got.iter().map(key).collect::<Vec<_>>(),
            expected.iter().map(key).collect::<Vec<_>>());
    }

    #[test]
    fn encoded_profiles_decode_to_the_same(profiles in any_profiles()) {
        let bytes = codec::encode(&profiles);
        prop_assert_eq!(bytes.len(), 24 + 72 * profiles.len());
        prop_assert_eq!(codec::decode(&bytes, day(0)), Ok(profiles));
    }

    #[test]
    fn a_cut_extension_or_flipped_bit_is_refused(profiles in any_profiles(), at in any::<usize>()) {
        let bytes = codec::encode(&profiles);
        prop_assert!(codec::decode(&bytes[..at % bytes.len()], day(0)).is_err());
        let mut flipped = bytes.clone();
        flipped[at / 8 % bytes.len()] ^= 1 << (at % 8);
        prop_assert!(codec::decode(&flipped, day(0)).is_err());
        let longer = [&bytes[..], &[0]].concat();
        prop_assert!(codec::decode(&longer, day(0)).is_err());
    }

    #[test]
    fn random_bytes_never_panic(
        start in prop_oneof![
            Just(vec![]), Just(b"PDDB".to_vec()), Just(b"PDDB\x01\0\0\0".to_vec()),
            Just(b"PDDB\x02\0\0\0".to_vec()), Just(b"PDDB\x02\0\0\0\x01\0\0\0".to_vec()),
            Just(b"PANDEMDB\x03\0\0\0".to_vec()), Just(b"PANDEMDB\x03\0\0\0\x01\0\0\0".to_vec()),
            Just(b"PANDEMDB\x04\0\0\0".to_vec()), Just(b"PANDEMDB\x04\0\0\0\x01\0\0\0".to_vec()),
        ],
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let bytes = [start, rest].concat();
        for profile in codec::decode(&bytes, day(3)).unwrap_or_default() {
            prop_assert!(profile.votes.total() <= Votes::MAX);
            profile.prediction();
        }
    }

    #[test]
    fn any_words_unpack_to_a_profile_and_pack_again(words in any::<[u64; codec::WORDS]>()) {
        let profile = codec::unpack(&words);
        prop_assert!(profile.votes.total() <= Votes::MAX);
        prop_assert_eq!(codec::unpack(&codec::pack(&profile)), profile);
        let mut db = ProcDb::new(2);
        db.merge(profile.last_seen, [profile]);
        db.learn(day(1), &Observation { program: profile.program, ..seen("", Tier::Batch) });
        prop_assert!(db.get(&profile.program).is_some_and(|known| known.observations > 0));
    }
}

// --- bytes ----------------------------------------------------------------------------------

fn cc1(program: Program) -> Profile {
    Profile {
        program,
        votes: Votes::from_raw([0x11, 0x22, 0x33]),
        run: Span::from_nanos(0x0102_0304),
        run_dev: Span::from_nanos(5),
        wake_freq: Rate::from_millihertz(6),
        csw_rate: Rate::from_millihertz(7),
        observations: 8,
        last_seen: Minute::from_unix(9),
        misses: 2,
    }
}

/// The exact bytes of version 4. Any change of the format needs a new version.
#[test]
fn version_4_has_exactly_these_bytes() {
    let bytes = codec::encode(&[cc1(of(1_000, "cc1"))]);
    let mut expected = Vec::new();
    expected.extend(b"PANDEMDB\x04\0\0\0\x01\0\0\0cc1\0\0\0\0\0\0\0\0\0\0\0\0\0");
    expected.extend(b"\x04\x03\x02\x01\0\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\x07\0\0\0");
    expected.extend(b"\x11\0\0\0\x22\0\0\0\x33\0\0\0\x08\0\0\0\x09\0\0\0\x02\0\0\0");
    expected.extend(b"\xe8\x03\0\0\0\0\0\0");
    assert_eq!(&bytes[..88], expected);
    assert_eq!(bytes.len(), 96);
    assert_eq!(codec::unpack(&[u64::MAX; codec::WORDS]).program.user, User::UNKNOWN);
}

/// The bytes of the same profile in version 3, with the checksum of that time.
const VERSION_3: &[u8] = b"PANDEMDB\x03\0\0\0\x01\0\0\0cc1\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \x04\x03\x02\x01\0\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\x07\0\0\0\
    \x11\0\0\0\x22\0\0\0\x33\0\0\0\x08\0\0\0\x09\0\0\0\x02\0\0\0\xfa\xec\xe6\x37\xeb\x2e\x94\xef";

#[test]
fn version_3_is_read_and_its_programs_are_of_an_unknown_user() {
    assert_eq!(VERSION_3.len(), 88);
    assert_eq!(codec::decode(VERSION_3, day(0)), Ok(vec![cc1(name("cc1"))]));
    for at in 0..VERSION_3.len() {
        let mut damaged = VERSION_3.to_vec();
        damaged[at] ^= 1;
        assert!(codec::decode(&damaged, day(0)).is_err(), "byte {at}");
        assert!(codec::decode(&VERSION_3[..at], day(0)).is_err(), "cut at {at}");
    }
}

fn original(version: u32, entries: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"PDDB".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend((entries.len() as u32).to_le_bytes());
    entries.iter().for_each(|entry| bytes.extend(entry));
    bytes
}

/// An entry of PANDEMONIUM's file: name, tier, u64 fields, observations and votes.
fn original_entry(comm: &[u8; 16], tier: u8, fields: &[u64], counts: [u32; 2]) -> Vec<u8> {
    let mut bytes = comm.to_vec();
    bytes.extend([tier, 0, 0, 0, 0, 0, 0, 0]);
    fields.iter().for_each(|field| bytes.extend(field.to_le_bytes()));
    counts.iter().for_each(|count| bytes.extend(count.to_le_bytes()));
    bytes
}

#[test]
fn every_field_of_pandemoniums_version_2_is_imported() {
    let cc1 = original_entry(b"cc1\0............", 0, &[8_000_000, 1_000, 2, 3], [900, 900]);
    let odd = original_entry(b"sixteen-letters!", 77, &[1, 2, u64::MAX, 0], [5, 2]);
    assert_eq!((cc1.len(), odd.len()), (64, 64));
    let bytes = [original(2, &[cc1, odd]), b"trailing".to_vec()].concat();
    let [cc1, odd] = codec::decode(&bytes, day(7)).unwrap().try_into().unwrap();
    assert_eq!(cc1.program, name("cc1"));
    assert_eq!(cc1.run, Span::from_millis(8));
    assert_eq!(cc1.run_dev, Span::from_micros(1));
    assert_eq!(cc1.wake_freq.as_millihertz(), 20_000);
    assert_eq!(cc1.csw_rate.as_millihertz(), 30_000);
    assert_eq!((cc1.observations, cc1.last_seen), (900, day(7)));
    assert_eq!(cc1.prediction().unwrap().tier, Tier::Batch);
    assert_eq!(odd.program.comm.as_bytes(), b"sixteen-letters");
    assert_eq!(odd.votes, Votes::fresh([0, 0, 2]), "a tier above 2 counts as 2");
    assert_eq!(odd.wake_freq.as_millihertz(), u32::MAX);
}

#[test]
fn pandemoniums_version_1_is_imported_with_zeros_for_missing_fields() {
    let bytes = original_entry(b"make\0\0\0\0\0\0\0\0\0\0\0\0", 1, &[500], [4, 4]);
    assert_eq!(bytes.len(), 40);
    let [make] = codec::decode(&original(1, &[bytes]), day(7)).unwrap().try_into().unwrap();
    assert_eq!((make.run, make.run_dev), (Span::from_nanos(500), Span::ZERO));
    assert_eq!((make.wake_freq, make.csw_rate), (Rate::default(), Rate::default()));
    assert_eq!(make.prediction().unwrap().tier, Tier::Interactive);
}

/// PANDEMONIUM stores a mix of six to four as ten of ten. The imported entry predicts until two
/// observations disagree.
#[test]
fn two_observations_that_disagree_end_an_imported_prediction() {
    let fields = [1_000_000, 0, 2, 3];
    let mix = original_entry(b"mix\0............", 0, &fields, [u32::MAX, u32::MAX]);
    let mut db = ProcDb::new(4);
    db.merge(day(7), codec::decode(&original(2, &[mix]), day(7)).unwrap());
    assert_eq!(predicted_tier(&db, "mix"), Some(Tier::Batch));
    db.learn(day(7), &seen("mix", Tier::LatCritical));
    db.learn(day(7), &seen("mix", Tier::LatCritical));
    assert_eq!(db.predict(&name("mix")), None);
}

#[test]
fn invalid_bytes_are_refused_with_a_reason() {
    let version_4 = codec::encode(&[profile([5, 0, 0], 5, 1, 0)]);
    let original_2 = original(2, &[original_entry(b"cc1\0............", 0, &[1; 4], [3, 3])]);
    let changed = |bytes: &[u8], at: usize, byte: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at] = byte;
        bytes
    };
    let wrong = |entries, bytes| DecodeError::Length { entries, bytes };
    for (bytes, error) in [
        (b"\x7fELF and so on".to_vec(), DecodeError::Foreign),
        (b"".to_vec(), DecodeError::Truncated),
        (b"PD".to_vec(), DecodeError::Truncated),
        (b"PDDB\x02\0\0\0\0\0\0".to_vec(), DecodeError::Truncated),
        (changed(&version_4, 8, 3), wrong(1, 96)),
        (version_4[..15].to_vec(), DecodeError::Truncated),
        (changed(&version_4, 8, 5), DecodeError::Version(5)),
        (changed(&original_2, 4, 3), DecodeError::Version(3)),
        (changed(&original_2, 4, 0), DecodeError::Version(0)),
        (changed(&version_4, 15, 0xff), wrong(0xff00_0001, 96)),
        (changed(&original_2, 11, 0xff), wrong(0xff00_0001, 76)),
        (version_4[..95].to_vec(), wrong(1, 95)),
        (original_2[..75].to_vec(), wrong(1, 75)),
        (changed(&version_4, 40, 0xff), DecodeError::Checksum),
    ] {
        assert_eq!(codec::decode(&bytes, day(0)), Err(error), "{bytes:02x?}");
        assert!(error.to_string().starts_with("it"), "{error}");
    }
    assert_eq!(codec::decode(&codec::encode(&[]), day(0)), Ok(vec![]));
    assert_eq!(codec::decode(&original(1, &[]), day(0)), Ok(vec![]));
}

/// A count of four billion entries must not cause an allocation of 256 GiB.
#[test]
fn a_hostile_count_allocates_nothing() {
    let mut version_4 = codec::encode(&[]);
    version_4[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut original_1 = original(1, &[]);
    original_1[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let before = ALLOCATIONS.get();
    assert!(codec::decode(&version_4, day(0)).is_err());
    assert!(codec::decode(&original_1, day(0)).is_err());
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
