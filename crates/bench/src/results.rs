// SPDX-License-Identifier: GPL-2.0-only

//! What a benchmark leaves behind: one JSON file with every figure of every iteration, and all that
//! is needed to repeat it.
//!
//! The file is written anew after each phase, so that a failure loses nothing. Whoever reads one
//! gets results in which everything that [`Results::check`] promises holds, or one sentence.

use anyhow::{Context, Result, anyhow, bail, ensure};
use pandemonium_host::durable::{self, Existing};
use pandemonium_statistics::figure::{Better, Curve, Figure, Unit};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What makes a file one of ours.
const FORMAT: &str = "scx_pandemonium_user bench";
/// Raised when an older program would misunderstand a file.
const VERSION: u32 = 1;
/// A larger file is neither written nor read. This program's memory is an arena of 64 MiB, in which
/// a file of any content and this size can be read; some 3000 runs of ten figures fit.
const SIZE_MAX: u64 = 8 << 20;
/// Longest text in a file; a scheduler's last words are longer than anything else.
const TEXT_MAX: usize = 64 << 10;

/// Bounds that no real file comes near: they keep what is made of a file in that memory too.
const SCHEDULERS_MAX: usize = 16;
const PLACES_MAX: usize = 1_000;
const CELLS_MAX: usize = 20_000;
const CURVES_MAX: usize = 16;
const BUCKETS_MAX: usize = 4_096;

/// The name of the kernel's own scheduler, which the others are compared with.
pub const KERNEL: &str = "kernel";

/// A results file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Always [`FORMAT`] and [`VERSION`].
    format: String,
    version: u32,
    /// The command line that repeats it.
    pub command: String,
    pub seed: u64,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// Whether everything that was asked for has been run, failures included.
    pub complete: bool,
    pub machine: Machine,
    /// In the order of the tables; the first is what the others are compared with.
    pub schedulers: Vec<Scheduler>,
    pub runs: Vec<Run>,
    pub failures: Vec<Failure>,
}

/// Where it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// `uname -r`.
    pub kernel: String,
    /// The lines of its configuration that matter to scheduling.
    pub config: Vec<String>,
    pub hz: u32,
    pub cpu_model: String,
    /// How many CPUs the machine has; how many were used is said by each run.
    pub cpus: u32,
    pub clock: Clock,
    /// Of whatever else matters: programs, compilers, QEMU.
    pub versions: BTreeMap<String, String>,
}

/// Which time the figures are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Virtual: instructions are counted, and the host's load does not matter.
    Exact,
    Real,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduler {
    /// Without blanks, and no two alike: [`KERNEL`], or as a person calls it.
    pub name: String,
    pub version: String,
    /// How it was started; empty for the kernel's own.
    pub command: String,
}

/// One phase, once, under one scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub cpus: u32,
    /// `wake`, `burst`, ...: without blanks.
    pub phase: String,
    /// The scheduler's name.
    pub scheduler: String,
    /// From 0, the warm-up not counted. Equal iterations of two schedulers are neighbours in time.
    pub iteration: u32,
    pub figures: Vec<Figure>,
    pub curves: Vec<Curve>,
}

/// What did not work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub scheduler: String,
    /// Nothing if it did not get as far as that.
    pub cpus: Option<u32>,
    pub phase: Option<String>,
    /// What the scheduler, or the phase, said itself.
    pub words: String,
}

impl Results {
    /// Results without any run yet.
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

    /// What every reader may rely on.
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
}

impl Results {
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
    /// A figure means the same wherever it appears: `known` remembers.
    fn check<'a>(&'a self, known: &mut BTreeMap<(&'a str, &'a str), (Unit, Better)>) -> Result<()> {
        check_name(&self.phase)?;
        ensure!(self.cpus > 0, "no CPU was used");
        ensure!(!self.figures.is_empty(), "nothing was measured");
        ensure!(self.curves.len() <= CURVES_MAX, "it has too many curves");
        let mut names = BTreeSet::new();
        for figure in &self.figures {
            let name = figure.name.as_str();
            check_name(name)?;
            ensure!(names.insert(name), "{name:?} stands there twice");
            ensure!(figure.value.is_finite(), "{name:?} is no number");
            let meaning = (figure.unit, figure.better);
            let before = known.insert((&self.phase, name), meaning);
            ensure!(before.is_none_or(|before| before == meaning), "{name:?} changes its meaning");
        }
        names.clear();
        for curve in &self.curves {
            let name = curve.name.as_str();
            check_name(name)?;
            ensure!(names.insert(name), "{name:?} stands there twice");
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
    /// Where it was, and its own words below.
    pub fn sentence(&self) -> String {
        let phase = self.phase.as_ref().map_or(String::new(), |phase| format!(" in {phase}"));
        let cpus = self.cpus.map_or(String::new(), |cpus| format!(" on {cpus} CPUs"));
        let words: String = self.words.lines().map(|line| format!("\n  {line}")).collect();
        format!("{}{phase}{cpus}{words}", self.scheduler)
    }
}

/// Names go into tables, queries and other programs' formats.
fn check_name(name: &str) -> Result<()> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "_.-+".contains(c);
    let long = name.is_empty() || name.len() > 64;
    ensure!(!long && name.chars().all(fine), "{name:?} is no name");
    Ok(())
}

/// A file that is being written.
pub struct Store {
    directory: File,
    name: OsString,
    /// As the user wrote it, for messages.
    path: PathBuf,
}

impl Store {
    /// A new file with what is known at the start. An existing one, a link included, may be
    /// somebody else's, so it is never touched.
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

    /// Replaces the file, so that after a crash there is this one or the one before.
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

/// Reads a results file.
pub fn read(path: &Path) -> Result<Results> {
    let reading = || format!("the results {} cannot be read", path.display());
    let text = text(path).with_context(reading)?;
    parse(&text).with_context(reading)
}

/// What is in a regular file of a bearable size.
pub fn text(path: &Path) -> Result<String> {
    let mut options = OpenOptions::new();
    // Opening a pipe would wait for whoever writes into it.
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    ensure!(file.metadata()?.is_file(), "it is not a regular file");
    let mut bytes = Vec::new();
    file.take(SIZE_MAX + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= SIZE_MAX, "it has more than {SIZE_MAX} bytes");
    String::from_utf8(bytes).map_err(|_| anyhow!("it is not text"))
}

fn parse(text: &str) -> Result<Results> {
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
    let results: Results = serde_json::from_str(text).context("it is damaged")?;
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
    fn what_is_saved_is_what_is_read() {
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
            "nothing is left over"
        );
    }

    #[test]
    fn nothing_that_exists_is_overwritten_or_followed() {
        let scratch = Scratch::new();
        let (path, victim) = (scratch.at("r.json"), scratch.at("victim"));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &path).unwrap();
        let all = results(1, 1.0, 1);
        assert!(Store::create(&path, &all).is_err());
        assert!(Store::create(&victim, &all).is_err());
        fs::remove_file(&path).unwrap();
        let store = Store::create(&path, &all).unwrap();
        // Whoever puts a link in our place meanwhile does not get through to another file.
        fs::remove_file(&path).unwrap();
        symlink(&victim, &path).unwrap();
        store.save(&all).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(read(&path).unwrap() == all);
    }

    #[test]
    fn a_bad_file_gets_one_sentence() {
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
    fn results_that_nobody_could_read_are_not_written() {
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
        assert!(read(&path).unwrap() == before, "the file is as it was");
    }

    #[test]
    fn only_regular_files_of_a_bearable_size_are_read() {
        let scratch = Scratch::new();
        assert!(read(Path::new("/dev/zero")).is_err());
        assert!(read(&scratch.at("")).is_err());
        let big = scratch.at("big");
        File::create(&big).unwrap().set_len(SIZE_MAX + 1).unwrap();
        assert!(format!("{:#}", read(&big).unwrap_err()).contains("bytes"));
    }
}
