// SPDX-License-Identifier: GPL-2.0-only

//! Which task ran on which CPU when: for the report's timeline and for traces that ui.perfetto.dev
//! opens.

use anyhow::{Context, Result};
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_sim::machine::START;
use pandemonium_sim::observer::{Event, Observer, Occupant};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};

/// Largest number of run intervals that is kept: a browser cannot open a larger trace.
const RUN_INTERVALS_MAX: usize = 1_000_000;

/// One run interval on a CPU.
#[derive(Clone, Copy, Debug)]
pub struct RunInterval {
    pub cpu: u32,
    pub from: Stamp,
    pub until: Stamp,
    pub runner: Runner,
}

/// What ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// The scheduler process.
    Scheduler,
    Task {
        pid: i32,
        group: u32,
        tier: Tier,
    },
}

/// Collects the run intervals of a window of time.
pub struct Timeline {
    pub from: Stamp,
    pub until: Stamp,
    pub run_intervals: Vec<RunInterval>,
    /// Time and CPU of each kick.
    pub kicks: Vec<(Stamp, u32)>,
    /// Whether run intervals were dropped because there were too many.
    pub cut: bool,
    /// Since when each CPU runs what it runs now.
    open: BTreeMap<u32, (Stamp, Occupant)>,
}

impl Timeline {
    /// The window that begins at `from` after the start of the run.
    pub fn new(from: Span, length: Span) -> Timeline {
        Timeline {
            from: START + from,
            until: START + from + length,
            run_intervals: Vec::new(),
            kicks: Vec::new(),
            cut: false,
            open: BTreeMap::new(),
        }
    }

    /// Ends the current run interval of a CPU.
    fn close(&mut self, cpu: u32, now: Stamp) {
        let Some((since, occupant)) = self.open.remove(&cpu) else { return };
        let (from, until) = (since.max(self.from), now.min(self.until));
        let runner = match occupant {
            Occupant::Idle => return,
            Occupant::Scheduler => Runner::Scheduler,
            Occupant::Task(task, tier) => {
                Runner::Task { pid: task.pid.as_raw(), group: task.group, tier }
            }
        };
        if from >= until {
            return;
        }
        if self.run_intervals.len() >= RUN_INTERVALS_MAX {
            self.cut = true;
            return;
        }
        self.run_intervals.push(RunInterval { cpu, from, until, runner });
    }
}

impl Observer for Timeline {
    fn saw(&mut self, now: Stamp, event: &Event) {
        match *event {
            Event::Switched { cpu, to, .. } => {
                self.close(cpu, now);
                self.open.insert(cpu, (now, to));
            }
            Event::Kicked { cpu, .. }
                if (self.from..self.until).contains(&now)
                    && self.kicks.len() < RUN_INTERVALS_MAX =>
            {
                self.kicks.push((now, cpu));
            }
            _ => {}
        }
    }
}

impl Timeline {
    /// Writes a trace in the JSON format that ui.perfetto.dev and chrome://tracing open.
    pub fn write_perfetto(&mut self, path: &str, names: &[String], cpus: u32) -> Result<()> {
        for cpu in 0..cpus {
            self.close(cpu, self.until);
        }
        let file = File::create(path).with_context(|| format!("cannot create {path}"))?;
        let mut out = BufWriter::new(file);
        self.perfetto(&mut out, names, cpus).with_context(|| format!("cannot write {path}"))
    }

    fn perfetto(&self, out: &mut impl Write, names: &[String], cpus: u32) -> Result<()> {
        let us = |at: Stamp| at.since(START).as_nanos() as f64 / 1_000.0;
        writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        for cpu in 0..cpus {
            let name = serde_json::json!({
                "ph": "M", "name": "thread_name", "pid": 1, "tid": cpu + 1,
                "args": { "name": format!("CPU {cpu}") },
            });
            writeln!(out, "{name},")?;
        }
        for run_interval in &self.run_intervals {
            let (name, category) = match run_interval.runner {
                Runner::Scheduler => ("scheduler".to_owned(), "scheduler".to_owned()),
                Runner::Task { pid, group, tier } => {
                    let name = names.get(group as usize).map_or("task", String::as_str);
                    (format!("{name} {pid}"), format!("{tier:?}"))
                }
            };
            let event = serde_json::json!({
                "ph": "X", "name": name, "cat": category, "pid": 1, "tid": run_interval.cpu + 1,
                "ts": us(run_interval.from), "dur": us(run_interval.until) - us(run_interval.from),
            });
            writeln!(out, "{event},")?;
        }
        for (at, cpu) in &self.kicks {
            let event = serde_json::json!({
                "ph": "i", "name": "interrupt", "s": "t", "pid": 1, "tid": cpu + 1, "ts": us(*at),
            });
            writeln!(out, "{event},")?;
        }
        let process = serde_json::json!({
            "ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": { "name": "machine" },
        });
        writeln!(out, "{process}\n]}}")?;
        out.flush()?;
        Ok(())
    }
}
