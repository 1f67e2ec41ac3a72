// SPDX-License-Identifier: GPL-2.0-only

//! The table of one kind of tasks: its fields, and what of it does not depend on the kind.

use crate::error::FileError;
use crate::formula;
use pandemonium_engine::time::Span;
use pandemonium_engine::topology::CpuMask;
use pandemonium_sim::topology::Mask;
use pandemonium_sim::workload::{Draw, Group, Place};
use serde::Deserialize;
use toml::Spanned;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Burn,
    Job,
    Sleep,
    Burst,
    Periodic,
    Chain,
    Pipe,
    Storm,
    Team,
    Change,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskTable {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    #[serde(default)]
    pub(crate) count: Option<Spanned<Count>>,
    pub(crate) work_us: Option<Spanned<Length>>,
    pub(crate) sleep_us: Option<Spanned<Length>>,
    pub(crate) pause_us: Option<Spanned<Length>>,
    pub(crate) first_wakeups: Option<Spanned<u32>>,
    pub(crate) first_work_us: Option<Spanned<Length>>,
    pub(crate) first_sleep_us: Option<Spanned<Length>>,
    pub(crate) burst: Option<Spanned<u32>>,
    pub(crate) compute_us: Option<Spanned<Length>>,
    pub(crate) period_us: Option<Spanned<Length>>,
    pub(crate) deadline_us: Option<u64>,
    pub(crate) length: Option<Spanned<Count>>,
    #[serde(default)]
    pub(crate) nice: Option<Spanned<i64>>,
    pub(crate) cpus: Option<Spanned<String>>,
    #[serde(default)]
    pub(crate) start_ms: u64,
    pub(crate) stop_ms: Option<u64>,
    #[serde(default)]
    pub(crate) spread_us: u64,
    #[serde(default)]
    pub(crate) respawn: bool,
    #[serde(default)]
    pub(crate) idle_class: bool,
    #[serde(default)]
    pub(crate) batch_class: bool,
    #[serde(default)]
    pub(crate) kthread: bool,
    #[serde(default)]
    pub(crate) threads: bool,
    #[serde(default)]
    pub(crate) exec: bool,
    pub(crate) sync: Option<bool>,
    pub(crate) counts: Option<bool>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged, expecting = "a number, or a formula of n in quotes such as \"2n\"")]
pub(crate) enum Count {
    Number(u32),
    Formula(String),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "a number of microseconds, or two: [shortest, longest]")]
pub(crate) enum Length {
    Fixed(u64),
    Between([u64; 2]),
}

/// Converts one task table.
pub(crate) struct Reader<'a> {
    pub(crate) source: &'a str,
    pub(crate) cpus: u32,
    pub(crate) table: &'a TaskTable,
    pub(crate) at: usize,
}

impl Reader<'_> {
    pub(crate) fn group(&self) -> Result<Group, FileError> {
        let table = self.table;
        self.check()?;
        let mut group = Group::new(&table.name, self.count(&table.count, 1)?, Vec::new());
        self.programs(&mut group)?;
        self.first(&mut group)?;
        // A task counts its steps in eight bits.
        if group.programs.iter().any(|program| program.len() > usize::from(u8::MAX)) {
            return Err(self.error(self.at, "expected fewer steps: a smaller burst"));
        }
        group.nice = match &table.nice {
            None => 0,
            Some(nice) => i8::try_from(*nice.get_ref())
                .ok()
                .filter(|nice| (-20..=19).contains(nice))
                .ok_or_else(|| self.error(nice.span().start, "expected -20 to 19"))?,
        };
        group.place = self.place()?;
        group.start = Span::from_millis(table.start_ms);
        group.stop = table.stop_ms.map(Span::from_millis);
        group.spread = Span::from_micros(table.spread_us);
        group.again = table.respawn;
        group.idle_class = table.idle_class;
        group.batch_class = table.batch_class;
        group.threads = table.threads;
        group.kthread = table.kthread;
        group.counts = table.counts.unwrap_or(true);
        group.deadline = table.deadline_us.map(Span::from_micros);
        Ok(group)
    }

    /// Refuses what contradicts itself.
    fn check(&self) -> Result<(), FileError> {
        let (table, kind) = (self.table, self.table.kind);
        if table.idle_class && table.batch_class {
            return Err(self.error(self.at, "expected idle_class or batch_class, not both"));
        }
        if table.exec && (table.threads || !matches!(kind, Kind::Job | Kind::Storm)) {
            return Err(self.error(self.at, "expected exec for a job or a storm of processes"));
        }
        if table.threads && kind == Kind::Storm {
            return Err(self.error(self.at, "expected no threads: a storm forks processes"));
        }
        Ok(())
    }

    fn place(&self) -> Result<Place, FileError> {
        let Some(cpus) = &self.table.cpus else { return Ok(Place::Anywhere) };
        if cpus.get_ref() == "each" {
            return Ok(Place::OneEach);
        }
        let mask = CpuMask::parse(cpus.get_ref()).map_err(|error| {
            self.error(cpus.span().start, format!("{error}; or \"each\", for one CPU each"))
        })?;
        let within: Vec<u32> =
            mask.iter().map(|cpu| cpu.as_raw() as u32).filter(|&cpu| cpu < self.cpus).collect();
        match (within.first(), within.last()) {
            (Some(&first), Some(&last)) if last - first + 1 == within.len() as u32 => {
                Ok(Place::Within(Mask::Range(first as u16, last as u16 + 1)))
            }
            (Some(_), Some(&last)) if last < 64 => {
                Ok(Place::Within(Mask::Bits(within.iter().map(|cpu| 1 << cpu).sum())))
            }
            (None, _) => {
                let why = format!("expected a CPU below {}", self.cpus);
                Err(self.error(cpus.span().start, why))
            }
            _ => Err(self.error(cpus.span().start, "expected one range, or CPUs below 64")),
        }
    }

    pub(crate) fn count(
        &self,
        count: &Option<Spanned<Count>>,
        default: u32,
    ) -> Result<u32, FileError> {
        let Some(spanned) = count else { return Ok(default) };
        let value = match spanned.get_ref() {
            Count::Number(number) => Some(*number),
            Count::Formula(text) => formula::evaluate(text, self.cpus),
        };
        let why = "expected a number, or a formula of n such as \"2n\", \"n/2\", \"max(8, 4n)\"";
        value.ok_or_else(|| self.error(spanned.span().start, why))
    }

    pub(crate) fn length(
        &self,
        name: &str,
        length: &Option<Spanned<Length>>,
        default: Option<u64>,
    ) -> Result<Draw, FileError> {
        let us = |us: u64| Span::from_micros(us);
        match (length, default) {
            (None, Some(default)) => Ok(Draw::fixed(us(default))),
            (None, None) => Err(self.missing(name)),
            (Some(given), _) => match *given.get_ref() {
                Length::Fixed(length) => Ok(Draw::fixed(us(length))),
                Length::Between([low, high]) if low <= high => Ok(Draw::between(us(low), us(high))),
                Length::Between(_) => {
                    Err(self.error(given.span().start, "expected the shorter length first"))
                }
            },
        }
    }

    pub(crate) fn missing(&self, field: &str) -> FileError {
        let kind = format!("{:?}", self.table.kind).to_lowercase();
        self.error(self.at, format!("expected {field}, which the kind \"{kind}\" needs"))
    }

    pub(crate) fn error(&self, at: usize, why: impl Into<String>) -> FileError {
        FileError::new(self.source, at, why)
    }
}
