// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_lab replay`: whether a policy decides again what a recording's policy decided, and
//! where not.

use crate::cli::ReplayArgs;
use crate::offered::catalog;
use crate::table::{Cell, Table};
use anyhow::{Result, anyhow};
use pandemonium_engine::PolicyInfo;
use pandemonium_engine::task::Dispatch;
use pandemonium_print::print;
use pandemonium_record::file::read::Recording;
use pandemonium_record::file::repeat::{Policies, Replayed, repeat};
use std::process::ExitCode;

pub fn run(args: &ReplayArgs) -> Result<ExitCode> {
    let mut recording = Recording::open(&args.file)?;
    let header = recording.header.clone();
    let known = catalog().find(&header.policy);
    let unknown = || anyhow!("the recording's policy {:?} is not known here", header.policy);
    let recorded = known.as_ref().map_err(|_| unknown());
    let policy = args.policy.map_or_else(|| recorded.copied(), Ok)?;
    let source = format!("{}, policy {}", header.source, header.policy);
    print(&source);
    let mut replayed = Replayed::default();
    let (set, into) = (&args.set, &mut replayed);
    let policies = Policies { recorded: known.ok().map(|info| info.knobs), replayed: policy };
    let outcome = repeat(&mut recording, &policies, set, into);
    // What can be said of a recording that is cut off is said before the complaint.
    let code = if replayed.rounds > 0 { report(&replayed, policy) } else { ExitCode::SUCCESS };
    outcome.map(|()| code)
}

fn report(replayed: &Replayed, policy: PolicyInfo) -> ExitCode {
    let Replayed { decisions, different, first, rounds, starts, .. } = replayed;
    let name = policy.name;
    let starts = if *starts > 1 { format!(", {starts} starts") } else { String::new() };
    print(&format!("{decisions} decisions in {rounds} rounds{starts}"));
    let Some(first) = first else {
        print(&format!("{name} repeats every one of them"));
        return ExitCode::SUCCESS;
    };
    print(&format!(
        "{name} differs in {different} of them, for the first time at entry {}:",
        first.entry
    ));
    print(&format!("  recorded: {}", say(first.recorded.as_ref(), replayed)));
    print(&format!("  replayed: {}", say(first.replayed.as_ref(), replayed)));
    print(&format!("\n{}", waits(replayed).text().trim_end()));
    ExitCode::from(1)
}

fn say(dispatch: Option<&Dispatch>, replayed: &Replayed) -> String {
    let Some(dispatch) = dispatch else { return "no decision".to_owned() };
    let name = replayed.names.get(&dispatch.pid).copied().unwrap_or_default();
    let Dispatch { pid, ticket, placement, slice, vtime, tier, preempt, reason, order } = dispatch;
    let (pid, ticket, vtime) = (pid.as_raw(), ticket.0, vtime.as_raw());
    let preempt = if *preempt { ", interrupting" } else { "" };
    let order = order.map_or(String::new(), |order| {
        format!(", with an order for {} wakeups in {}", order.credit, order.life)
    });
    format!(
        "{name} (pid {pid}, ticket {ticket}) as {tier:?} on {placement:?} for {slice}, key \
         {vtime}{preempt}, by {reason:?}{order}"
    )
}

/// The same arrivals under both: when they come is as it was recorded, so this says how the
/// policies order, not how the machine would have gone on.
pub fn waits(all: &Replayed) -> Table {
    let title = "from arrival to decision in us, the same arrivals";
    let mut table = Table::new(title, &["task", "run", "decisions", "p50", "p99", "longest"]);
    for (name, recorded) in &all.recorded.by_name {
        let replayed = all.replayed.by_name.get(name).cloned().unwrap_or_default();
        for (run, lengths) in [("recorded", recorded), ("replayed", &replayed)] {
            table.row(vec![
                name.to_string().into(),
                run.into(),
                lengths.count().into(),
                lengths.quantile(500).into(),
                lengths.quantile(990).into(),
                Cell::Micros(lengths.longest()),
            ]);
        }
    }
    table
}
