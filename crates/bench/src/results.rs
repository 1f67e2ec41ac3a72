// SPDX-License-Identifier: GPL-2.0-only

//! The results file: one JSON file with every figure of every iteration, and everything needed to
//! repeat the run.
//!
//! The file is rewritten after each phase, so that a failure loses nothing. Reading returns either
//! results that pass [`Results::check`] or an error of one sentence.

use anyhow::{Context, Result, anyhow, bail, ensure};
use pandemonium_host::durable::{self, Existing};
use pandemonium_host::trust::open_regular;
use pandemonium_statistics::figure::{Better, Curve, Figure, Unit};
use pandemonium_statistics::mix::Part;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Identifies a results file.
const FORMAT: &str = "scx_pandemonium_user bench";
/// The version of the format. It rises when an older program would misread a file.
const VERSION: u32 = 1;
/// The largest file that is written or read. It bounds the memory that a hostile file can take;
/// some 3000 runs of ten figures fit.
const SIZE_MAX: u64 = 8 << 20;
/// Longest text in a file. The last output of a failed scheduler is the longest there is.
const TEXT_MAX: usize = 64 << 10;

/// Bounds on the report that is made of a file, for the same reason. No real file comes near them.
const SCHEDULERS_MAX: usize = 16;
const PLACES_MAX: usize = 1_000;
const CELLS_MAX: usize = 20_000;
const CURVES_MAX: usize = 16;
const BUCKETS_MAX: usize = 4_096;
const PARTS_MAX: usize = 64;

/// Old names of phases, which stored files may have, and their names now.
const RENAMED_PHASES: [(&str, &str); 1] = [("births", "new-tasks")];

/// The name under which a phase is known now.
pub fn current_phase(name: &str) -> &str {
    RENAMED_PHASES.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new)
}

/// The name of the kernel's scheduler, with which the others are compared.
pub const KERNEL: &str = "kernel";

/// A results file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Always [`FORMAT`] and [`VERSION`].
    format: String,
    version: u32,
    /// The command line that repeats the run.
    pub command: String,
    /// The seed of everything that is pseudo-random.
    pub seed: u64,
    /// When the run started, in seconds since 1970.
    pub started: u64,
    /// Whether the run reached its end, with or without failures.
    pub complete: bool,
    pub machine: Machine,
    /// In the order of the tables. The others are compared with the first.
    pub schedulers: Vec<Scheduler>,
    pub runs: Vec<Run>,
    pub failures: Vec<Failure>,
}

/// The machine of the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// `uname -r`.
    pub kernel: String,
    /// The lines of the kernel's configuration that matter to scheduling.
    pub config: Vec<String>,
    pub hz: u32,
    pub cpu_model: String,
    /// Number of CPUs of the machine. Each run has the number that it used.
    pub cpus: u32,
    pub clock: Clock,
    /// Versions of programs, compilers and QEMU.
    pub versions: BTreeMap<String, String>,
}

/// The clock of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Virtual time, which counts instructions, so that the load of the host does not matter.
    Exact,
    /// Real time.
    Real,
}

/// A scheduler that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduler {
    /// Unique and without spaces: [`KERNEL`], or the name on the command line.
    pub name: String,
    pub version: String,
    /// The command that started it; empty for the kernel's scheduler.
    pub command: String,
}

/// One iteration of one phase under one scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub cpus: u32,
    /// The phase's name, without spaces: `wake`, `burst`, ...
    pub phase: String,
    /// The scheduler's name.
    pub scheduler: String,
    /// Counts from 0, without the warm-up. The same iteration of two schedulers is measured one
    /// after the other.
    pub iteration: u32,
    pub figures: Vec<Figure>,
    pub curves: Vec<Curve>,
    /// The parts of a mix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// A scheduler or a phase that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub scheduler: String,
    /// `None` if the failure came before any phase.
    pub cpus: Option<u32>,
    pub phase: Option<String>,
    /// The error, with the last output of the scheduler or the phase.
    pub words: String,
}

impl Results {
    /// Results without runs.
    pub fn new(
        command: String,
        seed: u64,
        started: u64,
        machine: Machine,
        schedulers: Vec<Scheduler>,
    ) -> Results {
        Results {
            format: FORMAT.into(),
            version: VERSION,
            command,
            seed,
            started,
            complete: false,
            machine,
            schedulers,
            runs: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Checks everything that the rest of the program relies on.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.schedulers.is_empty(), "it names no scheduler");
        ensure!(self.schedulers.len() <= SCHEDULERS_MAX, "it names too many schedulers");
        ensure!(self.command.len() <= TEXT_MAX, "its command is too long");
        let mut names = BTreeSet::new();
        for scheduler in &self.schedulers {
            let name = &scheduler.name;
            check_name(name)?;
            ensure!(names.insert(name.as_str()), "it has two schedulers named {name:?}");
        }
        let known = |name: &str| match names.contains(name) {
            true => Ok(()),
            false => Err(anyhow!("it has no scheduler named {name:?}")),
        };
        let mut seen = BTreeSet::new();
        let mut figures = BTreeMap::new();
        for run in &self.runs {
            known(&run.scheduler)?;
            run.check(&mut figures).with_context(|| format!("in a run of {:?}", run.phase))?;
            let key = (run.cpus, &run.phase, &run.scheduler, run.iteration);
            ensure!(seen.insert(key), "it has the same run twice: {key:?}");
        }
        self.check_size()?;
        for failure in &self.failures {
            known(&failure.scheduler)?;
            ensure!(failure.words.len() <= TEXT_MAX, "a failure has too many words");
        }
        Ok(())
    }

    /// Bounds the size of the report.
    fn check_size(&self) -> Result<()> {
        let places: BTreeSet<_> = self.runs.iter().map(|run| (&run.phase, run.cpus)).collect();
        let mut rows = BTreeSet::new();
        for run in &self.runs {
            let named = run.figures.iter().map(|figure| (&run.phase, run.cpus, &figure.name));
            rows.extend(named);
        }
        let cells = rows.len() * self.schedulers.len();
        ensure!(places.len() <= PLACES_MAX && cells <= CELLS_MAX, "it has too many figures");
        Ok(())
    }
}

impl Run {
    /// `known` has the unit and direction of every figure so far: they must be the same everywhere.
    fn check<'a>(&'a self, known: &mut BTreeMap<(&'a str, &'a str), (Unit, Better)>) -> Result<()> {
        check_name(&self.phase)?;
        ensure!(self.cpus > 0, "no CPU was used");
        ensure!(!self.figures.is_empty(), "nothing was measured");
        ensure!(self.curves.len() <= CURVES_MAX, "it has too many curves");
        ensure!(self.parts.len() <= PARTS_MAX, "it has too many parts");
        for part in &self.parts {
            ensure!(part.is_sound() && part.name.len() <= 64, "a part of it is not sound");
        }
        let mut names = BTreeSet::new();
        for figure in &self.figures {
            let name = figure.name.as_str();
            check_name(name)?;
            ensure!(names.insert(name), "{name:?} appears twice");
            ensure!(figure.value.is_finite(), "{name:?} is no number");
            let meaning = (figure.unit, figure.better);
            let before = known.insert((&self.phase, name), meaning);
            ensure!(before.is_none_or(|before| before == meaning), "{name:?} changes its meaning");
        }
        names.clear();
        for curve in &self.curves {
            let name = curve.name.as_str();
            check_name(name)?;
            ensure!(names.insert(name), "{name:?} appears twice");
            ensure!(curve.unit.nanoseconds().is_some(), "{name:?} is not in a unit of time");
            ensure!(curve.buckets.len() <= BUCKETS_MAX, "{name:?} has too many buckets");
            let ascends = curve.buckets.is_sorted_by(|one, next| one.0 < next.0);
            ensure!(ascends, "the edges of {name:?} do not ascend");
            let total = curve.buckets.iter().try_fold(0u64, |sum, (_, n)| sum.checked_add(*n));
            ensure!(total.is_some(), "{name:?} counts too much");
        }
        Ok(())
    }
}

impl Failure {
    /// The scheduler, the phase and the CPUs, with the error indented below.
    pub fn sentence(&self) -> String {
        let phase = self.phase.as_ref().map_or(String::new(), |phase| format!(" in {phase}"));
        let cpus = self.cpus.map_or(String::new(), |cpus| format!(" on {cpus} CPUs"));
        let words: String = self.words.lines().map(|line| format!("\n  {line}")).collect();
        format!("{}{phase}{cpus}{words}", self.scheduler)
    }
}

/// Names appear in tables, in queries and in other formats, so few characters are allowed.
fn check_name(name: &str) -> Result<()> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "_.-+".contains(c);
    let long = name.is_empty() || name.len() > 64;
    ensure!(!long && name.chars().all(fine), "{name:?} is no name");
    Ok(())
}

/// A results file that is being written.
pub struct Store {
    directory: File,
    name: OsString,
    /// As the user wrote it, for messages.
    path: PathBuf,
}

impl Store {
    /// Creates the file with these first results. An existing file or link is never overwritten,
    /// because it may belong to another user.
    pub fn create(path: &Path, results: &Results) -> Result<Store> {
        let create = || -> Result<Store> {
            let name = path.file_name().context("the path names no file")?;
            let real = durable::parent(path).canonicalize()?;
            let directory = durable::directory(&real)?;
            let store = Store { directory, name: name.into(), path: path.into() };
            store.put(results, Existing::Kept)?;
            Ok(store)
        };
        create().with_context(|| format!("the results {} cannot be written", path.display()))
    }

    /// Replaces the file. After a crash there is either the old file or the new one.
    pub fn save(&self, results: &Results) -> Result<()> {
        self.put(results, Existing::Replaced)
            .with_context(|| format!("the results {} cannot be written", self.path.display()))
    }

    fn put(&self, results: &Results, existing: Existing) -> Result<()> {
        results.check()?;
        let text = serde_json::to_string(results)?;
        ensure!(text.len() as u64 <= SIZE_MAX, "they have more than {SIZE_MAX} bytes");
        durable::put(&self.directory, &self.name, existing, |file| file.write_all(text.as_bytes()))
    }
}

/// Reads and checks a results file.
pub fn read(path: &Path) -> Result<Results> {
    let reading = || format!("the results {} cannot be read", path.display());
    let text = text(path).with_context(reading)?;
    parse(&text).with_context(reading)
}

/// The text of a regular file of at most [`SIZE_MAX`] bytes.
pub fn text(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(SIZE_MAX + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= SIZE_MAX, "it has more than {SIZE_MAX} bytes");
    String::from_utf8(bytes).map_err(|_| anyhow!("it is not text"))
}

/// The results that a text holds, checked.
pub fn parse(text: &str) -> Result<Results> {
    #[derive(Deserialize)]
    struct Header {
        format: String,
        version: u32,
    }
    let header: Header = match serde_json::from_str(text) {
        Ok(header) => header,
        Err(error) if error.is_eof() && !text.trim().is_empty() => bail!("it ends too early"),
        Err(_) => bail!("it is no results file of `bench run`"),
    };
    ensure!(header.format == FORMAT, "it is no results file of `bench run`");
    let version = header.version;
    ensure!(
        version <= VERSION,
        "it was written by a newer scx_pandemonium_user (format {version}, and this one reads \
         formats up to {VERSION})"
    );
    let mut results: Results = serde_json::from_str(text).context("it is damaged")?;
    let phases = results.runs.iter_mut().map(|run| &mut run.phase);
    for phase in phases.chain(results.failures.iter_mut().filter_map(|it| it.phase.as_mut())) {
        *phase = current_phase(phase).to_owned();
    }
    results.check().context("it is damaged")?;
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Scratch, results};
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn saved_results_are_read_back_equal() {
        let scratch = Scratch::new();
        let path = scratch.at("r.json");
        let mut all = results(2, 0.5, 1);
        let store = Store::create(&path, &all).unwrap();
        assert!(read(&path).unwrap() == all);
        all.runs.pop();
        store.save(&all).unwrap();
        assert!(read(&path).unwrap() == all);
        assert_eq!(
            fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }

    #[test]
    fn existing_files_are_not_overwritten_and_links_not_followed() {
        let scratch = Scratch::new();
        let (path, victim) = (scratch.at("r.json"), scratch.at("victim"));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &path).unwrap();
        let all = results(1, 1.0, 1);
        assert!(Store::create(&path, &all).is_err());
        assert!(Store::create(&victim, &all).is_err());
        fs::remove_file(&path).unwrap();
        let store = Store::create(&path, &all).unwrap();
        // A link that takes the file's place meanwhile is replaced, not followed.
        fs::remove_file(&path).unwrap();
        symlink(&victim, &path).unwrap();
        store.save(&all).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(read(&path).unwrap() == all);
    }

    #[test]
    fn a_bad_file_is_an_error_of_one_sentence() {
        let good = serde_json::to_string(&results(1, 1.0, 1)).unwrap();
        let sentence = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(parse(&good).is_ok());
        for foreign in ["", "hello", "[]", "{}", "{\"format\":\"x\",\"version\":1}"] {
            assert_eq!(sentence(foreign), "it is no results file of `bench run`", "{foreign:?}");
        }
        for cut in [1, good.len() / 2, good.len() - 1] {
            assert_eq!(sentence(&good[..cut]), "it ends too early", "{cut}");
        }
        let newer = good.replacen("\"version\":1", "\"version\":2", 1);
        assert!(sentence(&newer).contains("newer"), "{}", sentence(&newer));
        for (from, to, why) in [
            ("\"cpus\":2", "\"cpus\":-2", "it is damaged"),
            ("\"cpus\":2", "\"cpus\":0", "no CPU"),
            ("\"value\":0.0", "\"value\":1e999", "it is damaged"),
            ("\"name\":\"ours\"", "\"name\":\"o\\u001b[2J\"", "is no name"),
            ("\"name\":\"ours\"", "\"name\":\"peer\"", "two schedulers"),
            ("\"scheduler\":\"ours\"", "\"scheduler\":\"theirs\"", "no scheduler named"),
            ("\"iteration\":0", "\"iteration\":0,\"iteration\":1", "it is damaged"),
            ("\"name\":\"p99\"", "\"name\":\"p50\"", "twice"),
            ("\"unit\":\"us\"", "\"unit\":\"ms\"", "changes its meaning"),
            ("\"unit\":\"ns\"", "\"unit\":\"%\"", "unit of time"),
            (",900]", ",18446744073709551615]", "counts too much"),
        ] {
            assert!(good.contains(from), "{from}");
            let text = sentence(&good.replacen(from, to, 1));
            assert!(text.contains(why) && !text.contains('\n'), "{to}: {text}");
        }
    }

    #[test]
    fn old_names_of_phases_are_read_as_the_current_ones() {
        let text = serde_json::to_string(&results(1, 1.0, 1)).unwrap();
        let old = parse(&text.replace("\"burst\"", "\"births\"")).unwrap();
        let new = parse(&text.replace("\"burst\"", "\"new-tasks\"")).unwrap();
        assert!(old == new && old.runs.iter().any(|run| run.phase == "new-tasks"));
    }

    #[test]
    fn results_that_fail_the_check_are_not_written() {
        let scratch = Scratch::new();
        let path = scratch.at("r.json");
        let mut all = results(1, 1.0, 1);
        let store = Store::create(&path, &all).unwrap();
        let before = all.clone();
        all.runs[0].figures[0].value = f64::NAN;
        assert!(store.save(&all).is_err());
        all = before.clone();
        all.command = "x".repeat(TEXT_MAX + 1);
        assert!(store.save(&all).is_err());
        assert!(read(&path).unwrap() == before, "the file is unchanged");
    }

    #[test]
    fn only_regular_files_up_to_the_size_limit_are_read() {
        let scratch = Scratch::new();
        assert!(read(Path::new("/dev/zero")).is_err());
        assert!(read(&scratch.at("")).is_err());
        let big = scratch.at("big");
        File::create(&big).unwrap().set_len(SIZE_MAX + 1).unwrap();
        assert!(format!("{:#}", read(&big).unwrap_err()).contains("bytes"));
    }
}
