// SPDX-License-Identifier: GPL-2.0-only

//! What the desktop is at, and the profile for it.

/// The names of the scheduler's profiles, by what the desktop is at.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// While a game runs.
    pub game: String,
    /// With the power profile power-saver.
    pub power_saver: String,
    /// With the power profile balanced, and without any.
    pub balanced: String,
    /// With the power profile performance.
    pub performance: String,
}

/// What the desktop is at, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desktop {
    /// The power profile.
    pub power: Option<String>,
    /// How many games GameMode knows.
    pub games: Option<i32>,
}

/// A profile, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Its name.
    pub profile: String,
    /// What asks for it, for the statistics.
    pub by: String,
}

impl Desktop {
    /// Whether nothing is known: neither service runs.
    pub fn is_unknown(&self) -> bool {
        *self == Desktop::default()
    }

    /// The profile for it. Saving power wins over a game, as it does in power-profiles-daemon: the
    /// battery may be almost empty.
    pub fn wish(&self, mapping: &Mapping) -> Wish {
        let wish = |profile: &String, by: String| Wish { profile: profile.clone(), by };
        let power = self.power.as_deref();
        let by_power = |name: &str| format!("power profile {name}");
        match power {
            Some("power-saver") => wish(&mapping.power_saver, by_power("power-saver")),
            _ if self.games.is_some_and(|games| games > 0) => {
                wish(&mapping.game, "GameMode".into())
            }
            Some("performance") => wish(&mapping.performance, by_power("performance")),
            Some(other) => wish(&mapping.balanced, by_power(other)),
            None => wish(&mapping.balanced, "no power profile and no game".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saving_power_wins_over_a_game_and_a_game_over_the_rest() {
        let mapping = Mapping {
            game: "gaming".into(),
            power_saver: "powersave".into(),
            balanced: "auto".into(),
            performance: "server".into(),
        };
        for (power, games, profile, by) in [
            (Some("power-saver"), Some(2), "powersave", "power profile power-saver"),
            (Some("performance"), Some(1), "gaming", "GameMode"),
            (Some("performance"), Some(0), "server", "power profile performance"),
            (Some("balanced"), None, "auto", "power profile balanced"),
            (Some("of-tomorrow"), None, "auto", "power profile of-tomorrow"),
            (None, Some(1), "gaming", "GameMode"),
            (None, Some(-1), "auto", "no power profile and no game"),
        ] {
            let desktop = Desktop { power: power.map(str::to_owned), games };
            let expected = Wish { profile: profile.into(), by: by.into() };
            assert_eq!(desktop.wish(&mapping), expected, "{desktop:?}");
        }
        assert!(Desktop::default().is_unknown());
    }
}
