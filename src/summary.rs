// SPDX-License-Identifier: GPL-2.0-only

//! What the supervisor tells at the end of a run.

use super::cli::{self, Options};
use super::event_log::EventLog;
use super::mutex::lock;
use super::reading::Reading;
use super::stats::Source;
use super::{output, programs, report, tasks, telemetry};
use pandemonium_host::durable;
use pandemonium_host::ejection::Ejection;
use std::sync::Mutex;

/// Seconds of the log that a report has.
const LAST_SECONDS: usize = 60;

/// Prints what the whole run was like, and returns it in more detail for a report.
pub fn print(
    options: &Options,
    source: &Source,
    started: &Reading,
    log: &Mutex<EventLog>,
) -> String {
    let mut ended = source.read();
    // It is over now, which is no fault.
    ended.driver.is_unloaded = false;
    let whole_run = source.metrics(started, &ended);
    let line = telemetry::line(&whole_run);
    let knobs = telemetry::knobs_line(&source.adaptive.status().report, &whole_run);
    output::print(&line);
    output::print(&knobs);
    if options.dump_log {
        output::print(&lock(log).to_string());
    }
    if options.dump_tasks {
        output::print(&tasks::table(source.shared.take_memos()));
    }
    format!("{line}\n{knobs}\n{:#?}\n\n{}", ended.numbers, lock(log).tail(LAST_SECONDS))
}

/// Writes a report of an ejection, beside the process database, and says where it is.
pub fn report(options: &Options, ejection: &Ejection, counters: String) {
    let version = cli::version();
    let words =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let path = programs::path(options.procdb.as_deref());
    let facts = report::Facts { version, words, counters };
    match report::write(durable::parent(&path), ejection, &facts) {
        Ok(path) => output::print(&format!(
            "a report without names of programs, to attach to a bug: {}",
            path.display()
        )),
        Err(error) => output::warn(&format!("no report of the ejection was written: {error:#}")),
    }
}
