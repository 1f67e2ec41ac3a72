// SPDX-License-Identifier: GPL-2.0-only

//! Who had which CPU when: for the report's timeline and for traces that ui.perfetto.dev opens.

use anyhow::{Context, Result};
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_sim::machine::START;
use pandemonium_sim::observer::{Event, Observer, Occupant};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};

/// Stints that are kept at most: a trace of more is too large for a browser.
const STINTS_MAX: usize = 1_000_000;

/// One run interval on a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Stint {
    pub cpu: u32,
    pub from: Stamp,
    pub until: Stamp,
    pub who: Who,
}

/// Who it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Scheduler,
    Task { pid: i32, group: u32, tier: Tier },
}

/// Collects run intervals between two moments.
pub struct Timeline {
    pub from: Stamp,
    pub until: Stamp,
    pub run_intervals: Vec<Stint>,
    /// When which CPU was interrupted.
    pub kicks: Vec<(Stamp, u32)>,
    /// Whether there was more than is kept.
    pub cut: bool,
    open: BTreeMap<u32, (Stamp, Occupant)>,
}

impl Timeline {
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

    fn close(&mut self, cpu: u32, now: Stamp) {
        let Some((since, occupant)) = self.open.remove(&cpu) else { return };
        let (from, until) = (since.max(self.from), now.min(self.until));
        let who = match occupant {
            Occupant::Idle => return,
            Occupant::Scheduler => Who::Scheduler,
            Occupant::Task(task, tier) => {
                Who::Task { pid: task.pid.as_raw(), group: task.group, tier }
            }
        };
        if from >= until {
            return;
        }
        if self.run_intervals.len() >= STINTS_MAX {
            self.cut = true;
            return;
        }
        self.run_intervals.push(Stint { cpu, from, until, who });
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
                if (self.from..self.until).contains(&now) && self.kicks.len() < STINTS_MAX =>
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
            let (name, category) = match run_interval.who {
                Who::Scheduler => ("scheduler".to_owned(), "scheduler".to_owned()),
                Who::Task { pid, group, tier } => {
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
