// SPDX-License-Identifier: GPL-2.0-only

//! What changed from one sample to the next, in words.

use crate::sample::Sample;

/// How a change is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Something is right again.
    Good,
    /// Something is different.
    Neutral,
    /// Something is wrong.
    Bad,
}

/// A change, in a sentence.
pub type Change = (Weight, String);

/// The changes from `before` to `after`, the worst first.
pub fn between(before: &Sample, after: &Sample) -> Vec<Change> {
    // Counters never decrease while a scheduler runs.
    if after.policy != before.policy || after.nr_user_dispatches < before.nr_user_dispatches {
        return vec![(Weight::Neutral, format!("another start: the policy {}", after.policy))];
    }
    let parts = [faults(before, after), load(before, after), settings(before, after)];
    parts.into_iter().flatten().collect()
}

fn faults(before: &Sample, after: &Sample) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut bad = |text| changes.push((Weight::Bad, text));
    let more = |of: fn(&Sample) -> u64| of(after).saturating_sub(of(before));
    match more(|it| it.nr_stalls) {
        0 => {}
        times => bad(format!("{times} stalls: the backend decided meanwhile")),
    }
    match more(|it| it.nr_sched_congested) {
        0 => {}
        tasks => bad(format!("congestion: {tasks} tasks bypassed the policy")),
    }
    match more(|it| it.page_faults_minor + it.page_faults_major) {
        0 => {}
        faults => bad(format!("{faults} page faults of the scheduler")),
    }
    if after.health != before.health {
        match after.health.as_str() {
            "ok" => changes.push((Weight::Good, "health is ok again".into())),
            reason => changes.push((Weight::Bad, format!("health: {reason}"))),
        }
    }
    changes
}

fn load(before: &Sample, after: &Sample) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut note = |text: String| changes.push((Weight::Neutral, text));
    if after.regime != before.regime {
        note(format!("load {} -> {}", before.regime, after.regime));
    }
    for (was, is, begins, ends) in [
        (before.burst, after.burst, "a burst of wakeups begins", "the burst is over"),
        (
            before.longrun,
            after.longrun,
            "Batch tasks have waited for seconds",
            "Batch tasks wait no longer for seconds",
        ),
        (
            before.tightened,
            after.tightened,
            "latency is bad: slices get shorter",
            "latency is good: slices are back",
        ),
    ] {
        match (was, is) {
            (0, 1..) => note(begins.into()),
            (1.., 0) => note(ends.into()),
            _ => {}
        }
    }
    changes
}

fn settings(before: &Sample, after: &Sample) -> Vec<Change> {
    let numbers = [
        ("CPUs online", before.nr_cpus, after.nr_cpus),
        ("restarts for a CPU that came or went", before.restarts, after.restarts),
        ("knobs set by the user", before.nr_knobs_set, after.nr_knobs_set),
        ("slice (us)", before.slice_us, after.slice_us),
        ("batch slice (us)", before.batch_slice_us, after.batch_slice_us),
    ];
    let differ = numbers.into_iter().filter(|(_, was, is)| was != is);
    let mut changes: Vec<Change> =
        differ.map(|(what, was, is)| (Weight::Neutral, format!("{what}: {was} -> {is}"))).collect();
    if after.profile != before.profile {
        let by = match after.profile_by.as_str() {
            "" => String::new(),
            by => format!(", by {by}"),
        };
        let text = format!("profile {} -> {}{by}", before.profile, after.profile);
        changes.push((Weight::Neutral, text));
    }
    if after.fast_path != before.fast_path {
        changes.push((Weight::Neutral, format!("fast path: {}", after.fast_path)));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(change: fn(&mut Sample)) -> Vec<String> {
        let before = Sample {
            health: "ok".into(),
            policy: "pandemonium".into(),
            regime: "MIXED".into(),
            profile: "auto".into(),
            nr_user_dispatches: 9,
            slice_us: 1000,
            ..Sample::default()
        };
        let mut after = before.clone();
        change(&mut after);
        between(&before, &after).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn equal_samples_differ_in_nothing() {
        assert!(texts(|_| ()).is_empty());
        assert!(texts(|it| it.kicks = 7).is_empty(), "a rate is no news");
    }

    #[test]
    fn each_change_has_its_sentence() {
        assert_eq!(texts(|it| it.regime = "HEAVY".into()), ["load MIXED -> HEAVY"]);
        assert_eq!(texts(|it| it.burst = 1), ["a burst of wakeups begins"]);
        assert_eq!(texts(|it| it.slice_us = 750), ["slice (us): 1000 -> 750"]);
        assert_eq!(texts(|it| it.profile = "server".into()), ["profile auto -> server"]);
        assert_eq!(
            texts(|it| (it.profile, it.profile_by) = ("gaming".into(), "GameMode".into())),
            ["profile auto -> gaming, by GameMode"]
        );
        assert_eq!(texts(|it| it.nr_stalls = 2), ["2 stalls: the backend decided meanwhile"]);
        assert_eq!(texts(|it| it.health = "3 page faults".into()), ["health: 3 page faults"]);
        assert_eq!(
            texts(|it| it.nr_user_dispatches = 1),
            ["another start: the policy pandemonium"]
        );
    }

    #[test]
    fn the_worst_comes_first() {
        let texts = texts(|it| (it.regime, it.health) = ("LIGHT".into(), "bad".into()));
        assert_eq!(texts, ["health: bad", "load MIXED -> LIGHT"]);
    }
}
