// SPDX-License-Identifier: GPL-2.0-only

//! The parts of the fast path. A kernel may refuse each of them alone, with a known loss.

use clap::ValueEnum;

/// A part, named by what it observes or does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Tasks that wake up.
    Wakeups,
    /// New tasks.
    #[value(alias = "births")]
    NewTasks,
    /// Which task runs on which CPU.
    Switches,
    /// Tasks that execute another program.
    Execs,
    /// Slices that end between two ticks, and tasks that still wait.
    Timers,
    /// Kicks that the policy asks for.
    Asking,
}

impl Part {
    /// All parts. `Timers` comes after the parts that write the records which it reads.
    pub const ALL: [Part; 6] =
        [Part::Wakeups, Part::NewTasks, Part::Switches, Part::Execs, Part::Timers, Part::Asking];

    /// Its programs, in the order in which they are attached.
    pub const fn programs(self) -> &'static [&'static str] {
        match self {
            Part::Wakeups => &["fp_wakeup"],
            Part::NewTasks => &["fp_wakeup_new"],
            Part::Switches => &["fp_switch"],
            Part::Execs => &["fp_exec"],
            Part::Timers => &["fp_prepare"],
            Part::Asking => &["fp_kick"],
        }
    }

    /// The part that a program belongs to.
    pub fn of(program: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.programs().contains(&program))
    }

    /// The effect of its absence.
    pub const fn loss(self) -> &'static str {
        match self {
            Part::Wakeups => "wakeups wait for a tick",
            Part::NewTasks => "new tasks wait for a tick",
            Part::Switches => "no CPU is kicked, and wakeups wait for a tick",
            Part::Execs => "a task keeps the record of the program that it ran before",
            Part::Timers => "slices end at ticks, and a task that still waits is not noticed",
            Part::Asking => "the policy cannot kick a CPU",
        }
    }
}

/// A set of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts(u8);

impl Parts {
    /// Adds a part.
    pub fn add(&mut self, part: Part) {
        self.0 |= 1 << part as u8;
    }

    /// Whether the set has the part.
    pub fn has(self, part: Part) -> bool {
        self.0 >> part as u8 & 1 == 1
    }

    /// The parts in the set.
    pub fn iter(self) -> impl Iterator<Item = Part> {
        Part::ALL.into_iter().filter(move |part| self.has(*part))
    }

    /// The set of all parts.
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

/// The state of the fast path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Not asked for, or not loaded yet.
    #[default]
    None,
    /// Loaded.
    Loaded {
        /// The parts that the kernel refused.
        without: Parts,
    },
    /// Refused by the kernel.
    Refused,
}

impl State {
    /// The state as a word in shared memory.
    pub fn to_word(self) -> u64 {
        match self {
            State::None => 0,
            State::Refused => 1,
            State::Loaded { without } => 2 | u64::from(without.0) << 8,
        }
    }

    /// The state that the word holds.
    pub fn from_word(word: u64) -> State {
        match word & 0xff {
            1 => State::Refused,
            2 => State::Loaded { without: Parts((word >> 8) as u8) },
            _ => State::None,
        }
    }

    /// The worst loss, in a sentence; `None` if there is none.
    pub fn fault(self) -> Option<String> {
        match self {
            State::None => None,
            State::Refused => {
                Some("the kernel refused the fast path: wakeups wait for a tick".into())
            }
            State::Loaded { without } => {
                let worst = [Part::Switches, Part::Wakeups, Part::NewTasks, Part::Timers];
                let worst = worst.into_iter().find(|part| without.has(*part));
                let part = worst.or_else(|| without.iter().next())?;
                Some(format!("the kernel refused a part of the fast path: {}", part.loss()))
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
                    let value = part.to_possible_value();
                    write!(f, " -{}", value.as_ref().map_or("", |value| value.get_name()))?;
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
    fn a_state_survives_its_word_and_has_its_own_text() {
        let loaded = |parts: &[Part]| State::Loaded { without: parts.iter().copied().collect() };
        let states = [
            (State::None, "none"),
            (State::Refused, "refused"),
            (loaded(&[]), "loaded"),
            (loaded(&[Part::Asking]), "loaded -asking"),
            (loaded(&[Part::Timers, Part::NewTasks]), "loaded -new-tasks -timers"),
        ];
        for (state, text) in states {
            assert_eq!(State::from_word(state.to_word()), state);
            assert_eq!(state.to_string(), text);
        }
    }

    #[test]
    fn the_fault_names_the_worst_loss() {
        let fault = |parts: &[Part]| {
            State::Loaded { without: parts.iter().copied().collect() }.fault().unwrap_or_default()
        };
        assert_eq!(fault(&[]), "");
        assert!(fault(&[Part::Execs, Part::Timers]).contains(Part::Timers.loss()));
        assert!(fault(&Part::ALL).contains(Part::Switches.loss()));
        for part in Part::ALL {
            assert!(fault(&[part]).ends_with(part.loss()), "{part:?}");
        }
        assert_eq!(State::None.fault(), None);
        assert!(State::Refused.fault().is_some());
    }

    #[test]
    fn the_old_name_of_a_part_still_works() {
        for (name, part) in [("new-tasks", Part::NewTasks), ("births", Part::NewTasks)] {
            assert_eq!(Part::from_str(name, false), Ok(part));
        }
    }
}
