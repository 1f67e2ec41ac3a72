// SPDX-License-Identifier: GPL-2.0-only

//! The process database: a profile of every program name of each user, learned from its tasks, that
//! predicts how a new task of that name and user behaves.
//!
//! ```text
//! mature task --Observation--> learn --> Profile (votes, averages) --> predict --> new task
//!                                ^                                                    |
//!                                '------- was the prediction right? <-----------------'
//! ```
//!
//! Every observation is a vote for a tier. Old votes fade with each new one, so the prediction
//! follows a program that changes its behaviour. A profile is reset after three wrong predictions
//! in a row. A profile predicts only if its votes agree well enough ([`Confidence`]).
//!
//! This module is the learning rule, a pure function of one profile; `table` stores the profiles
//! and finds them by name and user; `calendar` keeps their ages when the clock is set; [`codec`]
//! converts them to bytes. Time is an argument
//! ([`Minute`]), and nothing here accesses a file.

mod calendar;
pub mod codec;
mod table;

pub use calendar::rejoin;
pub use table::{CAPACITY, ProcDb, RETENTION_DAYS, Summary};

use crate::task::{Comm, Tier, User};
use crate::time::Span;
use core::num::NonZero;

/// An average moves by one part in this many towards each observation (PANDEMONIUM's number).
/// The last six observations have half of its weight.
const AVERAGE_OVER: u64 = 8;
/// Fewest observations for a prediction (PANDEMONIUM's number): two may agree by chance.
const OBSERVATIONS_MIN: u32 = 3;
/// This many wrong predictions in a row reset a profile, because its name now belongs to another
/// program. Chosen equal to [`OBSERVATIONS_MIN`], so that a prediction is dropped as quickly as it
/// is gained. One or two in a row are ordinary for a name that several programs share.
const MISSES_MAX: u8 = 3;

/// Calendar time in minutes since 1970-01-01 00:00 UTC; 32 bits last 8,000 years.
///
/// The clock may step back, or forth by years (`calendar`). A time in the future counts as "now".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minute {
    /// One more than the minutes since 1970, so that an `Option` needs no further byte.
    after: NonZero<u32>,
}

impl Default for Minute {
    fn default() -> Minute {
        Minute::from_unix(0)
    }
}

impl Minute {
    /// Minutes in a day.
    const PER_DAY: u32 = 24 * 60;

    /// A time from minutes since 1970.
    pub const fn from_unix(minutes: u32) -> Minute {
        Minute { after: NonZero::<u32>::MIN.saturating_add(minutes) }
    }

    /// Minutes since 1970.
    pub const fn as_unix(self) -> u32 {
        self.after.get() - 1
    }

    /// The time `span` later, for a caller with a monotonic clock.
    pub const fn later(self, span: Span) -> Minute {
        let minutes = span.as_nanos() / 60_000_000_000;
        // The largest span has 307 million minutes, so the cast loses nothing.
        Minute { after: self.after.saturating_add(minutes as u32) }
    }

    /// Whole minutes since `earlier`; zero if that is in the future.
    pub const fn minutes_since(self, earlier: Minute) -> u32 {
        self.after.get().saturating_sub(earlier.after.get())
    }

    /// Whole days since `earlier`; zero if that is in the future.
    pub const fn days_since(self, earlier: Minute) -> u32 {
        self.minutes_since(earlier) / Minute::PER_DAY
    }

    /// The calendar day.
    const fn day(self) -> u32 {
        self.as_unix() / Minute::PER_DAY
    }
}

/// A rate in thousandths of a hertz: 60 Hz is 60,000. The maximum, 4.2 MHz, is beyond what one task
/// can do, and once in ten minutes is not yet zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u32);

impl Rate {
    /// A rate from thousandths of a hertz.
    pub const fn from_millihertz(millihertz: u32) -> Rate {
        Rate(millihertz)
    }

    /// A rate from events in 100 ms, the unit of PANDEMONIUM's files; saturates.
    pub const fn from_per_100ms(events: u64) -> Rate {
        let millihertz = events.saturating_mul(10_000);
        Rate(if millihertz > u32::MAX as u64 { u32::MAX } else { millihertz as u32 })
    }

    /// Thousandths of a hertz.
    pub const fn as_millihertz(self) -> u32 {
        self.0
    }
}

/// How well the votes and the run lengths of a profile agree, from 0 to 1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Confidence(u16);

impl Confidence {
    /// A profile predicts from this confidence on (PANDEMONIUM's number). Three of five equal votes
    /// reach it if all runs have the same length, four of five if runs deviate by half.
    pub const LIMIT: Confidence = Confidence(600);

    /// Thousandths, 0 to 1000.
    pub const fn as_permille(self) -> u16 {
        self.0
    }
}

/// Votes for the three tiers. Votes fade.
///
/// Each observation removes a sixteenth of every tier's votes and adds one vote for its own tier.
/// So a vote loses half its weight in eleven observations, and all votes together never exceed
/// sixteen. If unanimous behaviour changes, the old prediction ends after at most eight
/// observations and the new one begins after at most fifteen, even if no prediction was checked.
/// That is about one build of a medium program, or a day of an office program. With faster fading
/// one odd run in ten would end a prediction; with slower fading a prediction would stay wrong for
/// weeks after a new version of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Votes([u32; 3]);

impl Votes {
    /// One vote in the raw unit. It has 16 fraction bits, so that the rounding errors of fading
    /// stay below a thousandth of a vote for as long as the vote matters.
    pub const ONE: u32 = 1 << 16;
    /// Each observation removes one part in this many of all votes.
    const FADE: u32 = 16;
    /// The sum that all votes converge to and never exceed (raw unit).
    pub const MAX: u32 = Votes::FADE * Votes::ONE;

    /// Votes from the raw unit. A sum above [`Votes::MAX`] is scaled down to it, so that votes from
    /// a file fade like any others.
    pub const fn from_raw(raw: [u32; 3]) -> Votes {
        let [batch, interactive, lat_critical] = raw;
        let total = batch as u64 + interactive as u64 + lat_critical as u64;
        if total <= Votes::MAX as u64 {
            return Votes(raw);
        }
        let max = Votes::MAX as u64;
        Votes([
            (batch as u64 * max / total) as u32,
            (interactive as u64 * max / total) as u32,
            (lat_critical as u64 * max / total) as u32,
        ])
    }

    /// Whole votes for each tier, not yet faded.
    pub const fn fresh(counts: [u32; 3]) -> Votes {
        Votes::from_raw([
            counts[0].saturating_mul(Votes::ONE),
            counts[1].saturating_mul(Votes::ONE),
            counts[2].saturating_mul(Votes::ONE),
        ])
    }

    /// The votes of each tier in the raw unit, in the order of [`Tier::ALL`].
    pub const fn as_raw(self) -> [u32; 3] {
        self.0
    }

    /// All votes together, at most [`Votes::MAX`].
    pub const fn total(self) -> u32 {
        self.0[0] + self.0[1] + self.0[2]
    }

    /// The tier with the most votes. Of equals the more urgent one, because a user notices a task
    /// that waits too long, and not one that runs too soon.
    pub fn dominant(self) -> Tier {
        let most = Tier::ALL.into_iter().max_by_key(|tier| self.0[tier.index()]);
        most.unwrap_or_default()
    }

    /// Fades all votes and adds one. The removed part is rounded up, so that an old vote reaches
    /// zero and the sum stays within [`Votes::MAX`].
    fn cast(&mut self, tier: Tier) {
        for votes in &mut self.0 {
            *votes -= votes.div_ceil(Votes::FADE);
        }
        self.0[tier.index()] += Votes::ONE;
    }
}

/// Whose profile it is: a name, and the user of the tasks. What tasks of one user teach counts for
/// no other user: a name is whatever a task makes of it.
///
/// A program of an unknown user is one that was learned where users are not told, or by a version
/// that did not know them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Program {
    /// The name.
    pub comm: Comm,
    /// The user.
    pub user: User,
}

impl Program {
    /// The same name, of an unknown user.
    pub const fn of_unknown(self) -> Program {
        Program { user: User::UNKNOWN, ..self }
    }
}

/// The behaviour of one mature task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The task's name and user.
    pub program: Program,
    /// The tier by behaviour, before any list of names changed it.
    pub tier: Tier,
    /// Average length of a run between two sleeps.
    pub run: Span,
    /// Average deviation of a run from `run`.
    pub run_dev: Span,
    /// Rate of wakeups.
    pub wake_freq: Rate,
    /// Rate of voluntary switches.
    pub csw_rate: Rate,
    /// The tier predicted for this task, if there was a prediction that was not checked yet.
    pub predicted: Option<Tier>,
}

/// Whether an observation confirms the prediction for the same task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There was no prediction to check.
    Unpredicted,
    /// The task has the predicted tier.
    Right,
    /// The task has another tier.
    Wrong,
}

impl Observation {
    /// Compares the prediction with the behaviour.
    pub fn verdict(&self) -> Verdict {
        match self.predicted {
            None => Verdict::Unpredicted,
            Some(tier) if tier == self.tier => Verdict::Right,
            Some(_) => Verdict::Wrong,
        }
    }
}

/// The behaviour that a name predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The tier.
    pub tier: Tier,
    /// Average length of a run between two sleeps.
    pub run: Span,
    /// Average deviation of a run from `run`.
    pub run_dev: Span,
    /// Rate of wakeups.
    pub wake_freq: Rate,
    /// Rate of voluntary switches.
    pub csw_rate: Rate,
    /// The confidence, at least [`Confidence::LIMIT`].
    pub confidence: Confidence,
}

/// What was learned about one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The name, and the user whose tasks have taught.
    pub program: Program,
    /// The observed tiers of these tasks.
    pub votes: Votes,
    /// Average length of their runs between two sleeps.
    pub run: Span,
    /// Average deviation of a run from `run`.
    pub run_dev: Span,
    /// Rate of wakeups.
    pub wake_freq: Rate,
    /// Rate of voluntary switches.
    pub csw_rate: Rate,
    /// The number of observations since the profile began; saturates.
    pub observations: u32,
    /// The time of the latest observation.
    pub last_seen: Minute,
    /// Wrong predictions in a row, below `MISSES_MAX`.
    pub misses: u8,
}

impl Profile {
    /// The profile of an unknown program.
    pub fn unseen(program: Program) -> Profile {
        Profile { program, ..Profile::default() }
    }

    /// Learns from an observation of this program.
    pub fn learn(&mut self, when: Minute, seen: &Observation) -> Verdict {
        let verdict = seen.verdict();
        match verdict {
            Verdict::Unpredicted => {}
            Verdict::Right => self.misses = 0,
            Verdict::Wrong => self.misses = self.misses.saturating_add(1),
        }
        if self.misses >= MISSES_MAX {
            *self = Profile { last_seen: self.last_seen, ..Profile::unseen(self.program) };
        }
        if self.observations == 0 {
            self.run = seen.run;
            self.run_dev = seen.run_dev;
            self.wake_freq = seen.wake_freq;
            self.csw_rate = seen.csw_rate;
        } else {
            self.run = average_span(self.run, seen.run);
            self.run_dev = average_span(self.run_dev, seen.run_dev);
            self.wake_freq = average_rate(self.wake_freq, seen.wake_freq);
            self.csw_rate = average_rate(self.csw_rate, seen.csw_rate);
        }
        self.votes.cast(seen.tier);
        self.observations = self.observations.saturating_add(1);
        self.last_seen = self.last_seen.max(when);
        verdict
    }

    /// The share of the dominant tier, times a factor of 1 for runs of equal length down to 1/2 for
    /// runs that deviate by their own average: `share * (1/2 + (1 - min(1, dev / avg)) / 2)`. Zero
    /// below three observations. There is one division, at the end, so that 3 votes of 5 meet a
    /// limit of 3/5.
    pub fn confidence(&self) -> Confidence {
        let total = u128::from(self.votes.total());
        if self.observations < OBSERVATIONS_MIN || total == 0 {
            return Confidence(0);
        }
        // An unknown average counts as the largest deviation.
        let run = u128::from(self.run.as_nanos().max(1));
        let dev = match self.run {
            Span::ZERO => run,
            _ => u128::from(self.run_dev.as_nanos()).min(run),
        };
        let most = u128::from(self.votes.0[self.votes.dominant().index()]);
        Confidence((1_000 * most * (2 * run - dev) / (2 * run * total)) as u16)
    }

    /// What this name predicts, or `None` while the confidence is below the limit.
    pub fn prediction(&self) -> Option<Prediction> {
        let confidence = self.confidence();
        (confidence >= Confidence::LIMIT).then(|| Prediction {
            tier: self.votes.dominant(),
            run: self.run,
            run_dev: self.run_dev,
            wake_freq: self.wake_freq,
            csw_rate: self.csw_rate,
            confidence,
        })
    }

    /// The newer of two profiles of one program.
    ///
    /// The votes of two databases are not added. One database began as a copy of the other, so the
    /// newer profile contains the votes of both, and adding would count them twice at every save.
    /// All fields are compared, so that the result does not depend on the order of the arguments.
    pub fn newer(self, other: Profile) -> Profile {
        if self.age_key() >= other.age_key() { self } else { other }
    }

    /// Orders by time, then by number of observations, then in any fixed order.
    fn age_key(&self) -> impl Ord + use<> {
        (
            (self.last_seen, self.observations, self.misses),
            (self.votes, self.run, self.run_dev),
            (self.wake_freq, self.csw_rate, self.program),
        )
    }

    /// How much the profile is worth keeping. The smallest is evicted first.
    ///
    /// Only the day of the last observation counts, not the minute. Within a day a name with many
    /// observations outlasts one with few, so that a flood of names that are seen once evicts its
    /// own names.
    fn worth(&self) -> (u32, u32, Program) {
        (self.last_seen.day(), self.observations, self.program)
    }
}

fn average_span(old: Span, new: Span) -> Span {
    Span::from_nanos(average(old.as_nanos(), new.as_nanos()))
}

fn average_rate(old: Rate, new: Rate) -> Rate {
    // The average of two 32-bit numbers has 32 bits.
    Rate(average(u64::from(old.0), u64::from(new.0)) as u32)
}

/// One step of an average, rounded to the nearest, so that a constant input keeps it constant.
fn average(old: u64, new: u64) -> u64 {
    let over = u128::from(AVERAGE_OVER);
    (((over - 1) * u128::from(old) + u128::from(new) + over / 2) / over) as u64
}
