// SPDX-License-Identifier: GPL-2.0-only

//! `bench report`: one results file, in the form that was asked for.

use super::bars::{self, Judged};
use super::cli::ReportArguments;
use super::digest::Digest;
use super::results::{self, Results};
use super::{export, html, table};
use crate::driver::durable::{self, Existing};
use crate::driver::telemetry;
use anyhow::{Context, Result};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// What every form is made of.
pub struct Report {
    pub results: Results,
    pub digest: Digest,
    /// What was demanded, if bars were given.
    pub bars: Option<Judged>,
}

pub fn run(arguments: &ReportArguments) -> Result<ExitCode> {
    let results = results::read(&arguments.file)?;
    let digest = Digest::new(&results);
    let judge = |path| bars::judge(path, &digest, arguments.scheduler.as_deref());
    let bars = arguments.bars.as_deref().map(judge).transpose()?;
    let report = Report { results, digest, bars };
    let format = &arguments.format;
    let text = match () {
        () if format.html => html::page(&report)?,
        () if format.csv => export::csv(&report.results),
        () if format.prometheus => export::prometheus(&report),
        () if format.json => export::json(&report)?,
        () => table::text(&report),
    };
    match &arguments.out {
        Some(path) => {
            write(path, &text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        None => telemetry::print_bytes(text.as_bytes()),
    }
    let missed = report.bars.as_ref().is_some_and(|bars| bars.missed() > 0);
    Ok(ExitCode::from(u8::from(arguments.strict && missed)))
}

fn write(path: &Path, text: &str) -> Result<()> {
    let name = path.file_name().context("the path names no file")?;
    let directory = durable::directory(&durable::parent(path).canonicalize()?)?;
    durable::put(&directory, name, Existing::Replaced, |file| file.write_all(text.as_bytes()))
}
