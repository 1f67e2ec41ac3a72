// SPDX-License-Identifier: GPL-2.0-only

//! The settings among which a search chooses.

use anyhow::{Result, bail};
use pandemonium_engine::PolicyInfo;
use pandemonium_engine::knobs::{Kind, Knob};
use pandemonium_sim::random::Random;

/// Most knobs that a setting drawn from nothing changes: few, since each must be worth its change.
const KNOBS_MAX: u64 = 3;
/// The lowest value of a range that is drawn from is the highest divided by this.
const DECADES: u64 = 1_000;
/// So often a setting is drawn again if its knobs contradict each other.
const DRAWS_MAX: usize = 100;

/// Knobs with another value than the default, by their place in [`Space::knobs`].
pub type Setting = Vec<(usize, u64)>;

/// The knobs that a search may change.
#[derive(Clone)]
pub struct Space {
    pub policy: PolicyInfo,
    knobs: Vec<&'static Knob>,
}

impl Space {
    /// These knobs of the policy; without any named, all but its switches.
    pub fn new(policy: PolicyInfo, names: &[String]) -> Result<Space> {
        let named = |name: &String| policy.knobs.named(name).is_some();
        if let Some(name) = names.iter().find(|name| !named(name)) {
            let all: Vec<&str> = policy.knobs.iter().map(|knob| knob.name).collect();
            bail!("there is no knob {name:?} of {}; there are {}", policy.name, all.join(", "));
        }
        let is_asked = |knob: &&Knob| match names {
            [] => knob.kind != Kind::Switch,
            names => names
                .iter()
                .any(|name| policy.knobs.named(name).is_some_and(|it| it.name == knob.name)),
        };
        let knobs: Vec<&Knob> = policy.knobs.iter().filter(is_asked).collect();
        if knobs.is_empty() {
            bail!("{} has no knob to search: name switches with --knobs", policy.name);
        }
        Ok(Space { policy, knobs })
    }

    /// The setting as a person writes it: `slice_us=500 lat_cri_low=4`.
    pub fn text(&self, setting: &Setting) -> String {
        let one = |(at, word): &(usize, u64)| {
            format!("{}={}", self.knobs[*at].name, self.knobs[*at].show(*word))
        };
        setting.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    /// A setting from anywhere.
    pub fn draw(&self, random: &mut Random) -> Setting {
        self.valid(|| {
            let mut setting = Setting::new();
            for _ in 0..random.between(1, KNOBS_MAX) {
                self.change(&mut setting, random);
            }
            setting
        })
    }

    /// A setting near another one: without one of its knobs, with one of them a little different,
    /// or with one more.
    pub fn near(&self, setting: &Setting, random: &mut Random) -> Setting {
        self.valid(|| {
            let mut near = setting.clone();
            let at = random.below(setting.len().max(1) as u64) as usize;
            match random.below(3) {
                0 if near.len() > 1 => drop(near.remove(at)),
                1 | 2 if !near.is_empty() => {
                    let (knob, word) = near[at];
                    near[at].1 = moved(self.knobs[knob], word, random);
                }
                _ => self.change(&mut near, random),
            }
            near
        })
    }

    /// Gives one knob another value than its default.
    fn change(&self, setting: &mut Setting, random: &mut Random) {
        let at = random.below(self.knobs.len() as u64) as usize;
        setting.retain(|(other, _)| *other != at);
        setting.push((at, drawn(self.knobs[at], random)));
        setting.sort_unstable();
    }

    /// Draws until the setting is a valid one and differs from the defaults.
    fn valid(&self, mut draw: impl FnMut() -> Setting) -> Setting {
        for _ in 0..DRAWS_MAX {
            let mut setting = draw();
            setting.retain(|(at, word)| *word != (self.knobs[*at].default)());
            let mut values = self.policy.knobs.defaults();
            let fits = setting.iter().all(|(at, word)| values.put(self.knobs[*at].name, *word));
            if fits && !setting.is_empty() && values.check().is_ok() {
                return setting;
            }
        }
        Setting::new()
    }
}

/// A value from anywhere in the range of a knob, equally likely in each order of magnitude.
fn drawn(knob: &Knob, random: &mut Random) -> u64 {
    let (low, high) = knob.limits();
    match knob.kind {
        Kind::Switch | Kind::Choice(_) => random.between(low, high),
        Kind::Time(..) | Kind::Count(..) => {
            let low = low.max(high / DECADES).max(1);
            let share = random.below(1 << 20) as f64 / f64::from(1 << 20);
            rounded(knob, low as f64 * (high as f64 / low as f64).powf(share))
        }
    }
}

/// A value of at least half and at most twice this one.
fn moved(knob: &Knob, word: u64, random: &mut Random) -> u64 {
    match knob.kind {
        Kind::Switch | Kind::Choice(_) => drawn(knob, random),
        Kind::Time(..) | Kind::Count(..) => {
            let doublings = random.below(1 << 20) as f64 / f64::from(1 << 19) - 1.0;
            rounded(knob, word as f64 * doublings.exp2())
        }
    }
}

/// The value with two digits, and of a time in whole microseconds: no more is known of it.
fn rounded(knob: &Knob, value: f64) -> u64 {
    let (low, high) = knob.limits();
    let unit = if matches!(knob.kind, Kind::Time(..)) { 1_000.0 } else { 1.0 };
    let whole = (value / unit).max(1.0);
    let digit = 10f64.powf((whole.log10().floor() - 1.0).max(0.0));
    (((whole / digit).round() * digit * unit) as u64).clamp(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offered::catalog;

    fn space(names: &[&str]) -> Result<Space> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Space::new(catalog().default_policy(), &names)
    }

    #[test]
    fn every_setting_can_be_set_and_differs_from_the_defaults() {
        let (space, mut random) = (space(&[]).unwrap(), Random::new(1));
        let mut setting = space.draw(&mut random);
        for _ in 0..500 {
            let text = space.text(&setting).replace(' ', "\n");
            let values = space.policy.knobs.defaults().amended(&text).unwrap().values;
            assert!(values != space.policy.knobs.defaults() && !text.contains('.'), "{text}");
            let near = random.chance(500_000);
            setting =
                if near { space.near(&setting, &mut random) } else { space.draw(&mut random) };
        }
    }

    #[test]
    fn the_orders_of_magnitude_of_a_range_are_equally_likely() {
        let (space, mut random) = (space(&["slice_us"]).unwrap(), Random::new(1));
        let below = |us: u64, random: &mut Random| {
            (0..600).filter(|_| drawn(space.knobs[0], random) < us * 1_000).count()
        };
        assert!((150..250).contains(&below(1_000, &mut random)), "100 us to 1 ms");
        assert!((350..450).contains(&below(10_000, &mut random)), "100 us to 10 ms");
    }

    #[test]
    fn switches_are_searched_only_if_they_are_named() {
        assert!(space(&[]).unwrap().knobs.iter().all(|knob| !knob.name.starts_with("rule.")));
        let named = space(&["rule.deficit", "lag_scale"]).unwrap();
        let names: Vec<&str> = named.knobs.iter().map(|knob| knob.name).collect();
        assert_eq!(names, ["sleeper_credit_scale", "rule.deficit"]);
        let off = named.near(&vec![(1, 0)], &mut Random::new(1));
        assert!(!off.is_empty());
        let error = space(&["luck"]).err().unwrap().to_string();
        assert!(
            error.starts_with("there is no knob \"luck\" of pandemonium; there are slice_us, ")
        );
    }
}
