// SPDX-License-Identifier: GPL-2.0-only

//! Successive halving (Jamieson and Talwalkar, 2016): many settings are played on few seeds, the
//! better third of them on three times as many, the better third of those on all. Later rounds draw
//! half of their settings near the best ones of the rounds before.

use super::space::{Setting, Space};
use anyhow::Result;
use pandemonium_sim::random::Random;
use std::collections::BTreeSet;

/// So many settings, at most, are left in the end.
pub const SURVIVORS: usize = 3;
/// Of the settings, this part goes on to a step with as many times more seeds.
pub const STEP: usize = 3;
/// Steps of a round: a ninth of the seeds, a third, all.
const STEPS: u32 = 3;

/// How much is played.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub rounds: usize,
    /// Settings of a round.
    pub settings: usize,
    /// Seeds of the last step.
    pub seeds: usize,
    /// The seed of what is drawn.
    pub seed: u64,
}

/// Settings that were played on the same seeds.
#[derive(Clone, Debug)]
pub struct Step {
    /// From 1 on.
    pub round: usize,
    pub seeds: usize,
    /// Settings and their scores, the best first.
    pub ranked: Vec<(Setting, f64)>,
}

/// Searches. `score` plays settings on the first so many seeds and returns a score for each, less
/// for the better, zero for the defaults. `done` is told of each step. Returns the best settings
/// of those that were played on all seeds, the best first.
pub fn search(
    space: &Space,
    plan: &Plan,
    mut score: impl FnMut(&[Setting], usize) -> Result<Vec<f64>>,
    mut done: impl FnMut(&Step),
) -> Result<Vec<(Setting, f64)>> {
    let mut best: Vec<(Setting, f64)> = Vec::new();
    let mut drawn = BTreeSet::new();
    for round in 1..=plan.rounds {
        let mut random = Random::derive(plan.seed, round as u64);
        let mut field = field(space, plan.settings, &best, &mut drawn, &mut random);
        let mut ranked = Vec::new();
        for step in (0..STEPS).rev() {
            let seeds = plan.seeds.div_ceil(STEP.pow(step));
            let scores = score(&field, seeds)?;
            ranked = field.iter().cloned().zip(scores).collect();
            ranked.sort_by(|one: &(Setting, f64), other| one.1.total_cmp(&other.1));
            field = ranked.iter().map(|(setting, _)| setting.clone()).collect();
            field.truncate(field.len().div_ceil(STEP));
            done(&Step { round, seeds, ranked: ranked.clone() });
        }
        best.append(&mut ranked);
        best.sort_by(|one, other| one.1.total_cmp(&other.1));
        best.truncate(SURVIVORS);
    }
    Ok(best)
}

/// The settings of a round, none of which was drawn before.
fn field(
    space: &Space,
    settings: usize,
    best: &[(Setting, f64)],
    drawn: &mut BTreeSet<Setting>,
    random: &mut Random,
) -> Vec<Setting> {
    let mut field = Vec::new();
    // A small space has fewer settings than are asked for.
    for number in 0..10 * settings {
        let near = best.get(number / 2 % SURVIVORS).filter(|_| number % 2 == 1);
        let setting = match near {
            Some((setting, _)) => space.near(setting, random),
            None => space.draw(random),
        };
        if !setting.is_empty() && drawn.insert(setting.clone()) {
            field.push(setting);
        }
        if field.len() == settings {
            break;
        }
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offered::catalog;

    const PLAN: Plan = Plan { rounds: 4, settings: 54, seeds: 50, seed: 1 };

    type Found = Vec<(String, f64)>;

    /// The best settings for a score, and how many settings each step played on how many seeds.
    fn found(score: impl Fn(&str, usize) -> f64) -> (Found, Vec<(usize, usize)>) {
        let space = Space::new(catalog().default_policy(), &[]).unwrap();
        let scores = |settings: &[Setting], seeds: usize| {
            Ok(settings.iter().map(|setting| score(&space.text(setting), seeds)).collect())
        };
        let mut steps = Vec::new();
        let tell = |step: &Step| steps.push((step.ranked.len(), step.seeds));
        let best = search(&space, &PLAN, scores, tell).unwrap();
        (best.iter().map(|(setting, score)| (space.text(setting), *score)).collect(), steps)
    }

    fn slice(text: &str) -> Option<f64> {
        let word = text.split(' ').find_map(|one| one.strip_prefix("slice_us="))?;
        word.parse().ok()
    }

    #[test]
    fn a_planted_optimum_is_found_and_what_does_not_matter_is_left_alone() {
        let score = |text: &str, _: usize| {
            let far = slice(text).map_or(1.0, |us| (us / 7_000.0).ln().abs());
            far - 1.0 + 0.01 * text.split(' ').count() as f64
        };
        let (best, steps) = found(score);
        assert_eq!(steps[..3], [(54, 6), (18, 17), (6, 50)]);
        let (text, _) = &best[0];
        assert!(slice(text).is_some_and(|us| (6_000.0..8_000.0).contains(&us)), "{best:?}");
        assert_eq!(text.split(' ').count(), 1, "{best:?}");
        assert!(best.len() == SURVIVORS && best.is_sorted_by(|one, other| one.1 <= other.1));
    }

    #[test]
    fn a_setting_that_only_few_seeds_like_does_not_survive() {
        let (best, _) = found(|text, seeds| {
            let likes = text.contains("lat_cri_low");
            if seeds < 10 && likes { -1.0 } else { slice(text).map_or(0.0, |_| -0.5) }
        });
        assert!(
            best.iter().all(|(text, _)| !text.contains("lat_cri_low") || slice(text).is_some())
        );
    }
}
