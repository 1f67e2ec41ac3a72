// SPDX-License-Identifier: GPL-2.0-only

//! The process database: what was learned of a program, kept under its name, so that the next
//! task of that name need not be watched before it is treated well.
//!
//! ```text
//! a task matured --Observation--> learn --> Profile (votes, averages) --> predict --> a new task
//!                                   ^                                                     |
//!                                   '------- was the prediction right? <------------------'
//! ```
//!
//! Every observation is a vote for a tier. Votes fade as newer ones come in, so a program that
//! changed its habits changes its prediction; a prediction that behaviour contradicts three times
//! in a row is dropped at once. Nothing is predicted unless the votes agree well enough
//! ([`Confidence`]).
//!
//! This module is the learning rule, a pure function of one profile; [`table`] holds the profiles
//! and finds them; [`codec`] turns them into bytes. Time is an argument ([`Minute`]), and nothing
//! here knows a file.

pub mod codec;
mod table;

pub use table::{CAPACITY, ProcDb, RETENTION_DAYS, Summary};

use crate::task::{Comm, Tier};
use crate::time::Span;

/// Weight of the newest observation in an average, as a fraction of this. The original's number:
/// half of an average is younger than six observations.
const AVERAGE_OVER: u64 = 8;
/// Observations without which nothing is predicted. The original's number: two may be chance.
const OBSERVATIONS_MIN: u32 = 3;
/// So many wrong predictions in a row end a profile: what it knows belongs to another program.
/// As many as it takes to begin one, so that a prediction is lost as quickly as it is earned. One
/// or two in a row are ordinary for a name that several programs share.
const MISSES_MAX: u8 = 3;

/// A minute of the calendar, counted from 1970-01-01 00:00 UTC; 32 bits last 8,000 years.
///
/// A clock may step. A stamp from the future counts as "now" and is never lowered: a machine that
/// boots in 1970 because its clock has no battery must not throw away what it knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minute(u32);

impl Minute {
    /// Minutes in a day.
    const PER_DAY: u32 = 24 * 60;

    /// A stamp from minutes since 1970.
    pub const fn from_unix(minutes: u32) -> Minute {
        Minute(minutes)
    }

    /// Minutes since 1970.
    pub const fn as_unix(self) -> u32 {
        self.0
    }

    /// This stamp, `span` later, for a caller whose own clock counts from a start.
    pub const fn later(self, span: Span) -> Minute {
        let minutes = span.as_nanos() / 60_000_000_000;
        // The largest span has 307 million minutes: the cast keeps all of them.
        Minute(self.0.saturating_add(minutes as u32))
    }

    /// Whole minutes since `earlier`; zero when that lies in the future.
    pub const fn minutes_since(self, earlier: Minute) -> u32 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole days since `earlier`; zero when that lies in the future.
    pub const fn days_since(self, earlier: Minute) -> u32 {
        self.minutes_since(earlier) / Minute::PER_DAY
    }

    /// The day of the calendar this minute is in.
    const fn day(self) -> u32 {
        self.0 / Minute::PER_DAY
    }
}

/// How often something happens, in thousandths of a hertz: 60 Hz is 60,000. Up to 4.2 MHz, beyond
/// what one task can do; fine enough that once in ten minutes is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u32);

impl Rate {
    /// A rate from thousandths of a hertz.
    pub const fn from_millihertz(millihertz: u32) -> Rate {
        Rate(millihertz)
    }

    /// A rate from events in 100 ms, the unit of the original's files; saturates.
    pub const fn from_per_100ms(events: u64) -> Rate {
        let millihertz = events.saturating_mul(10_000);
        Rate(if millihertz > u32::MAX as u64 { u32::MAX } else { millihertz as u32 })
    }

    /// Thousandths of a hertz.
    pub const fn as_millihertz(self) -> u32 {
        self.0
    }
}

/// How far the votes and the averages of a profile can be trusted, from 0 to 1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Confidence(u16);

impl Confidence {
    /// From here on a profile predicts. The original's number: three votes of five that agree,
    /// from runs of equal length, or four of five from runs that deviate by half.
    pub const LIMIT: Confidence = Confidence(600);

    /// Thousandths, 0 to 1000.
    pub const fn as_permille(self) -> u16 {
        self.0
    }
}

/// Votes for the three tiers, which fade.
///
/// Each observation takes a sixteenth of every tier's votes away and gives its own tier one. So a
/// vote has lost half its weight after eleven observations, and all votes together never exceed
/// sixteen. Unanimous habits that turn into others are no longer predicted after at most eight
/// observations and predicted anew after at most fifteen, without any prediction having been
/// judged: about one build of a medium program, or a day of an office one. A faster fading would
/// let one odd run in ten shake a prediction; a slower one would outlast the change of a
/// program's version for weeks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Votes([u32; 3]);

impl Votes {
    /// One vote, in the raw unit: 16 bits of fraction, so that the rounding of a fade is below a
    /// thousandth of a vote for as long as the vote matters.
    pub const ONE: u32 = 1 << 16;
    /// Each observation fades all votes by one part in this many.
    const FADE: u32 = 16;
    /// What all votes together converge to, and never exceed (raw unit).
    pub const MAX: u32 = Votes::FADE * Votes::ONE;

    /// Votes from the raw unit. More than [`Votes::MAX`] together are scaled down to it, so that
    /// no number out of a file is too heavy to fade.
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

    /// So many whole votes for each tier, none of them faded yet.
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

    /// The tier with the most votes. A tie goes to the more urgent one: a task that waits too
    /// long is noticed, one that is served too soon is not.
    pub fn dominant(self) -> Tier {
        let most = Tier::ALL.into_iter().max_by_key(|tier| self.0[tier.index()]);
        most.unwrap_or_default()
    }

    /// Fades all votes and adds one. The part that is taken away is rounded up, so that an old
    /// vote ends at zero and the sum stays within [`Votes::MAX`].
    fn cast(&mut self, tier: Tier) {
        for votes in &mut self.0 {
            *votes -= votes.div_ceil(Votes::FADE);
        }
        self.0[tier.index()] += Votes::ONE;
    }
}

/// What one task turned out to be, told when it has matured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Its name.
    pub comm: Comm,
    /// The tier that its behaviour gave, before any list of names raised it.
    pub tier: Tier,
    /// How long it runs on average.
    pub run: Span,
    /// How far a run deviates from that on average.
    pub run_dev: Span,
    /// How often it wakes up.
    pub wake_freq: Rate,
    /// How often it gives up the CPU by itself.
    pub csw_rate: Rate,
    /// What was predicted of this very task, if something was and it was not judged before.
    pub predicted: Option<Tier>,
}

/// What an observation says about the prediction it followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There was none to judge.
    Unpredicted,
    /// It came true.
    Right,
    /// It did not.
    Wrong,
}

impl Observation {
    /// Judges the prediction by the behaviour.
    pub fn verdict(&self) -> Verdict {
        match self.predicted {
            None => Verdict::Unpredicted,
            Some(tier) if tier == self.tier => Verdict::Right,
            Some(_) => Verdict::Wrong,
        }
    }
}

/// What a name promises of a task that bears it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// Where it belongs.
    pub tier: Tier,
    /// How long it will run on average.
    pub run: Span,
    /// How far a run will deviate from that on average.
    pub run_dev: Span,
    /// How often it will wake up.
    pub wake_freq: Rate,
    /// How often it will give up the CPU by itself.
    pub csw_rate: Rate,
    /// How much the prediction is worth, from [`Confidence::LIMIT`] on.
    pub confidence: Confidence,
}

/// What is known of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The name.
    pub comm: Comm,
    /// Which tiers tasks of this name turned out to belong to.
    pub votes: Votes,
    /// How long they ran on average.
    pub run: Span,
    /// How far a run deviated from that on average.
    pub run_dev: Span,
    /// How often they woke up.
    pub wake_freq: Rate,
    /// How often they gave up the CPU by themselves.
    pub csw_rate: Rate,
    /// How many observations went in since the profile began; saturates.
    pub observations: u32,
    /// When the latest of them was made.
    pub last_seen: Minute,
    /// Wrong predictions in a row, below [`MISSES_MAX`].
    pub misses: u8,
}

impl Profile {
    /// A name of which nothing is known yet.
    pub fn unseen(comm: Comm) -> Profile {
        Profile { comm, ..Profile::default() }
    }

    /// Takes in an observation of this name.
    pub fn learn(&mut self, when: Minute, seen: &Observation) -> Verdict {
        let verdict = seen.verdict();
        match verdict {
            Verdict::Unpredicted => {}
            Verdict::Right => self.misses = 0,
            Verdict::Wrong => self.misses = self.misses.saturating_add(1),
        }
        if self.misses >= MISSES_MAX {
            *self = Profile { last_seen: self.last_seen, ..Profile::unseen(self.comm) };
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

    /// Share of the dominant tier, times 1 for runs of equal length down to 1/2 for runs that
    /// deviate by their own average: `share * (1/2 + (1 - min(1, dev / avg)) / 2)`. Zero below
    /// three observations. One division at the end, so that a limit of 3/5 is met by 3 of 5.
    pub fn confidence(&self) -> Confidence {
        let total = u128::from(self.votes.total());
        if self.observations < OBSERVATIONS_MIN || total == 0 {
            return Confidence(0);
        }
        // Where no average is known, it may be anything: that counts as the widest deviation.
        let run = u128::from(self.run.as_nanos().max(1));
        let dev = match self.run {
            Span::ZERO => run,
            _ => u128::from(self.run_dev.as_nanos()).min(run),
        };
        let most = u128::from(self.votes.0[self.votes.dominant().index()]);
        Confidence((1_000 * most * (2 * run - dev) / (2 * run * total)) as u16)
    }

    /// What this name promises, or nothing while its confidence is below the limit.
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

    /// The newer of two profiles of one name.
    ///
    /// Votes of two databases are not added: one of them has begun as a copy of the other, so the
    /// newer one holds the votes of both already, and adding would count them twice at every
    /// save. Everything is compared, so that the result does not depend on which side is which.
    pub fn newer(self, other: Profile) -> Profile {
        if self.age_key() >= other.age_key() { self } else { other }
    }

    /// Latest first, then the one that has seen more, then any fixed order.
    fn age_key(&self) -> impl Ord + use<> {
        (
            (self.last_seen, self.observations, self.misses),
            (self.votes, self.run, self.run_dev),
            (self.wake_freq, self.csw_rate, self.comm),
        )
    }

    /// How much the profile is worth keeping: a smaller one goes first.
    ///
    /// The day counts, not the minute: within a day a name that has been seen often outlasts one
    /// that was seen once, so that a flood of names that never come back pushes out itself.
    fn worth(&self) -> (u32, u32, Comm) {
        (self.last_seen.day(), self.observations, self.comm)
    }
}

fn average_span(old: Span, new: Span) -> Span {
    Span::from_nanos(average(old.as_nanos(), new.as_nanos()))
}

fn average_rate(old: Rate, new: Rate) -> Rate {
    // The average of two 32-bit numbers has 32 bits.
    Rate(average(u64::from(old.0), u64::from(new.0)) as u32)
}

/// Rounded to the nearest, so that an average that is reached does not drift away from it.
fn average(old: u64, new: u64) -> u64 {
    let over = u128::from(AVERAGE_OVER);
    (((over - 1) * u128::from(old) + u128::from(new) + over / 2) / over) as u64
}
