// SPDX-License-Identifier: GPL-2.0-only

//! `bench diff`: shows which figures changed between two results files, outside the noise.

use super::cli::DiffArguments;
use super::digest::show;
use super::results::{self, KERNEL, Results};
use super::words::{clean, times};
use anyhow::{Result, bail, ensure};
use pandemonium_host::print;
use pandemonium_statistics::figure::{Better, Unit};
use pandemonium_statistics::sample::Sample;
use pandemonium_statistics::table;
use pandemonium_statistics::verdict::{self, Pair, Verdict, Why, iterations_needed};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// Runs the command. The exit code is 1 if there is a regression.
pub fn run(arguments: &DiffArguments) -> Result<ExitCode> {
    let (old, new) = (results::read(&arguments.old)?, results::read(&arguments.new)?);
    let diff = Diff::new(&old, &new, &arguments.scheduler)?;
    print::print_bytes(clean(&diff.text()).as_bytes());
    Ok(ExitCode::from(u8::from(diff.is_regression())))
}

/// Identifies a figure: scheduler, phase, number of CPUs, name.
type Key<'a> = (&'a str, &'a str, u32, &'a str);

/// One figure before and after.
struct Change<'a> {
    key: Key<'a>,
    unit: Unit,
    better: Better,
    before: Sample,
    after: Sample,
    verdict: Verdict,
}

/// The comparison of two results files.
struct Diff<'a> {
    /// Figures of the schedulers under test.
    changes: Vec<Change<'a>>,
    /// Figures of the kernel's scheduler, which show whether the machine itself changed.
    control: Vec<Change<'a>>,
    /// Failures that only the new file has.
    broken: Vec<String>,
    /// Differences between the machines and versions.
    differences: Vec<String>,
    /// The new run ended early.
    incomplete: bool,
    /// Number of figures that only one of the files has.
    unmatched: usize,
}

impl<'a> Diff<'a> {
    fn new(old: &'a Results, new: &'a Results, only: &[String]) -> Result<Diff<'a>> {
        ensure!(
            old.machine.clock == new.machine.clock,
            "the files cannot be compared: one is in virtual time, the other in real time"
        );
        for name in only {
            let known = |results: &Results| results.schedulers.iter().any(|it| it.name == *name);
            ensure!(known(old) && known(new), "no scheduler in both files is named {name:?}");
        }
        let wanted = |name: &str| only.is_empty() || only.iter().any(|other| other == name);
        let (before, after) = (figures(old), figures(new));
        let mut changes = Vec::new();
        let mut unmatched = after.keys().filter(|key| !before.contains_key(*key)).count();
        for (key, (unit, better, values)) in &before {
            let Some((unit_now, better_now, values_now)) = after.get(key) else {
                unmatched += 1;
                continue;
            };
            if (unit, better) != (unit_now, better_now) {
                bail!("the files cannot be compared: {} of {} changed its meaning", key.3, key.1);
            }
            changes.push(Change {
                key: *key,
                unit: *unit,
                better: *better,
                before: Sample::new(values.clone()),
                after: Sample::new(values_now.clone()),
                verdict: Verdict::None(Why::Missing),
            });
        }
        let (mut control, mut changes): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|change| change.key.0 == KERNEL);
        // With `--scheduler kernel`, the kernel's scheduler is under test.
        if only.iter().any(|name| name == KERNEL) {
            changes.append(&mut control);
        }
        changes.retain(|change| wanted(change.key.0));
        judge(&mut changes);
        judge(&mut control);
        let diff = Diff {
            changes,
            control,
            broken: broken(old, new, wanted),
            differences: differences(old, new),
            incomplete: !new.complete,
            unmatched,
        };
        diff.check()?;
        Ok(diff)
    }

    /// Refuses files in which no difference could be significant, because their empty report would
    /// be taken for good news.
    fn check(&self) -> Result<()> {
        if !self.broken.is_empty() {
            return Ok(());
        }
        ensure!(!self.changes.is_empty(), "the files cannot be compared: they share no figure");
        let few = |change: &&Change| change.verdict == Verdict::None(Why::Few);
        let few = self.changes.iter().filter(few).count();
        let same = |change: &Change| change.verdict == Verdict::None(Why::Same);
        let (all, same) = (self.changes.len(), self.changes.iter().filter(|it| same(it)).count());
        ensure!(
            few == 0 || few + same < all,
            "the files cannot be compared: they have too few iterations; with {} in both, a single \
             difference among {all} can be significant",
            iterations_needed(all)
        );
        Ok(())
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.changes.iter().filter(|change| change.verdict == verdict).count()
    }

    fn is_regression(&self) -> bool {
        !self.broken.is_empty() || self.count(Verdict::Worse) > 0
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for difference in &self.differences {
            text += &format!("differs: {difference}\n");
        }
        text += &changes_table("what changed", &self.changes);
        text += &changes_table("what changed under the kernel's scheduler", &self.control);
        for broken in &self.broken {
            text += &format!("fails now: {broken}\n");
        }
        let none = |why| self.count(Verdict::None(why));
        text += &format!(
            "{} figures compared: {} better, {} worse, {} in the noise, {} changed too little to \
             matter, {} the same, {} with too few iterations\n",
            self.changes.len(),
            self.count(Verdict::Better),
            self.count(Verdict::Worse),
            none(Why::Noise),
            none(Why::Small),
            none(Why::Same),
            none(Why::Few),
        );
        if self.incomplete {
            text += "the run of the new results ended early\n";
        }
        if self.unmatched > 0 {
            text += &format!("{} figures are in one of the files only\n", self.unmatched);
        }
        let moved = self.control.iter().filter(|change| change.is_significant()).count();
        if moved > 0 {
            text += &format!(
                "the kernel's scheduler changed in {moved} of {} figures: what changed may be the \
                 machine\n",
                self.control.len()
            );
        }
        text
    }
}

impl Change<'_> {
    fn pair(&self) -> Pair<'_> {
        Pair { base: &self.before, sample: &self.after, better: self.better }
    }

    fn is_significant(&self) -> bool {
        matches!(self.verdict, Verdict::Better | Verdict::Worse)
    }

    fn row(&self) -> Vec<String> {
        let (scheduler, phase, cpus, figure) = self.key;
        let (before, after) = (self.before.median(), self.after.median());
        let range = |sample: &Sample| format!("{}..{}", show(sample.least()), show(sample.most()));
        let ratio = match before == 0.0 {
            true => "-".to_owned(),
            false => times(after / before),
        };
        vec![
            format!("{scheduler} {phase} {figure}, {}, {cpus} CPUs", self.unit.name()),
            show(before),
            range(&self.before),
            show(after),
            range(&self.after),
            ratio,
            self.verdict.word().to_owned(),
        ]
    }
}

/// The significant changes as a table; empty if there is none.
fn changes_table(title: &str, changes: &[Change]) -> String {
    let significant = changes.iter().filter(|change| change.is_significant());
    let rows: Vec<Vec<String>> = significant.map(Change::row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let columns = ["", "before", "least..most", "after", "least..most", "x", ""];
    table::text(title, &columns, &rows) + "\n"
}

fn judge(changes: &mut [Change]) {
    let pairs: Vec<Pair> = changes.iter().map(Change::pair).collect();
    let verdicts = verdict::judge(&pairs);
    changes.iter_mut().zip(verdicts).for_each(|(change, verdict)| change.verdict = verdict);
}

fn figures(results: &Results) -> BTreeMap<Key<'_>, (Unit, Better, Vec<f64>)> {
    let mut figures: BTreeMap<Key, (Unit, Better, Vec<f64>)> = BTreeMap::new();
    for run in &results.runs {
        for figure in &run.figures {
            let key = (run.scheduler.as_str(), run.phase.as_str(), run.cpus, figure.name.as_str());
            let known = figures.entry(key);
            let (_, _, values) = known.or_insert((figure.unit, figure.better, Vec::new()));
            values.push(figure.value);
        }
    }
    figures
}

/// Failures of the new file in phases in which the old file has none.
fn broken(old: &Results, new: &Results, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let place = |failure: &results::Failure| {
        (failure.scheduler.clone(), failure.phase.clone(), failure.cpus)
    };
    let before: BTreeSet<_> = old.failures.iter().map(place).collect();
    let fresh = new.failures.iter().filter(|it| wanted(&it.scheduler) && it.scheduler != KERNEL);
    let fresh = fresh.filter(|failure| !before.contains(&place(failure)));
    fresh.map(results::Failure::sentence).collect()
}

/// What differs besides the figures: the machine, and the versions and commands of schedulers.
fn differences(old: &Results, new: &Results) -> Vec<String> {
    let (was, is) = (&old.machine, &new.machine);
    let mut pairs = vec![
        ("kernel".to_owned(), was.kernel.clone(), is.kernel.clone()),
        ("HZ".to_owned(), was.hz.to_string(), is.hz.to_string()),
        ("CPU".to_owned(), was.cpu_model.clone(), is.cpu_model.clone()),
        ("CPUs".to_owned(), was.cpus.to_string(), is.cpus.to_string()),
        ("config".to_owned(), was.config.join(" "), is.config.join(" ")),
    ];
    let names: BTreeSet<&String> = was.versions.keys().chain(is.versions.keys()).collect();
    for name in names {
        let version = |results: &Results| results.machine.versions.get(name).cloned();
        let (was, is) = (version(old).unwrap_or_default(), version(new).unwrap_or_default());
        pairs.push((name.clone(), was, is));
    }
    for now in &new.schedulers {
        if let Some(before) = old.schedulers.iter().find(|before| before.name == now.name) {
            let described = |it: &results::Scheduler| format!("{} {}", it.version, it.command);
            pairs.push((now.name.clone(), described(before), described(now)));
        }
    }
    pairs.retain(|(_, was, is)| was != is);
    let show = |text: &str| if text.trim().is_empty() { "nothing".into() } else { text.to_owned() };
    let sentence = |(name, was, is): &(String, String, String)| {
        format!("{name}: {} before, {} now", show(was.trim()), show(is.trim()))
    };
    pairs.iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::results;

    fn diff<'a>(old: &'a Results, new: &'a Results) -> Diff<'a> {
        Diff::new(old, new, &[]).unwrap()
    }

    fn refusal(old: &Results, new: &Results, only: &[String]) -> String {
        Diff::new(old, new, only).err().map(|error| format!("{error:#}")).unwrap_or_default()
    }

    #[test]
    fn a_regression_is_found_and_noise_is_not() {
        let (old, same) = (results(8, 0.5, 1), results(8, 0.5, 2));
        assert!(!diff(&old, &same).is_regression(), "{}", diff(&old, &same).text());
        let slower = results(8, 0.7, 3);
        let found = diff(&old, &slower);
        // Up to 5 % of the verdicts may be false, but the large changes of `ours` are always found.
        let ours = |diff: &Diff, verdict| {
            let ours = diff.changes.iter().filter(|change| change.key.0 == "ours");
            ours.filter(|change| change.verdict == verdict).count()
        };
        assert!(found.is_regression() && ours(&found, Verdict::Worse) == 4, "{}", found.text());
        assert!(found.text().contains("ours wake p99, us, 2 CPUs"), "{}", found.text());
        let back = diff(&slower, &old);
        assert_eq!((ours(&back, Verdict::Better), ours(&back, Verdict::Worse)), (4, 0));
        // With `--scheduler peer`, only that scheduler counts.
        let peer = ["peer".to_owned()];
        assert!(!Diff::new(&old, &slower, &peer).unwrap().is_regression());
        assert!(refusal(&old, &slower, &["unknown".to_owned()]).contains("unknown"));
    }

    #[test]
    fn a_new_failure_is_a_regression_even_without_figures() {
        let (old, mut new) = (results(8, 0.5, 1), results(8, 0.5, 2));
        new.runs.retain(|run| run.scheduler != "ours");
        new.failures.push(results::Failure {
            scheduler: "ours".into(),
            cpus: None,
            phase: None,
            words: "runnable task stall".into(),
        });
        let found = diff(&old, &new);
        assert!(found.is_regression() && found.text().contains("runnable task stall"));
        assert!(!diff(&new, &new).is_regression(), "it failed before too");
    }

    #[test]
    fn incomparable_files_are_refused_with_the_reason() {
        let old = results(8, 0.5, 1);
        let mut new = results(8, 0.5, 2);
        new.machine.clock = results::Clock::Real;
        assert!(refusal(&old, &new, &[]).contains("real time"));
        new = results(8, 0.5, 2);
        new.runs.iter_mut().for_each(|run| run.phase += "2");
        assert!(refusal(&old, &new, &[]).contains("share no figure"));
        new = results(8, 0.5, 2);
        let figures = new.runs.iter_mut().flat_map(|run| &mut run.figures);
        figures.for_each(|figure| figure.better = Better::Higher);
        assert!(refusal(&old, &new, &[]).contains("changed its meaning"));
        assert!(refusal(&results(3, 0.5, 1), &results(3, 0.9, 2), &[]).contains("iterations"));
    }

    #[test]
    fn differences_between_machines_are_listed() {
        let (old, mut new) = (results(8, 0.5, 1), results(8, 0.5, 2));
        assert!(diff(&old, &new).differences.is_empty());
        new.machine.kernel = "7.2.13".into();
        new.machine.versions.clear();
        new.complete = false;
        new.schedulers[1].version = "1.3.0".into();
        assert_eq!(
            diff(&old, &new).differences,
            [
                "kernel: 7.3.4-cloud before, 7.2.13 now",
                "qemu: 10.0.2 before, nothing now",
                "ours: 1.2.3 ours --fast before, 1.3.0 ours --fast now",
            ]
        );
        assert!(diff(&old, &new).text().contains("ended early"));
    }

    #[test]
    fn a_change_under_the_kernels_scheduler_is_a_warning_not_a_regression() {
        let (old, mut new) = (results(8, 0.5, 1), results(8, 0.5, 2));
        for run in new.runs.iter_mut().filter(|run| run.scheduler == KERNEL) {
            run.figures.iter_mut().for_each(|figure| figure.value *= 1.5);
        }
        let found = diff(&old, &new);
        assert!(!found.is_regression());
        assert!(
            found.text().contains("changed in 6 of 8 figures: what changed may be the machine")
        );
        assert!(Diff::new(&old, &new, &[KERNEL.to_owned()]).unwrap().is_regression());
    }
}
