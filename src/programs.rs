// SPDX-License-Identifier: GPL-2.0-only

//! What was learned of programs, as the supervisor keeps it: read from the file at the start,
//! handed to the worker, and saved again by a thread of its own, so that a slow disk delays nobody.

use super::procdb_file::{self, DEFAULT_PATH};
use super::shared::Shared;
use pandemonium_engine::procdb::Summary;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How often what was learned is saved while we run. A crash of the machine loses that much; a
/// shorter interval would keep disks awake.
const INTERVAL: Duration = Duration::from_secs(600);
/// How long the end waits for the last save. It takes milliseconds; a disk that hangs must not
/// keep us from ending.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was learned, in shared memory, and the file.
pub struct Programs {
    shared: Arc<Shared>,
    /// `None` when nothing is to be kept.
    path: Option<PathBuf>,
    counted: Mutex<Counted>,
}

/// How much a version of the list knows.
#[derive(Default)]
struct Counted {
    version: u64,
    summary: Summary,
}

/// The file that the command line means.
pub fn path(given: Option<&Path>) -> PathBuf {
    given.unwrap_or(Path::new(DEFAULT_PATH)).into()
}

impl Programs {
    /// Reads the file and hands its content to the worker to be. Without a path there is nothing
    /// to read and nothing to keep. A file that cannot be used costs a warning.
    pub fn load(shared: Arc<Shared>, path: Option<PathBuf>) -> Programs {
        if let Some(path) = &path {
            let loaded = procdb_file::load(path, procdb_file::now());
            if let Some(note) = loaded.note {
                eprintln!("warning: {note}");
            }
            shared.programs.publish(&loaded.profiles);
        }
        Programs { shared, path, counted: Mutex::default() }
    }

    /// How much is known, by what the worker has told last.
    pub fn summary(&self) -> Summary {
        let version = self.shared.programs.version();
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.version != version {
            let profiles = self.shared.programs.read();
            let confident = profiles.iter().filter(|known| known.prediction().is_some()).count();
            let summary = Summary { total: profiles.len(), confident };
            *counted = Counted { version, summary };
        }
        counted.summary
    }
}

/// The thread that saves.
pub struct Saver {
    orders: Sender<()>,
    ended: Receiver<()>,
}

impl Saver {
    /// Starts it.
    pub fn start(programs: Arc<Programs>) -> Saver {
        let (orders, received) = channel();
        let (farewell, ended) = channel();
        let mut saved = Saved::of(&programs);
        thread::spawn(move || {
            loop {
                let order = received.recv_timeout(INTERVAL);
                saved.renew(&programs);
                if order == Err(RecvTimeoutError::Disconnected) {
                    break;
                }
            }
            let _ = farewell.send(());
        });
        Saver { orders, ended }
    }

    /// Saves soon.
    pub fn save(&self) {
        // A thread that has ended has nothing to say that it has not printed.
        let _ = self.orders.send(());
    }

    /// Saves for the last time, and waits for it.
    pub fn finish(self) {
        drop(self.orders);
        if self.ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            eprintln!(
                "warning: what was learned of programs could not be saved within {} s",
                PATIENCE.as_secs()
            );
        }
    }
}

/// What the file holds already.
struct Saved {
    version: u64,
    violation: Option<String>,
}

impl Saved {
    fn of(programs: &Programs) -> Saved {
        Saved { version: programs.shared.programs.version(), violation: None }
    }

    /// Saves what the file does not hold. The same trouble is told once.
    fn renew(&mut self, programs: &Programs) {
        let Some(path) = &programs.path else { return };
        let version = programs.shared.programs.version();
        if version == self.version {
            return;
        }
        let profiles = programs.shared.programs.read();
        let violation = match procdb_file::save(path, procdb_file::now(), &profiles) {
            Ok(saved) => {
                self.version = version;
                saved.note
            }
            Err(error) => Some(format!("{error:#}")),
        };
        if let (Some(text), true) = (&violation, violation != self.violation) {
            eprintln!("warning: {text}");
        }
        self.violation = violation;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procdb_file::tests::Scratch;
    use crate::procdb_file::text::tests;
    use pandemonium_engine::procdb::Profile;

    /// A name that was seen today: others are dropped after some weeks.
    fn known(name: &str, observations: u32) -> Profile {
        Profile { last_seen: procdb_file::now(), ..tests::known(name, observations) }
    }

    fn shared() -> Arc<Shared> {
        Arc::new(Shared::create().unwrap())
    }

    #[test]
    fn what_one_run_learned_the_next_one_knows() {
        let scratch = Scratch::new();
        let first = Arc::new(Programs::load(shared(), Some(scratch.path())));
        assert_eq!(first.summary(), Summary { total: 0, confident: 0 });
        let saver = Saver::start(Arc::clone(&first));
        first.shared.programs.publish(&[known("cc1", 5), known("ld", 1)]);
        assert_eq!(first.summary(), Summary { total: 2, confident: 1 });
        saver.finish();

        let second = Programs::load(shared(), Some(scratch.path()));
        assert_eq!(second.summary(), Summary { total: 2, confident: 1 });
        assert_eq!(second.shared.programs.read().len(), 2, "handed to the worker");
    }

    #[test]
    fn an_order_saves_at_once_and_a_worker_that_told_nothing_leaves_the_file_alone() {
        let scratch = Scratch::new();
        let programs = Arc::new(Programs::load(shared(), Some(scratch.path())));
        let saver = Saver::start(Arc::clone(&programs));
        saver.save();
        programs.shared.programs.publish(&[known("cc1", 5)]);
        saver.save();
        for _ in 0..500 {
            if scratch.path().exists() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        assert!(scratch.path().exists());
        std::fs::remove_file(scratch.path()).unwrap();
        saver.finish();
        assert!(!scratch.path().exists());
    }

    #[test]
    fn without_a_path_nothing_is_read_or_kept() {
        let programs = Arc::new(Programs::load(shared(), None));
        let mut saved = Saved::of(&programs);
        programs.shared.programs.publish(&[known("cc1", 5)]);
        saved.renew(&programs);
        assert_eq!(programs.summary().total, 1);
        assert_eq!(saved.violation, None);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_a_warning() {
        let programs = Programs::load(shared(), Some("/proc/nowhere/procdb.bin".into()));
        let mut saved = Saved::of(&programs);
        programs.shared.programs.publish(&[known("cc1", 5)]);
        saved.renew(&programs);
        assert!(saved.violation.unwrap().contains("/proc/nowhere"));
    }
}
