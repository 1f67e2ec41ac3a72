// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_lab search`: looks for knobs that are better than the defaults, and says what is
//! sure of them.
//!
//! Settings compete on even seeds; what is left is played on odd ones, which had no part in the
//! choice. Every run is judged against the same run with the defaults.

mod halving;
mod journal;
pub mod metric;
mod space;
mod verdict;

use crate::cli::SearchArgs;
use crate::mean::Mean;
use crate::mix::{Mix, mix};
use crate::offered::catalog;
use crate::parallel::play_each;
use crate::play::Case;
use crate::table::{Cell, Table};
use crate::what::What;
use anyhow::{Result, bail, ensure};
use halving::{Plan, Step};
use journal::{Journal, Outcome, Run};
use metric::{Hold, Metric, losses};
use pandemonium_print::print_error;
use pandemonium_sim::random::Random;
use pandemonium_statistics::mix::Seeds;
use space::{Setting, Space};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// The seeds of the last comparison before a claim begin here.
const HELD_FROM: u64 = 10_000;
/// The seed of what the tasks of a mix draw while they run; the mix itself has its own.
const MIX_SEED: u64 = 1;
/// Even seeds of a workload that is no mix.
const WORKLOAD_SEEDS: [u64; 10] = [2, 4, 6, 8, 10, 12, 14, 16, 18, 20];
/// Fewer seeds than this say nothing about chance.
const SEEDS_MIN: usize = 10;
/// What a metric costs that is beyond what it must hold, in terms of the objective. Chosen: so much
/// that no gain is worth it, and so little that a bit of noise on few seeds is no end.
const PENALTY: f64 = 10.0;

pub fn run(args: &SearchArgs) -> Result<ExitCode> {
    let policy = args.policy.unwrap_or_else(|| catalog().default_policy());
    let space = Space::new(policy, &args.knobs)?;
    let mut units = units(&args.on)?;
    shuffle(&mut units, args.seed);
    let journal = match &args.journal {
        Some(path) => Journal::open(path, policy.name)?,
        None => Journal::default(),
    };
    let mut bench = Bench { space, cpus: args.cpus.clone(), journal, bases: BTreeMap::new() };
    bench.check_journal()?;
    let plan = Plan {
        rounds: args.rounds as usize,
        settings: args.settings as usize,
        seeds: units.len(),
        seed: args.seed,
    };
    let columns = ["round", "settings", "seeds", "best", "setting"];
    let title = format!(
        "{}: tried on even seeds, {} below 1 is better",
        policy.name,
        args.objective.name()
    );
    let mut tried = Table::new(title, &columns);
    let space = bench.space.clone();
    let score = |settings: &[Setting], seeds: usize| {
        let texts: Vec<String> = settings.iter().map(|it| space.text(it)).collect();
        bench.scores(&texts, &units[..seeds], args.objective, &args.hold)
    };
    let tell = |step: &Step| {
        let row = row(&space, step);
        let words: Vec<String> = row.iter().map(Cell::show).collect();
        print_error(&format!(
            "round {} of {}: {} settings on {} seeds, best {} with {}",
            words[0], plan.rounds, words[1], words[2], words[3], words[4]
        ));
        tried.row(row);
    };
    let hint = if args.journal.is_none() { "; with --journal FILE it can go on later" } else { "" };
    print_error(&format!(
        "{}: {} settings in {} rounds, on up to {} workloads{hint}",
        policy.name, plan.settings, plan.rounds, plan.seeds
    ));
    let best = halving::search(&space, &plan, score, tell)?;
    let better = best.iter().filter(|(_, score)| *score < 0.0);
    let survivors: Vec<String> = better.map(|(setting, _)| space.text(setting)).collect();
    let odd: Vec<Unit> = units.iter().map(Unit::odd).collect();
    bench.play(&survivors, &odd)?;
    let judged = survivors.iter().map(|setting| bench.judged(setting, &odd));
    verdict::print(args, &tried, odd.len(), &survivors, &judged.collect::<Vec<_>>());
    Ok(ExitCode::SUCCESS)
}

fn row(space: &Space, step: &Step) -> Vec<Cell> {
    let best = step.ranked.first();
    let score = best.map_or("-".to_owned(), |(_, score)| format!("{:.3}", score.exp()));
    let text = best.map_or("-".to_owned(), |(setting, _)| space.text(setting));
    let count = |count: usize| Cell::Count(count as u64);
    vec![count(step.round), count(step.ranked.len()), count(step.seeds), score.into(), text.into()]
}

/// What is played on each number of CPUs, under the defaults and under settings.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unit {
    workload: String,
    seed: u64,
    mix: Option<u64>,
}

impl Unit {
    fn mix(number: u64) -> Unit {
        Unit { workload: format!("mix-{number}"), seed: MIX_SEED, mix: Some(number) }
    }

    /// The same with the odd seed behind the even one.
    fn odd(&self) -> Unit {
        match self.mix {
            Some(number) => Unit::mix(number + 1),
            None => Unit { seed: self.seed + 1, ..self.clone() },
        }
    }
}

/// Mixes of the named seeds, and some seeds of each named workload.
fn units(on: &[String]) -> Result<Vec<Unit>> {
    let mut units = Vec::new();
    for name in on {
        if let Ok(seeds) = name.parse::<Seeds>() {
            let mut seeds = seeds.iter().peekable();
            let even = seeds.peek().is_some_and(|first| first % 2 == 0);
            ensure!(even, "{name}: expected even seeds; the odd ones check what was found");
            units.extend(seeds.map(Unit::mix));
        } else {
            ensure!(!name.starts_with("mix-"), "{name}: expected seeds of mixes as 2..100");
            let of = |seed| Unit { workload: name.clone(), seed, mix: None };
            units.extend(WORKLOAD_SEEDS.map(of));
        }
    }
    if units.iter().any(|unit| unit.mix.is_some_and(|number| number >= HELD_FROM)) {
        bail!("expected seeds below {HELD_FROM}: later ones are for the last comparison");
    }
    ensure!(
        units.len() >= SEEDS_MIN,
        "expected at least {SEEDS_MIN} seeds, as in 2..100: fewer say nothing about chance"
    );
    Ok(units)
}

/// Few seeds are to say something about all.
fn shuffle(units: &mut [Unit], seed: u64) {
    let mut random = Random::new(seed);
    for last in (1..units.len()).rev() {
        units.swap(last, random.below(last as u64 + 1) as usize);
    }
}

/// Plays settings, and knows what came of those that were played before.
struct Bench {
    space: Space,
    cpus: Vec<u32>,
    journal: Journal,
    /// Runs with the defaults.
    bases: BTreeMap<Run, Mix>,
}

impl Bench {
    fn runs<'a>(&'a self, setting: &'a str, units: &'a [Unit]) -> impl Iterator<Item = Run> + 'a {
        units
            .iter()
            .flat_map(move |unit| self.cpus.iter().map(move |cpus| unit.run(*cpus, setting)))
    }

    fn case(&self, run: &Run) -> Result<Case> {
        let set = run.setting.split_whitespace().map(str::to_owned).collect();
        let what = What { set, ..What::named(&run.workload, run.cpus) };
        Case::new(&what, self.space.policy, run.seed)
    }

    /// Plays what is not known yet.
    fn play(&mut self, settings: &[String], units: &[Unit]) -> Result<()> {
        let all = settings.iter().flat_map(|setting| self.runs(setting, units));
        let new: Vec<Run> = all.filter(|run| self.journal.outcome(run).is_none()).collect();
        let played = self.outcomes(&new)?;
        self.journal.remember(new.into_iter().zip(played));
        Ok(())
    }

    /// Plays runs, the same with the defaults before, and writes what came of them.
    fn outcomes(&mut self, runs: &[Run]) -> Result<Vec<Outcome>> {
        let mut bases: Vec<Run> = runs.iter().map(Run::base).collect();
        bases.sort_unstable();
        bases.dedup();
        bases.retain(|run| !self.bases.contains_key(run));
        let cases: Vec<Case> = bases.iter().map(|run| self.case(run)).collect::<Result<_>>()?;
        let mixes = play_each(&cases, |_, case, played| mix(case, &played));
        self.bases.extend(bases.into_iter().zip(mixes));
        let cases: Vec<Case> = runs.iter().map(|run| self.case(run)).collect::<Result<_>>()?;
        let outcomes = play_each(&cases, |number, case, played| {
            let run = &runs[number];
            let outcome = match played.tried.verdict {
                Ok(()) => Some(losses(&self.bases[&run.base()], &mix(case, &played))?),
                Err(_) => None,
            };
            self.journal.write(run, &outcome)?;
            Ok(outcome)
        });
        outcomes.into_iter().collect()
    }

    /// Whether a run of the journal still has the same outcome: a search that goes on under another
    /// policy would compare what cannot be compared.
    fn check_journal(&mut self) -> Result<()> {
        let Some((run, before)) = self.journal.any().map(|(run, it)| (run.clone(), *it)) else {
            return Ok(());
        };
        let silent = std::mem::take(&mut self.journal);
        let now = self.outcomes(std::slice::from_ref(&run))?;
        self.journal = silent;
        ensure!(
            now[0] == before,
            "the policy or the simulator has changed since the journal was written: choose another \
             file"
        );
        Ok(())
    }

    /// The mean loss of each metric, and the spread of `errors` standard errors over the seeds;
    /// `None` if a checker complained. The CPU counts of a seed are one value.
    fn means(&self, setting: &str, units: &[Unit], errors: impl Fn(usize) -> f64) -> Option<Means> {
        let mut values = [const { Vec::new() }; Metric::ALL.len()];
        for unit in units {
            let runs = self.runs(setting, std::slice::from_ref(unit));
            let losses: Vec<_> =
                runs.map(|run| *self.journal.outcome(&run)?).collect::<Option<_>>()?;
            for (metric, values) in values.iter_mut().enumerate() {
                let of_unit: Vec<f64> = losses.iter().filter_map(|one| one[metric]).collect();
                values.extend(Mean::of(&of_unit, 0.0).map(|mean| mean.of));
            }
        }
        Some(values.map(|values| Mean::of(&values, errors(values.len()))))
    }

    fn judged(&self, setting: &str, units: &[Unit]) -> Option<Means> {
        self.means(setting, units, verdict::errors)
    }

    /// The score of each setting: what it loses of the objective, and a penalty for what it does
    /// not hold.
    fn scores(
        &mut self,
        settings: &[String],
        units: &[Unit],
        objective: Metric,
        holds: &[Hold],
    ) -> Result<Vec<f64>> {
        self.play(settings, units)?;
        let score = |setting: &String| {
            let Some(means) = self.means(setting, units, |_| 0.0) else { return Ok(f64::INFINITY) };
            let Some(mean) = means[objective as usize] else {
                bail!("{}: no part of these workloads is judged by it", objective.name());
            };
            let beyond = holds.iter().filter_map(|hold| {
                Some((means[hold.metric as usize]?.of - hold.allowed()).max(0.0))
            });
            Ok(mean.of + PENALTY * beyond.sum::<f64>())
        };
        settings.iter().map(score).collect()
    }
}

/// A mean for each of [`Metric::ALL`].
type Means = [Option<Mean>; Metric::ALL.len()];

impl Unit {
    fn run(&self, cpus: u32, setting: &str) -> Run {
        let Unit { workload, seed, .. } = self.clone();
        Run { workload, cpus, seed, setting: setting.to_owned() }
    }
}

impl Run {
    fn base(&self) -> Run {
        Run { setting: String::new(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::metric::hold;
    use std::fs;

    fn bench(journal: Journal) -> Bench {
        let space = Space::new(catalog().default_policy(), &[]).unwrap();
        Bench { space, cpus: vec![1, 2], journal, bases: BTreeMap::new() }
    }

    #[test]
    fn even_seeds_search_the_odd_ones_behind_them_check_and_none_is_a_held_one() {
        let units = units(&["2..40".into(), "wake".into()]).unwrap();
        let odd: Vec<Unit> = units.iter().map(Unit::odd).collect();
        assert_eq!((units.len(), &*units[0].workload, &*odd[0].workload), (30, "mix-2", "mix-3"));
        assert_eq!((&*odd[29].workload, odd[29].seed), ("wake", 21));
        for (wrong, why) in [
            ("3..41", "even"),
            ("10000..10100", "below"),
            ("2..6", "at least 10"),
            ("mix-10001", "as 2..100"),
        ] {
            let error = super::units(&[wrong.into()]).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    /// A slice of 100 ms for all is worse for what is noticed; a hold makes a score worse.
    #[test]
    fn settings_are_scored_against_the_defaults_and_a_journal_gives_the_same_scores() {
        let path = std::env::temp_dir().join(format!("search-{}", std::process::id()));
        let settings = ["slice_us=100000".to_owned(), "burst_slice_us=1000".to_owned()];
        let units: Vec<Unit> = [2, 4].map(Unit::mix).to_vec();
        let held = hold("p99<=1.001").unwrap();
        let scores = |bench: &mut Bench, holds: &[Hold]| {
            bench.scores(&settings, &units, Metric::P99, holds).unwrap()
        };
        let mut first = bench(Journal::open(&path, "pandemonium").unwrap());
        let plain = scores(&mut first, &[]);
        assert!(plain[0] > 0.05 && plain[1] == 0.0, "{plain:?}");
        drop(first);
        let mut second = bench(Journal::open(&path, "pandemonium").unwrap());
        second.check_journal().unwrap();
        assert_eq!(scores(&mut second, &[]), plain);
        assert!(scores(&mut second, &[held])[0] > 5.0 * plain[0]);
        drop(second);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 9, "a run is written once");
        let is_first = |line: &&str| line.starts_with("mix-2\t1\t1\tburst");
        let line = text.lines().find(is_first).unwrap();
        let changed = line.rsplit_once('\t').unwrap().0.to_owned() + "\t9 9 9 9 9";
        fs::write(&path, text.replace(line, &changed)).unwrap();
        let mut third = bench(Journal::open(&path, "pandemonium").unwrap());
        assert!(third.check_journal().is_err());
        fs::remove_file(path).unwrap();
    }
}
