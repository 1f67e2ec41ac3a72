// SPDX-License-Identifier: GPL-2.0-only

//! The messages between host and guest.
//!
//! The host sends one thing, the orders, as arguments on the kernel command line: they need no
//! device and cannot arrive late. The guest sends messages, one JSON object a line, over the second
//! serial port, so that kernel messages on the first one cannot pass for a verdict.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The serial port of the guest that carries messages; the first one is the kernel's console.
pub const GUEST_PORT: &str = "/dev/ttyS1";

/// One line from the guest to the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Message {
    /// The guest agent runs. A failure before this message is not the scenario's.
    Hello {
        kernel: String,
        cpus: usize,
    },
    /// What the scenario is doing: shown meanwhile, and quoted if it never ends.
    Progress {
        text: String,
    },
    /// Printed on a line of its own and kept.
    Note {
        text: String,
    },
    /// A measured value for the host's tables.
    Metric {
        name: String,
        value: f64,
    },
    /// What a benchmark has measured since the last such message: see lab.rs.
    Results {
        piece: serde_json::Value,
    },
    /// A line that the scheduler has printed.
    Telemetry {
        line: String,
    },
    /// The verdicts. A guest that ends without a verdict has died.
    Pass,
    Fail {
        reason: String,
    },
}

/// How time passes in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Each virtual CPU is a thread of the host: quick, but its clock is the host's clock
    Fast,
    /// Virtual time counts instructions: slow, with the same figures on every machine
    Exact,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Fast => "fast",
            Mode::Exact => "exact",
        }
    }
}

/// What the guest is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    pub scenario: String,
    pub mode: Mode,
    /// File name of the scheduler in the guest's `/bin`.
    pub scheduler: String,
    /// Input for the scenario, in one word; most scenarios need none.
    pub detail: String,
}

impl Orders {
    pub fn to_arguments(&self) -> String {
        format!(
            "vm.scenario={} vm.mode={} vm.scheduler={} vm.detail={}",
            self.scenario,
            self.mode.name(),
            self.scheduler,
            self.detail
        )
    }

    /// Reads the orders back out of `/proc/cmdline`.
    pub fn from_command_line(line: &str) -> Result<Orders> {
        let value = |key: &str| {
            line.split_whitespace()
                .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
                .with_context(|| format!("the kernel command line has no {key}="))
        };
        let mode = match value("vm.mode")? {
            "exact" => Mode::Exact,
            _ => Mode::Fast,
        };
        Ok(Orders {
            scenario: value("vm.scenario")?.into(),
            mode,
            scheduler: value("vm.scheduler")?.into(),
            detail: value("vm.detail")?.into(),
        })
    }
}
