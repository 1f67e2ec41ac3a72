// SPDX-License-Identifier: GPL-2.0-only

//! From what the desktop says to a profile. Nothing here talks to anything.

/// The profiles of power-profiles-daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// To save power.
    Saver,
    /// The usual one.
    Balanced,
    /// To be fast.
    Performance,
}

impl Power {
    /// The profile of this name on the bus. One that is unknown asks for nothing.
    pub fn named(name: &str) -> Option<Power> {
        match name {
            "power-saver" => Some(Power::Saver),
            "balanced" => Some(Power::Balanced),
            "performance" => Some(Power::Performance),
            _ => None,
        }
    }
}

/// The scheduler's profile while the power profile is `performance`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Performance {
    /// Shortest waits of all tasks.
    #[default]
    Lowlatency,
    /// Frames on time beside other work.
    Gaming,
    /// Throughput.
    Server,
    /// The defaults.
    Auto,
}

/// What the desktop says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Desktop {
    /// The power profile; `None` if there is no service that has one.
    pub power: Option<Power>,
    /// How many games are registered; `None` if there was no GameMode yet.
    pub games: Option<u32>,
    /// What `performance` asks for.
    pub performance: Performance,
}

/// A profile, and by what it is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its name.
    pub profile: &'static str,
    /// The statistics show this as `profile_by`.
    pub by: &'static str,
}

impl Desktop {
    /// A desktop of which nothing is known yet.
    pub fn of(performance: Performance) -> Desktop {
        Desktop { performance, ..Desktop::default() }
    }

    /// Notes how many games are registered. A GameMode that goes away takes its games with it.
    pub fn note_games(&mut self, games: Option<u32>) {
        self.games = games.or(self.games.map(|_| 0));
    }

    /// The profile to choose; `None` leaves it as it is. A game comes first: it was started on
    /// purpose, and saving power would make it late.
    pub fn choice(&self) -> Option<Choice> {
        let choice = |profile, by| Some(Choice { profile, by });
        match (self.games, self.power) {
            (Some(1..), _) => choice("gaming", "GameMode"),
            (_, Some(Power::Saver)) => choice("powersave", "power profile power-saver"),
            (_, Some(Power::Balanced)) => choice("auto", "power profile balanced"),
            (_, Some(Power::Performance)) => {
                choice(self.performance.profile(), "power profile performance")
            }
            (Some(0), None) => choice("auto", "the end of the last game"),
            (None, None) => None,
        }
    }
}

impl Performance {
    fn profile(self) -> &'static str {
        match self {
            Performance::Lowlatency => "lowlatency",
            Performance::Gaming => "gaming",
            Performance::Server => "server",
            Performance::Auto => "auto",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(desktop: &Desktop) -> Option<&'static str> {
        desktop.choice().map(|choice| choice.profile)
    }

    #[test]
    fn each_power_profile_asks_for_one_of_the_scheduler() {
        let asked = |name, performance| {
            let power = Power::named(name);
            profile(&Desktop { power, performance, games: None })
        };
        let usual = Performance::default();
        assert_eq!(asked("power-saver", usual), Some("powersave"));
        assert_eq!(asked("balanced", usual), Some("auto"));
        assert_eq!(asked("performance", usual), Some("lowlatency"));
        assert_eq!(asked("performance", Performance::Gaming), Some("gaming"));
        assert_eq!(asked("turbo", usual), None);
    }

    #[test]
    fn a_game_comes_before_every_power_profile() {
        for power in [None, Some(Power::Saver), Some(Power::Balanced), Some(Power::Performance)] {
            let desktop = Desktop { power, games: Some(2), ..Desktop::default() };
            assert_eq!(profile(&desktop), Some("gaming"));
        }
    }

    #[test]
    fn after_the_last_game_comes_the_power_profile_or_the_default() {
        let mut desktop = Desktop { power: Some(Power::Saver), ..Desktop::default() };
        let mut after = |games| {
            desktop.note_games(games);
            profile(&desktop)
        };
        assert_eq!([after(Some(1)), after(Some(0))], [Some("gaming"), Some("powersave")]);
        let mut alone = Desktop::default();
        alone.note_games(Some(1));
        alone.note_games(None);
        assert_eq!(profile(&alone), Some("auto"), "GameMode was ended during a game");
    }

    #[test]
    fn a_desktop_that_says_nothing_changes_nothing() {
        let mut desktop = Desktop::default();
        desktop.note_games(None);
        assert_eq!(desktop.choice(), None);
    }
}
