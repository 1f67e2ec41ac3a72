// SPDX-License-Identifier: GPL-2.0-only

//! Values in layers: the start, a profile, and what the user has set.

use super::table::{KeySet, Values};
use super::text::{Amended, FileError, KnobError};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A named set of knobs for one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnobProfile {
    /// What it is called on a command line.
    pub name: &'static str,
    /// What it is for and what it costs, in one sentence.
    pub about: &'static str,
    /// Its knobs, in the form of a file of knobs: lines `KEY=VALUE # reason`. Empty for the
    /// defaults.
    pub knobs: &'static str,
}

impl KnobProfile {
    /// The profile of this name; else a sentence that says which there are.
    pub fn find(profiles: &'static [KnobProfile], name: &str) -> Result<&'static Self, String> {
        if let Some(profile) = profiles.iter().find(|profile| profile.name == name) {
            return Ok(profile);
        }
        let names: Vec<&str> = profiles.iter().map(|profile| profile.name).collect();
        match names.as_slice() {
            [] => Err(format!("there is no profile {name:?}: this policy has none")),
            names => Err(format!("there is no profile {name:?}; there are {}", names.join(", "))),
        }
    }
}

/// Values of the start, over them those of a profile, and over these what the user has set.
#[derive(Clone, Debug)]
pub struct Layers {
    start: Values,
    profile: (Values, KeySet),
    user: (Values, KeySet),
}

impl Layers {
    /// The values of the start, of which the user has chosen some; no profile.
    pub fn new(start: Values, chosen: KeySet) -> Layers {
        let none = KeySet::none(start.table());
        Layers { start, profile: (start, none), user: (start, chosen) }
    }

    /// The values in force.
    pub fn values(&self) -> Values {
        let mut values = self.start;
        for (layer, keys) in [&self.profile, &self.user] {
            keys.iter().for_each(|knob| {
                layer.get(knob.name).map(|word| values.put(knob.name, word));
            });
        }
        values
    }

    /// The knobs that the user has set.
    pub const fn chosen(&self) -> KeySet {
        self.user.1
    }

    /// The knobs that the user or the profile has set: an adaptive loop leaves them alone.
    pub const fn held(&self) -> KeySet {
        self.user.1.union(self.profile.1)
    }

    /// The user sets knobs, as lines `KEY=VALUE`. On an error nothing changes.
    pub fn set(&mut self, text: &str) -> Result<Amended, FileError> {
        let amended = self.values().amended(text)?;
        for knob in amended.named.iter() {
            amended.values.get(knob.name).map(|word| self.user.0.put(knob.name, word));
        }
        self.user.1 = self.user.1.union(amended.named);
        Ok(amended)
    }

    /// The user gives knobs back: the profile's values apply again, or those of the start. An
    /// error, and nothing changes, if they contradict what remains set.
    pub fn release(&mut self, keys: KeySet) -> Result<(), KnobError> {
        let mut changed = self.clone();
        changed.user.1 = changed.user.1.without(keys);
        changed.values().check()?;
        *self = changed;
        Ok(())
    }

    /// Replaces the profile by another one, given as lines `KEY=VALUE`. What the user has set
    /// stays. An error, and nothing changes, if the two contradict each other.
    pub fn replace_profile(&mut self, text: &str) -> Result<(), FileError> {
        let amended = self.start.amended_alone(text)?;
        let changed = Layers { profile: (amended.values, amended.named), ..self.clone() };
        changed.values().check().map_err(|error| FileError { line: None, error })?;
        *self = changed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::knobs::{Kind, Table};
    use crate::time::Span;
    use std::string::ToString;

    crate::knobs! {
        struct Two {
            /// Shortest.
            "low_us": low: Span = Span::from_micros(100), Kind::micros(1, 10_000);
            /// Longest.
            "high_us": high: Span = Span::from_micros(1_000), Kind::micros(1, 10_000);
        }
    }

    static TABLE: Table = Table::with_order(&[Two::KNOBS], &[("low_us", "high_us")]);

    fn micros(layers: &Layers) -> (u64, u64) {
        let two = Two::of(&layers.values());
        (two.low.as_micros(), two.high.as_micros())
    }

    #[test]
    fn the_user_s_values_win_over_the_profile_s_and_these_over_the_start_s() {
        let none = KeySet::none(&TABLE);
        let start = TABLE.defaults().with_words(|each| Two::default().for_each_word(each));
        let mut layers = Layers::new(start, none);
        layers.replace_profile("low_us=200\nhigh_us=2000").unwrap();
        assert_eq!(micros(&layers), (200, 2_000));
        layers.set("high_us=3000").unwrap();
        assert_eq!(micros(&layers), (200, 3_000));
        assert!(layers.chosen() == none.with("high_us"));
        assert_eq!(layers.held().len(), 2);
        layers.replace_profile("high_us=4000").unwrap();
        assert_eq!(micros(&layers), (100, 3_000), "the profile's other knob is as at the start");
        layers.release(none.with("high_us")).unwrap();
        assert_eq!(micros(&layers), (100, 4_000));
        layers.replace_profile("").unwrap();
        assert_eq!((micros(&layers), layers.held()), ((100, 1_000), none));
    }

    #[test]
    fn a_profile_that_contradicts_the_user_changes_nothing() {
        let mut layers = Layers::new(TABLE.defaults(), KeySet::none(&TABLE));
        layers.set("low_us=500").unwrap();
        let error = layers.replace_profile("high_us=400 # short").unwrap_err();
        assert_eq!(error.to_string(), "low_us (500) must not be above high_us (400)");
        assert_eq!(micros(&layers), (500, 1_000));
        layers.replace_profile("low_us=50\nhigh_us=600").unwrap();
        assert_eq!(micros(&layers), (500, 600));
        assert!(layers.replace_profile("speed=9").is_err());
        assert_eq!(micros(&layers), (500, 600));
    }

    #[test]
    fn a_knob_chosen_at_the_start_is_the_user_s_until_it_is_released() {
        let mut start = TABLE.defaults();
        start.set("high_us=5000").unwrap();
        let high = KeySet::none(&TABLE).with("high_us");
        let mut layers = Layers::new(start, high);
        layers.replace_profile("high_us=2000").unwrap();
        assert_eq!(micros(&layers).1, 5_000);
        layers.release(high).unwrap();
        assert_eq!(micros(&layers).1, 2_000);
        layers.replace_profile("").unwrap();
        assert_eq!(micros(&layers).1, 5_000, "the start's value, which the loop may change");
    }
}
