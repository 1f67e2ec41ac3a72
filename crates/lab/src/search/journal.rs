// SPDX-License-Identifier: GPL-2.0-only

//! What a search has played, in a file: a search that is started again does not play it again.
//!
//! A line a run, with tabs in between: workload, CPUs, seed, setting, losses. The rest of a search
//! follows from its seed and these, so an interrupted one ends like any other.

use super::metric::{Losses, Metric};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Mutex;

/// A run of a search.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    pub workload: String,
    pub cpus: u32,
    pub seed: u64,
    /// The setting, as a person writes it.
    pub setting: String,
}

/// What a run lost against the defaults; `None` if a checker complained.
pub type Outcome = Option<Losses>;

/// All runs so far.
#[derive(Default)]
pub struct Journal {
    known: BTreeMap<Run, Outcome>,
    file: Option<Mutex<File>>,
}

impl Journal {
    /// Reads the journal of a search of this policy, or begins it.
    pub fn open(path: &Path, policy: &str) -> Result<Journal> {
        let of = || format!("journal {}", path.display());
        let (mut file, mut text) = (open(path).with_context(of)?, String::new());
        if file.try_lock().is_err() {
            bail!("{} is in use by another search", path.display());
        }
        file.read_to_string(&mut text).with_context(of)?;
        let title = format!("pandemonium_lab {} search {policy}\n", env!("CARGO_PKG_VERSION"));
        if text.is_empty() {
            file.write_all(title.as_bytes()).with_context(of)?;
            return Ok(Journal { file: Some(Mutex::new(file)), ..Journal::default() });
        }
        let Some(lines) = text.strip_prefix(&title) else {
            bail!(
                "{} is no journal of a search of {policy} by this version: choose another file",
                path.display()
            );
        };
        // A search that was killed may have left a part of a line.
        let whole = lines.rfind('\n').map_or(0, |end| end + 1);
        let mut known = BTreeMap::new();
        for (number, line) in lines[..whole].lines().enumerate() {
            let (run, outcome) = read(line).with_context(|| {
                format!("{}, line {}: expected a run of a search", path.display(), number + 2)
            })?;
            known.insert(run, outcome);
        }
        let end = (title.len() + whole) as u64;
        file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end))).with_context(of)?;
        Ok(Journal { known, file: Some(Mutex::new(file)) })
    }

    /// The outcome of a run, if it is known.
    pub fn outcome(&self, run: &Run) -> Option<&Outcome> {
        self.known.get(run)
    }

    /// Any known run, with its outcome.
    pub fn any(&self) -> Option<(&Run, &Outcome)> {
        self.known.first_key_value()
    }

    /// Writes a run to the file, if there is one. Several threads may do so.
    pub fn write(&self, run: &Run, outcome: &Outcome) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let line = line(run, outcome);
        let mut file = file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        file.write_all(line.as_bytes()).context("cannot write to the journal")
    }

    /// Remembers runs that were played.
    pub fn remember(&mut self, runs: impl Iterator<Item = (Run, Outcome)>) {
        self.known.extend(runs);
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn line(run: &Run, outcome: &Outcome) -> String {
    let words = match outcome {
        None => "complains".to_owned(),
        Some(losses) => {
            let word = |loss: &Option<f64>| loss.map_or("-".to_owned(), |loss| loss.to_string());
            losses.iter().map(word).collect::<Vec<_>>().join(" ")
        }
    };
    let Run { workload, cpus, seed, setting } = run;
    format!("{workload}\t{cpus}\t{seed}\t{setting}\t{words}\n")
}

fn read(line: &str) -> Option<(Run, Outcome)> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [workload, cpus, seed, setting, words] = fields[..] else { return None };
    let (workload, setting) = (workload.to_owned(), setting.to_owned());
    let run = Run { workload, cpus: cpus.parse().ok()?, seed: seed.parse().ok()?, setting };
    if words == "complains" {
        return Some((run, None));
    }
    let mut losses = [None; Metric::ALL.len()];
    let mut words = words.split(' ');
    for loss in &mut losses {
        *loss = match words.next()? {
            "-" => None,
            word => Some(word.parse().ok()?),
        };
    }
    words.next().is_none().then_some((run, Some(losses)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn run(seed: u64) -> Run {
        Run { workload: "mix-2".into(), cpus: 2, seed, setting: "slice_us=500 a=b".into() }
    }

    const LOSSES: Losses = [Some(0.1 + 0.2), None, Some(-1.5e-17), Some(0.0), None];

    #[test]
    fn what_was_written_is_known_again_bit_for_bit_and_a_part_of_a_line_is_dropped() {
        let dir = tempdir();
        let path = dir.join("journal");
        let journal = Journal::open(&path, "p").unwrap();
        assert!(Journal::open(&path, "p").is_err(), "in use");
        journal.write(&run(1), &Some(LOSSES)).unwrap();
        journal.write(&run(2), &None).unwrap();
        drop(journal);
        let mut text = fs::read_to_string(&path).unwrap();
        text += "mix-2\t2\t3\tslice_u";
        fs::write(&path, &text).unwrap();
        let journal = Journal::open(&path, "p").unwrap();
        assert_eq!(journal.outcome(&run(1)), Some(&Some(LOSSES)));
        assert_eq!(journal.outcome(&run(2)), Some(&None));
        assert_eq!(journal.outcome(&run(3)), None);
        journal.write(&run(3), &None).unwrap();
        drop(journal);
        assert!(Journal::open(&path, "p").unwrap().outcome(&run(3)).is_some());
        let other = Journal::open(&path, "q").err().unwrap().to_string();
        assert!(other.ends_with("choose another file"), "{other}");
        fs::write(&path, text.replace("complains", "0 0")).unwrap();
        let wrong = Journal::open(&path, "p").err().unwrap().to_string();
        assert!(wrong.ends_with("line 3: expected a run of a search"), "{wrong}");
        fs::remove_dir_all(dir).unwrap();
    }

    fn tempdir() -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("search-journal-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }
}
