// SPDX-License-Identifier: GPL-2.0-only

//! The learned profiles of programs, in the supervisor: it reads the file at the start, publishes
//! the profiles to the worker, and saves them in a thread of its own, so that a slow disk delays
//! nothing.

use super::mutex::lock;
use super::output;
use super::procdb_file::{self, DEFAULT_PATH};
use super::shared::Shared;
use pandemonium_engine::procdb::Summary;
use pandemonium_host::trust::effective_user;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The time between two saves. A crash of the machine loses that much; a shorter interval would
/// keep disks from sleeping.
const INTERVAL: Duration = Duration::from_secs(600);
/// The longest wait for the last save, which takes milliseconds: a disk that hangs must not keep
/// the scheduler from ending.
const PATIENCE: Duration = Duration::from_secs(10);

/// The profiles in shared memory, and their file.
pub struct Programs {
    shared: Arc<Shared>,
    /// `None` if nothing is saved.
    path: Option<PathBuf>,
    counted: Mutex<Counted>,
    /// Whether the last save failed.
    save_failed: AtomicBool,
}

/// The number of profiles in a version of the list.
#[derive(Default)]
struct Counted {
    version: u64,
    summary: Summary,
}

/// The file that the command line names, or the default.
pub fn path(given: Option<&Path>) -> PathBuf {
    given.unwrap_or(Path::new(DEFAULT_PATH)).into()
}

impl Programs {
    /// Reads the file, and publishes the profiles for the worker. Without a path it does neither.
    /// An unusable file causes a warning.
    pub fn load(shared: Arc<Shared>, path: Option<PathBuf>) -> Programs {
        if let Some(path) = &path {
            let loaded = procdb_file::load(path, procdb_file::now());
            if let Some(note) = loaded.note {
                output::warn(&note);
            }
            shared.programs.publish(&loaded.profiles);
        }
        Programs { shared, path, counted: Mutex::default(), save_failed: AtomicBool::new(false) }
    }

    /// Whether the file is saved to a folder of another user.
    pub fn is_foreign(&self) -> bool {
        let folders = self.path.iter().flat_map(|path| path.ancestors().skip(1));
        let owner = folders.filter_map(|folder| folder.metadata().ok()).map(|meta| meta.uid());
        owner.take(1).any(|owner| owner != effective_user())
    }

    /// Whether the last save failed.
    pub fn save_failed(&self) -> bool {
        self.save_failed.load(Ordering::Relaxed)
    }

    /// The number of profiles that the worker has published last.
    pub fn summary(&self) -> Summary {
        let version = self.shared.programs.version();
        let mut counted = lock(&self.counted);
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
    /// A message requests a save; a disconnection ends the thread.
    requests: Sender<()>,
    ended: Receiver<()>,
}

impl Saver {
    /// Starts the thread.
    pub fn start(programs: Arc<Programs>) -> Saver {
        let (requests, received) = channel();
        let (sender, ended) = channel();
        let mut saved = Saved::of(&programs);
        thread::spawn(move || {
            loop {
                let request = received.recv_timeout(INTERVAL);
                saved.save(&programs);
                if request == Err(RecvTimeoutError::Disconnected) {
                    break;
                }
            }
            let _ = sender.send(());
        });
        Saver { requests, ended }
    }

    /// Requests a save.
    pub fn save(&self) {
        // A thread that has ended has printed why.
        let _ = self.requests.send(());
    }

    /// Saves for the last time, and waits until that is done.
    pub fn finish(self) {
        drop(self.requests);
        if self.ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let limit = PATIENCE.as_secs();
            output::warn(&format!("the profiles of programs could not be saved within {limit} s"));
        }
    }
}

/// The state of the file.
struct Saved {
    /// The version of the list that it has.
    version: u64,
    /// The last warning.
    warning: Option<String>,
}

impl Saved {
    fn of(programs: &Programs) -> Saved {
        Saved { version: programs.shared.programs.version(), warning: None }
    }

    /// Saves a new version of the list. The same warning is printed once.
    fn save(&mut self, programs: &Programs) {
        let Some(path) = &programs.path else { return };
        let version = programs.shared.programs.version();
        if version == self.version {
            return;
        }
        let profiles = programs.shared.programs.read();
        let result = procdb_file::save(path, procdb_file::now(), &profiles);
        programs.save_failed.store(result.is_err(), Ordering::Relaxed);
        let warning = match result {
            Ok(saved) => {
                self.version = version;
                saved.note
            }
            Err(error) => Some(format!("{error:#}")),
        };
        if let (Some(text), true) = (&warning, warning != self.warning) {
            output::warn(text);
        }
        self.warning = warning;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procdb_file::tests::Scratch;
    use crate::procdb_file::text::tests;
    use pandemonium_engine::procdb::Profile;

    /// A profile that was updated today: a save drops those of some weeks ago.
    fn known(name: &str, observations: u32) -> Profile {
        Profile { last_seen: procdb_file::now(), ..tests::known(name, observations) }
    }

    fn shared() -> Arc<Shared> {
        Arc::new(Shared::create().unwrap())
    }

    #[test]
    fn the_next_run_loads_what_one_run_has_learned() {
        let scratch = Scratch::new();
        let first = Arc::new(Programs::load(shared(), Some(scratch.path())));
        assert_eq!(first.summary(), Summary { total: 0, confident: 0 });
        let saver = Saver::start(Arc::clone(&first));
        first.shared.programs.publish(&[known("cc1", 5), known("ld", 1)]);
        assert_eq!(first.summary(), Summary { total: 2, confident: 1 });
        saver.finish();

        let second = Programs::load(shared(), Some(scratch.path()));
        assert_eq!(second.summary(), Summary { total: 2, confident: 1 });
        assert_eq!(second.shared.programs.read().len(), 2, "published to the worker");
    }

    #[test]
    fn a_request_saves_at_once_and_without_a_new_version_nothing_is_written() {
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
    fn without_a_path_nothing_is_read_or_saved() {
        let programs = Arc::new(Programs::load(shared(), None));
        let mut saved = Saved::of(&programs);
        programs.shared.programs.publish(&[known("cc1", 5)]);
        saved.save(&programs);
        assert_eq!(programs.summary().total, 1);
        assert_eq!(saved.warning, None);
    }

    #[test]
    fn an_unwritable_directory_causes_a_warning() {
        let programs = Programs::load(shared(), Some("/proc/nowhere/procdb.bin".into()));
        let mut saved = Saved::of(&programs);
        programs.shared.programs.publish(&[known("cc1", 5)]);
        saved.save(&programs);
        assert!(saved.warning.unwrap().contains("/proc/nowhere"));
        assert!(programs.save_failed());
    }
}
