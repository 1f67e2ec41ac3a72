// SPDX-License-Identifier: GPL-2.0-only

//! Shared by host and guest for the bars: the phases, and the plan for one boot.

use anyhow::{Context, Result, bail, ensure};

/// One workload of the bars. docs/lab.md defines them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Phase {
    Wake,
    Long,
    Mixed,
    Forks,
    Burst,
    Frame,
    Pipe,
    Fair,
    Nice,
    Idle,
}

pub const PHASES: [Phase; 10] = [
    Phase::Wake,
    Phase::Long,
    Phase::Mixed,
    Phase::Forks,
    Phase::Burst,
    Phase::Frame,
    Phase::Pipe,
    Phase::Fair,
    Phase::Nice,
    Phase::Idle,
];

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Wake => "wake",
            Phase::Long => "long",
            Phase::Mixed => "mixed",
            Phase::Forks => "forks",
            Phase::Burst => "burst",
            Phase::Frame => "frame",
            Phase::Pipe => "pipe",
            Phase::Fair => "fair",
            Phase::Nice => "nice",
            Phase::Idle => "idle",
        }
    }

    /// Whether the kernel's own scheduler is measured too. It is not where the bar is absolute,
    /// because its figure would only take time.
    pub fn has_two_sides(self) -> bool {
        !matches!(self, Phase::Fair | Phase::Nice | Phase::Idle)
    }
}

/// Number of frames in the phase `frame`.
pub const FRAMES: usize = 300;

/// Prefixes of metric names: which scheduler was measured.
pub const KERNEL: &str = "kernel";
pub const OURS: &str = "ours";

/// What one boot of the bars measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub phases: Vec<Phase>,
    /// How often each phase is measured.
    pub rounds: u32,
    /// Options of the scheduler under test.
    pub options: Vec<String>,
}

/// Separators of words, and of the three parts of a plan, on the kernel command line.
const WORD: char = ',';
const PART: char = ';';

impl Plan {
    /// The plan in one word. Refuses an option with a character that the kernel command line cannot
    /// carry.
    pub fn to_word(&self) -> Result<String> {
        for option in &self.options {
            let odd = |c: char| c == WORD || c == PART || c == '"' || !c.is_ascii_graphic();
            ensure!(
                !option.is_empty() && !option.contains(odd),
                "the option {option:?} has a character that the kernel command line cannot carry"
            );
        }
        let phases: Vec<&str> = self.phases.iter().map(|phase| phase.name()).collect();
        let word = WORD.to_string();
        Ok(format!("{}{PART}{}{PART}{}", phases.join(&word), self.rounds, self.options.join(&word)))
    }

    pub fn from_word(word: &str) -> Result<Plan> {
        let mut parts = word.split(PART);
        let mut part = || parts.next().with_context(|| format!("{word:?} is not a plan"));
        let phases = part()?.split(WORD).map(|name| {
            let known = PHASES.into_iter().find(|phase| phase.name() == name);
            known.with_context(|| format!("there is no phase named {name:?}"))
        });
        let phases: Vec<Phase> = phases.collect::<Result<_>>()?;
        let rounds = part()?.parse().with_context(|| format!("reading {word:?}"))?;
        let options = part()?.split(WORD).filter(|option| !option.is_empty());
        let options = options.map(str::to_string).collect();
        if rounds == 0 {
            bail!("the plan has no rounds");
        }
        Ok(Plan { phases, rounds, options })
    }
}
