// SPDX-License-Identifier: GPL-2.0-only

//! `bench report`: writes one results file in the chosen format.

use super::bars;
use super::cli::ReportArguments;
use super::contents::Contents;
use super::digest::Digest;
use super::results::{self, Results};
use super::{export, html, terminal};
use anyhow::{Context, Result};
use pandemonium_host::durable::{self, Existing};
use pandemonium_host::print;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Runs the command. The exit code is 1 if `--strict` is given and a bar is missed.
pub fn run(arguments: &ReportArguments) -> Result<ExitCode> {
    let mut results = results::read(&arguments.file)?;
    if let Some(name) = &arguments.beside {
        put_first(&mut results, name)?;
    }
    let digest = Digest::new(&results);
    let judge = |path| bars::judge(path, &digest, arguments.scheduler.as_deref());
    let bars = arguments.bars.as_deref().map(judge).transpose()?;
    let contents = Contents { results, digest, bars };
    let format = &arguments.format;
    let text = match () {
        () if format.html => html::page(&contents)?,
        () if format.csv => export::csv(&contents.results),
        () if format.prometheus => export::prometheus(&contents),
        () if format.json => export::json(&contents)?,
        () => terminal::text(&contents, columns(arguments)),
    };
    match &arguments.out {
        Some(path) => {
            write(path, &text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        None => print::print_bytes(print::printable(&text).as_bytes()),
    }
    let missed = contents.bars.as_ref().is_some_and(|bars| bars.missed() > 0);
    Ok(ExitCode::from(u8::from(arguments.strict && missed)))
}

/// Makes this scheduler the first one, with which the others are compared.
pub fn put_first(results: &mut Results, name: &str) -> Result<()> {
    let at = results.schedulers.iter().position(|scheduler| scheduler.name == name);
    let at = at.with_context(|| format!("no scheduler in the file is named {name:?}"))?;
    results.schedulers[..=at].rotate_right(1);
    Ok(())
}

/// The width of the tables: as given, else that of the terminal. A file or a pipe has no limit.
fn columns(arguments: &ReportArguments) -> Option<usize> {
    let terminal = || terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0);
    let columns = arguments.width.or_else(|| terminal().filter(|_| arguments.out.is_none()));
    columns.map(usize::from)
}

/// Replaces the file PATH.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let name = path.file_name().context("the path names no file")?;
    let directory = durable::directory(&durable::parent(path).canonicalize()?)?;
    durable::put(&directory, name, Existing::Replaced, |file| file.write_all(text.as_bytes()))
}
