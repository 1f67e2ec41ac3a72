// SPDX-License-Identifier: GPL-2.0-only

//! The parts of the fast path, each of which a kernel may refuse by itself, and what is lost then.

use clap::ValueEnum;

/// A part, by what it sees or does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Tasks that wake up.
    Wakeups,
    /// Tasks that are born.
    Births,
    /// Who runs where.
    Switches,
    /// Tasks that begin another program.
    Execs,
    /// Slices that end between two ticks, and tasks that wait in spite of all.
    Timers,
    /// Kicks that the policy asks for.
    Asking,
}

impl Part {
    /// All parts. Those that arm timers come after those whose notes they read.
    pub const ALL: [Part; 6] =
        [Part::Wakeups, Part::Births, Part::Switches, Part::Execs, Part::Timers, Part::Asking];

    /// The programs it consists of, in the order in which they are attached.
    pub const fn programs(self) -> &'static [&'static str] {
        match self {
            Part::Wakeups => &["fp_wakeup"],
            Part::Births => &["fp_wakeup_new"],
            Part::Switches => &["fp_switch"],
            Part::Execs => &["fp_exec"],
            Part::Timers => {
                &["fp_prepare", "fp_watch_wakeup", "fp_watch_wakeup_new", "fp_watch_switch"]
            }
            Part::Asking => &["fp_kick"],
        }
    }

    /// The part that a program belongs to.
    pub fn of(program: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.programs().contains(&program))
    }

    /// What is lost without it.
    pub const fn lost(self) -> &'static str {
        match self {
            Part::Wakeups => "wake-ups wait for a tick",
            Part::Births => "new tasks wait for a tick",
            Part::Switches => "nothing is interrupted, wake-ups wait for a tick",
            Part::Execs => "habits of one program are taken for those of the next",
            Part::Timers => "slices end at ticks, and a kick that came to nothing is not noticed",
            Part::Asking => "the policy cannot interrupt a CPU",
        }
    }
}

/// Some of the parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts(u8);

impl Parts {
    /// Adds one.
    pub fn add(&mut self, part: Part) {
        self.0 |= 1 << part as u8;
    }

    /// Whether it is among them.
    pub fn has(self, part: Part) -> bool {
        self.0 >> part as u8 & 1 == 1
    }

    /// One after the other.
    pub fn iter(self) -> impl Iterator<Item = Part> {
        Part::ALL.into_iter().filter(move |part| self.has(*part))
    }

    /// All of them.
    pub fn all() -> Parts {
        Part::ALL.into_iter().collect()
    }
}

impl FromIterator<Part> for Parts {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Self {
        let mut all = Parts::default();
        parts.into_iter().for_each(|part| all.add(part));
        all
    }
}

/// How much of the fast path is at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Not wanted, or not known yet.
    #[default]
    None,
    /// At work, without these parts, which the kernel refused.
    Loaded {
        /// What is missing.
        without: Parts,
    },
    /// Wanted, and refused by the kernel.
    Refused,
}

impl State {
    /// As one word, for shared memory.
    pub fn to_word(self) -> u64 {
        match self {
            State::None => 0,
            State::Refused => 1,
            State::Loaded { without } => 2 | u64::from(without.0) << 8,
        }
    }

    /// Back from a word.
    pub fn from_word(word: u64) -> State {
        match word & 0xff {
            1 => State::Refused,
            2 => State::Loaded { without: Parts((word >> 8) as u8) },
            _ => State::None,
        }
    }

    /// What is not as it should be: that comes first which matters most.
    pub fn trouble(self) -> Option<String> {
        match self {
            State::None => None,
            State::Refused => {
                Some("the kernel refused the fast path: wake-ups wait for a tick".into())
            }
            State::Loaded { without } => {
                let worst = [Part::Switches, Part::Wakeups, Part::Births, Part::Timers];
                let worst = worst.into_iter().find(|part| without.has(*part));
                let part = worst.or_else(|| without.iter().next())?;
                Some(format!("the kernel refused a part of the fast path: {}", part.lost()))
            }
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            State::None => f.write_str("none"),
            State::Refused => f.write_str("refused"),
            State::Loaded { without } => {
                f.write_str("loaded")?;
                for part in without.iter() {
                    write!(f, " -{}", format!("{part:?}").to_lowercase())?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_from_its_word_and_has_its_own_text() {
        let loaded = |parts: &[Part]| State::Loaded { without: parts.iter().copied().collect() };
        let states = [
            (State::None, "none"),
            (State::Refused, "refused"),
            (loaded(&[]), "loaded"),
            (loaded(&[Part::Asking]), "loaded -asking"),
            (loaded(&[Part::Timers, Part::Wakeups]), "loaded -wakeups -timers"),
        ];
        for (state, text) in states {
            assert_eq!(State::from_word(state.to_word()), state);
            assert_eq!(state.to_string(), text);
        }
    }

    #[test]
    fn trouble_names_what_matters_most() {
        let trouble = |parts: &[Part]| {
            State::Loaded { without: parts.iter().copied().collect() }.trouble().unwrap_or_default()
        };
        assert_eq!(trouble(&[]), "");
        assert!(trouble(&[Part::Execs, Part::Timers]).contains(Part::Timers.lost()));
        assert!(trouble(&Part::ALL).contains(Part::Switches.lost()));
        for part in Part::ALL {
            assert!(trouble(&[part]).ends_with(part.lost()), "{part:?}");
        }
        assert_eq!(State::None.trouble(), None);
        assert!(State::Refused.trouble().is_some());
    }
}
