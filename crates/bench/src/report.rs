// SPDX-License-Identifier: GPL-2.0-only

//! `bench report`: one results file, in the form that was asked for.

use super::bars::{self, Judged};
use super::cli::ReportArguments;
use super::digest::Digest;
use super::results::{self, Results};
use super::{export, html, table};
use anyhow::{Context, Result};
use pandemonium_host::durable::{self, Existing};
use pandemonium_host::print;
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
    let mut results = results::read(&arguments.file)?;
    if let Some(name) = &arguments.beside {
        put_first(&mut results, name)?;
    }
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
        () => table::text(&report, columns(arguments)),
    };
    match &arguments.out {
        Some(path) => {
            write(path, &text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        None => print::print_bytes(text.as_bytes()),
    }
    let missed = report.bars.as_ref().is_some_and(|bars| bars.missed() > 0);
    Ok(ExitCode::from(u8::from(arguments.strict && missed)))
}

/// Everything is compared with the first scheduler.
fn put_first(results: &mut Results, name: &str) -> Result<()> {
    let at = results.schedulers.iter().position(|scheduler| scheduler.name == name);
    let at = at.with_context(|| format!("no scheduler in the file is named {name:?}"))?;
    results.schedulers[..=at].rotate_right(1);
    Ok(())
}

/// A file and another program take lines of any length.
fn columns(arguments: &ReportArguments) -> Option<usize> {
    let terminal = || terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0);
    let columns = arguments.width.or_else(|| terminal().filter(|_| arguments.out.is_none()));
    columns.map(usize::from)
}

fn write(path: &Path, text: &str) -> Result<()> {
    let name = path.file_name().context("the path names no file")?;
    let directory = durable::directory(&durable::parent(path).canonicalize()?)?;
    durable::put(&directory, name, Existing::Replaced, |file| file.write_all(text.as_bytes()))
}
