// SPDX-License-Identifier: GPL-2.0-only

//! `check`: whether this machine can run the scheduler, what of it would be lost, and what else a
//! user should know before the first start. It loads nothing and changes nothing.
//!
//! `facts` reads, `findings` judges what was read, and this module prints.

mod facts;
mod finding;
mod findings;
mod kernel_names;
mod newer;

use self::facts::Facts;
use self::finding::{Finding, Level};
use super::cli::CheckArguments;
use super::{output, privileges};
use pandemonium_host::failure::Failure;
use pandemonium_host::preflight::Lacks;
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    version: String,
    kernel: &'a str,
    /// Whether a start would succeed, or has succeeded: an instance runs.
    can_run: bool,
    /// That of a start.
    exit_code: u8,
    findings: &'a [Finding],
}

/// Executes the command.
pub fn run(arguments: &CheckArguments) -> Result<ExitCode, Failure> {
    let root = Path::new("/");
    let lacks = Lacks::observe(root);
    privileges::ask();
    privileges::keep_none();
    let facts = Facts::read(root, lacks);
    let (findings, exit_code) = findings::judge(&facts);
    if arguments.json {
        let report = Report {
            version: super::cli::version(),
            kernel: &facts.release,
            can_run: exit_code == 0,
            exit_code,
            findings: &findings,
        };
        output::print(&serde_json::to_string_pretty(&report).map_err(Failure::internal)?);
    } else {
        output::print(&text(&findings));
    }
    Ok(ExitCode::from(exit_code))
}

/// One line for each finding, and below it what to do; at the end the verdict.
fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let Finding { topic, level, found, advice } = finding;
        text += &format!("{:<9}{topic:<17}{found}\n", level.word());
        if let Some(advice) = advice {
            text += &format!("{:26}-> {advice}\n", "");
        }
    }
    let of = |level| findings.iter().filter(|finding| finding.level == level).count();
    let [failures, warnings] = [Level::Failure, Level::Warning].map(of);
    let warned = match warnings {
        0 => String::new(),
        1 => ", with 1 warning".to_owned(),
        more => format!(", with {more} warnings"),
    };
    text + &match failures {
        0 => format!("This machine can run scx_pandemonium_user{warned}."),
        _ => "This machine cannot run scx_pandemonium_user as it is: see FAILED.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(level: Level, advice: Option<&str>) -> Finding {
        Finding { topic: "kernel", level, found: "this".into(), advice: advice.map(str::to_owned) }
    }

    #[test]
    fn the_text_has_a_line_for_each_finding_and_ends_with_the_verdict() {
        let good = finding(Level::Ok, None);
        let lines = |findings: &[Finding]| {
            text(findings).lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
        };
        let fine = lines(std::slice::from_ref(&good));
        assert_eq!(
            fine,
            ["ok       kernel           this", "This machine can run scx_pandemonium_user."]
        );
        let warned = lines(&[good.clone(), finding(Level::Warning, Some("that"))]);
        assert_eq!(
            warned[2..],
            ["-> that", "This machine can run scx_pandemonium_user, with 1 warning."]
        );
        let failed = lines(&[good, finding(Level::Failure, Some("that"))]);
        assert!(failed[1].starts_with("FAILED") && failed[3].contains("cannot"), "{failed:?}");
    }
}
