// SPDX-License-Identifier: GPL-2.0-only

//! Work with a deadline in each period: frames for a display, buffers for a sound card.

use crate::report::Report;
use crate::setting::{Meter, Setting};
use crate::tasks::frames;
use crate::tasks::probe::Probe;
use anyhow::{Result, ensure};
use pandemonium_statistics::figure::Unit;

/// A frame takes one part in so many of what a CPU does in a period.
const FRAME_SHARE: u64 = 4;
/// 128 samples at 44.1 kHz.
const BUFFER_NS: u64 = 2_902_494;
/// A buffer takes one part in so many of what a CPU does in a period.
const BUFFER_SHARE: u64 = 10;

/// Work with a deadline at the end of each period.
#[derive(Clone, Copy)]
pub struct Rhythm {
    period_ns: u64,
    share: u64,
    /// Names of the figure that counts misses, and of the curve.
    missed: &'static str,
    time: &'static str,
}

pub const FRAMES: Rhythm =
    Rhythm { period_ns: frames::PERIOD_NS, share: FRAME_SHARE, missed: "late", time: "frame_time" };
const BUFFERS: Rhythm =
    Rhythm { period_ns: BUFFER_NS, share: BUFFER_SHARE, missed: "xruns", time: "buffer_time" };

/// A running probe that works in this rhythm.
pub struct Kept {
    rhythm: Rhythm,
    count: usize,
    probe: Probe,
}

impl Rhythm {
    pub fn start(self, setting: &Setting) -> Result<Kept> {
        let count = (setting.run_ns / self.period_ns).max(1) as usize;
        let rounds = setting.rounds(self.period_ns / self.share / 1_000);
        Ok(Kept { rhythm: self, count, probe: frames::start_every(self.period_ns, count, rounds)? })
    }
}

impl Kept {
    pub fn finish(self, report: &mut Report) -> Result<()> {
        let took = self.probe.finish()?;
        ensure!(took.count() == self.count, "{} of {} periods were done", took.count(), self.count);
        let Rhythm { period_ns, missed, time, .. } = self.rhythm;
        let late = took.count_above(period_ns) as f64;
        report.lower(missed, Unit::Count, late);
        report.lower(format!("{missed}_share"), Unit::Percent, late * 100.0 / self.count as f64);
        report.lower(format!("{time}_p50"), Unit::Us, took.quantile_us(500));
        report.lower(format!("{time}_p99"), Unit::Us, took.quantile_us(990));
        report.lower(format!("{time}_worst"), Unit::Us, took.worst_us());
        report.curve(time, &took);
        Ok(())
    }
}

fn beside_hogs(setting: &Setting, rhythm: Rhythm) -> Result<Report> {
    let load = setting.load(&setting.hogs())?;
    let mut report = Report::default();
    let meter = Meter::start(setting, &load)?;
    let kept = rhythm.start(setting)?;
    kept.finish(&mut report)?;
    meter.finish(&mut report)?;
    Ok(report)
}

pub fn deadline(setting: &Setting) -> Result<Report> {
    beside_hogs(setting, FRAMES)
}

pub fn audio(setting: &Setting) -> Result<Report> {
    beside_hogs(setting, BUFFERS)
}
