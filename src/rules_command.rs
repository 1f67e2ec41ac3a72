// SPDX-License-Identifier: GPL-2.0-only

//! `rules test`: shows which rule applies to which running process, without a scheduler.

use super::cli::{RulesArguments, RulesCommand};
use super::{output, privileges};
use pandemonium_host::failure::Failure;
use pandemonium_host::print::one_line;
use pandemonium_rules::{Processes, Rules, Users, demand_text};
use std::path::PathBuf;

/// Executes the command.
pub fn run(arguments: &RulesArguments) -> Result<(), Failure> {
    let RulesCommand::Test { rules } = &arguments.what;
    let paths = if rules.is_empty() { vec![shipped()?] } else { rules.clone() };
    let rules = Rules::read(&paths).map_err(Failure::Usage)?;
    // The rest is readable for all. What only root may read of processes the supervisor does not
    // see either, and a rule is to apply here as it does there.
    privileges::keep_none();
    let mut processes = Processes::default();
    processes.refresh();
    output::print(report(&rules, &processes, &Users::read()).trim_end());
    Ok(())
}

/// The rules that are installed with this program.
fn shipped() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().unwrap_or_default();
    let prefix = own.parent().and_then(|bin| bin.parent()).unwrap_or(&own);
    let folder = prefix.join("share/scx_pandemonium_user/rules");
    match folder.is_dir() {
        true => Ok(folder),
        false => Err(Failure::Usage(format!(
            "no rules are installed in {}: name a file with --rules FILE",
            folder.display()
        ))),
    }
}

fn report(rules: &Rules, processes: &Processes, users: &Users) -> String {
    let found = rules.explain(processes, users);
    let mut text = format!("{:>8} {:<12} {:<15} {:<28} RULE\n", "PID", "USER", "NAME", "TREATMENT");
    for found in &found {
        let (process, rule) = (found.process, &rules.rules()[found.rule]);
        let treatment = match found.withheld {
            true => "none: it would raise it".into(),
            false => demand_text(rule),
        };
        text += &format!(
            "{:>8} {:<12} {:<15} {treatment:<28} {} ({})\n",
            process.pid,
            one_line(&users.name(process.user)),
            one_line(&process.name),
            one_line(&rule.about),
            rule.place
        );
    }
    let withheld = found.iter().filter(|found| found.withheld).count();
    let treated = found.len() - withheld;
    let (count, all) = (rules.rules().len(), processes.iter().count());
    text += &format!("{count} rules; {treated} of {all} processes are treated\n");
    if withheld > 0 {
        text += &format!(
            "{withheld} times a rule would raise a process of a user that raise_users does not \
             list\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_shows_the_rule_of_a_process_and_what_is_withheld() {
        let mut child = std::process::Command::new("sleep").arg("61").spawn().unwrap();
        let own = |demand| {
            let text = format!(
                "raise_users = 'nobody'\n[[rule]]\nabout = 'sleepers'\ncommand = 'sleep 61'\n\
                 {demand}\n"
            );
            let rules = Rules::parse("x.toml", &text).unwrap();
            let mut processes = Processes::default();
            processes.refresh();
            report(&rules, &processes, &Users::read())
        };
        let (lowered, raised) = (own("tier_at_most = 'batch'"), own("tier = 'lat-critical'"));
        child.kill().unwrap();
        child.wait().unwrap();
        let pid = child.id().to_string();
        let line = |text: &str| text.lines().find(|line| line.contains(&pid)).unwrap().to_owned();
        let line_of_lowered = line(&lowered);
        assert!(line_of_lowered.contains("at most batch"), "{lowered}");
        assert!(line_of_lowered.ends_with("sleepers (x.toml:2)"), "{lowered}");
        assert!(line(&raised).contains("none: it would raise it"), "{raised}");
        assert!(raised.contains("1 rules; 0 of ") && raised.contains("raise_users"), "{raised}");
    }
}
