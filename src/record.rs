// SPDX-License-Identifier: GPL-2.0-only

//! `--record`: a thread of the supervisor moves the worker's entries from the shared ring into a
//! file, for `pandemonium_lab replay` and `explain`.
//!
//! The worker never waits. It drops and counts entries for which the ring has no room.

mod disk;

use super::output;
use super::process;
use super::shared::Shared;
use anyhow::{Result, anyhow};
use disk::Disk;
use pandemonium_host::failure::Failure;
use pandemonium_policies::COMPOSITORS;
use pandemonium_record::file::write::{Header, Recorder};
use pandemonium_record::{Damage, Entry, Reader, WORDS_MAX};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The time between two drains of the ring. A wakeup of this thread takes a CPU from the recorded
/// tasks, so it is long, unless the ring would be filled by more than a part of it meanwhile.
const PAUSE_MAX: Duration = Duration::from_millis(200);
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// That part, in per mille: the rest is for a load that begins, or a disk that is slow.
const FILLED: u32 = 125;
/// The nice value of the thread.
const NICE: libc::c_int = -20;
/// The longest wait for the last write to the disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// The thread that writes.
pub struct Recording {
    path: PathBuf,
    /// Dropped to stop the thread.
    stop: Sender<()>,
    outcome: Receiver<Outcome>,
    thread: JoinHandle<()>,
}

/// How the recording ended.
struct Outcome {
    entries: u64,
    dropped: u64,
    /// The highest fill level of the ring, in per mille.
    fullest: u32,
    written: Result<u64>,
}

impl Recording {
    /// Starts the thread.
    pub fn start(
        target: Target,
        redacted: bool,
        policy: &str,
        shared: Arc<Shared>,
    ) -> Result<Recording, Failure> {
        let Target { path, file } = target;
        let cannot = |error| unwritable(&path, &error);
        let source = super::cli::version();
        let header = Header { source, policy: policy.to_owned(), redacted };
        let recorder = Recorder::new(Disk::new(file), &header, &COMPOSITORS).map_err(cannot)?;
        let (stop, stopped) = channel();
        let (sender, outcome) = channel();
        let thread = thread::spawn(move || {
            // Beside many hogs on a CPU, nice 0 might give this thread less than the few percent of
            // a CPU that it needs, and the worker drops entries that are not written in time.
            process::set_nice(NICE);
            let outcome = write(&shared, recorder, &stopped);
            // Without a receiver, `finish` has given up and reported that.
            let _ = sender.send(outcome);
        });
        Ok(Recording { path, stop, outcome, thread })
    }

    /// Completes the file, and returns a sentence about its content.
    pub fn finish(self) -> String {
        let path = self.path.display();
        drop(self.stop);
        let Ok(outcome) = self.outcome.recv_timeout(PATIENCE) else {
            return format!("the recording {path} could not be completed: its disk hangs");
        };
        // The thread has sent its outcome and ends.
        let _ = self.thread.join();
        let Outcome { entries, dropped, fullest, written } = outcome;
        match written {
            Ok(bytes) if dropped == 0 => format!(
                "recorded {entries} entries in {bytes} bytes, the ring was at most {} % full: \
                 {path}",
                fullest.div_ceil(10)
            ),
            Ok(bytes) => format!(
                "recorded {entries} entries in {bytes} bytes, and {dropped} were dropped because \
                 the disk or this process was too slow; replay ends at the first gap: {path}"
            ),
            Err(error) => format!("the recording {path} is incomplete: {error:#}"),
        }
    }
}

/// The file of a recording that has not begun.
pub struct Target {
    path: PathBuf,
    file: File,
}

/// Creates a file that only this user can read. An existing file or link may belong to another
/// user: it is never opened.
pub fn create(path: &Path) -> Result<Target, Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path).map_err(|error| unwritable(path, &error.into()))?;
    Ok(Target { path: path.into(), file })
}

fn unwritable(path: &Path, error: &anyhow::Error) -> Failure {
    Failure::Usage(format!("the recording {} cannot be written: {error:#}", path.display()))
}

/// Writes until `stopped` is disconnected, and then the rest.
fn write(shared: &Shared, mut recorder: Recorder<Disk>, stopped: &Receiver<()>) -> Outcome {
    let Some(ring) = shared.ring() else {
        let written = Err(anyhow!("there is no ring"));
        return Outcome { entries: 0, dropped: 0, fullest: 0, written };
    };
    let mut drain = Drain { reader: Reader::new(ring), fullest: 0, pause: PAUSE_MIN };
    let mut failure = None;
    loop {
        let last = stopped.recv_timeout(drain.pause) == Err(RecvTimeoutError::Disconnected);
        if let (Err(error), None) = (drain.drain(&mut recorder), &failure) {
            output::warn(&format!("the recording ends here: {error:#}"));
            failure = Some(error);
        }
        if last {
            break;
        }
    }
    let (entries, dropped, fullest) = (recorder.entries, drain.reader.dropped(), drain.fullest);
    let written = match failure {
        Some(error) => Err(error),
        None => {
            // Drops are reported by the next entry; after the last drops there is none.
            let unreported = drain.reader.unreported();
            if unreported > 0 {
                recorder.add(&Entry::Dropped(unreported));
            }
            recorder.finish().and_then(|disk| Ok(disk.finish()?.metadata()?.len()))
        }
    };
    Outcome { entries, dropped, fullest, written }
}

/// Moves entries from the ring into the file.
struct Drain<'r> {
    reader: Reader<'r>,
    /// The highest fill level, in per mille.
    fullest: u32,
    /// The time until the next drain.
    pause: Duration,
}

impl Drain<'_> {
    /// Takes all entries out of the ring. After an error it writes nothing more, but still empties
    /// the ring, so that drops mean lack of room only.
    fn drain<W: Write>(&mut self, recorder: &mut Recorder<W>) -> Result<()> {
        let filled = self.reader.fullness();
        self.fullest = self.fullest.max(filled);
        self.pause = pause_after(self.pause, filled);
        let mut words = [0; WORDS_MAX];
        while let Some(length) = self.reader.pop(&mut words) {
            let added = length.and_then(|length| recorder.add_words(&words[..length]));
            added.map_err(|Damage| anyhow!("the ring is damaged"))?;
        }
        match &recorder.failure {
            None => Ok(()),
            Some(error) => Err(anyhow!("{error}")),
        }
    }
}

/// The next pause after one that filled the ring by so many per mille: as long as it may be if the
/// same happens again, and at most twice as long.
fn pause_after(pause: Duration, filled: u32) -> Duration {
    let next = pause * FILLED / filled.max(1);
    next.min(2 * pause).clamp(PAUSE_MIN, PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procdb_file::tests::Scratch;
    use pandemonium_record::file::read as recorded;
    use pandemonium_record::{Writer, ring_words};
    use std::collections::VecDeque;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn start(path: &Path, shared: &Arc<Shared>) -> Result<Recording, String> {
        let target = create(path).map_err(|failure| failure.to_string())?;
        let started = Recording::start(target, false, "pandemonium", Arc::clone(shared));
        started.map_err(|failure| failure.to_string())
    }

    /// The number of entries in a file, and its last two.
    fn end_of(path: &Path) -> (usize, Vec<Entry>) {
        let mut recording = recorded::Recording::open(path.to_str().unwrap()).unwrap();
        let (mut count, mut last) = (0, VecDeque::new());
        while let Some(entry) = recording.next_entry().unwrap() {
            last.push_back(entry);
            last.drain(..last.len().saturating_sub(2));
            count += 1;
        }
        (count, last.into())
    }

    #[test]
    fn the_file_has_all_entries_and_only_its_user_can_read_it() {
        let scratch = Scratch::new();
        let shared = Arc::new(Shared::with_ring(1).unwrap());
        let recording = start(&scratch.path(), &shared).unwrap();
        let mut writer = Writer::new(shared.ring().unwrap());
        (0..5_000).for_each(|rescues| writer.push(&Entry::Ended { pending: 1, rescues }));
        let said = recording.finish();
        assert!(said.starts_with("recorded 5000 entries in "), "{said}");
        let metadata = std::fs::metadata(scratch.path()).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        assert!(said.contains(&format!("in {} bytes", metadata.len())), "{said}");
    }

    #[test]
    fn an_existing_file_a_link_and_a_missing_directory_are_refused() {
        let scratch = Scratch::new();
        let shared = Arc::new(Shared::with_ring(1).unwrap());
        let (path, beside) = (scratch.path(), scratch.path().with_extension("link"));
        std::fs::write(&path, "mine").unwrap();
        symlink("elsewhere", &beside).unwrap();
        for there in [&path, &beside] {
            let said = start(there, &shared).err().unwrap();
            assert!(said.contains("cannot be written") && said.contains("exists"), "{said}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        assert!(!path.with_file_name("elsewhere").exists(), "the link was followed");
        let said = start(Path::new("/proc/nowhere/x.rec"), &shared).err().unwrap();
        assert!(said.contains("/proc/nowhere/x.rec cannot be written: No such file"), "{said}");
    }

    #[test]
    fn the_file_reports_all_drops_even_the_last_ones() {
        let scratch = Scratch::new();
        let shared = Arc::new(Shared::with_ring(1).unwrap());
        let ring = shared.ring().unwrap();
        let mut writer = Writer::new(ring);
        (0..ring.len() as u32).for_each(|count| writer.push(&Entry::AssignedAll(count)));
        let recording = start(&scratch.path(), &shared).unwrap();
        let said = recording.finish();
        // Each entry has two words, so half of them fit.
        let half = (ring.len() - ring_words(0)) as u64 / 2;
        let dropped = ring.len() as u64 - half;
        assert!(said.contains(&format!("recorded {half} entries")), "{said}");
        assert!(said.contains(&format!("and {dropped} were dropped")), "{said}");
        let (count, last) = end_of(&scratch.path());
        assert_eq!(count as u64, half + 1);
        assert_eq!(last, [Entry::AssignedAll(half as u32 - 1), Entry::Dropped(dropped)]);
    }

    #[test]
    fn a_full_disk_is_reported() {
        let shared = Arc::new(Shared::with_ring(1).unwrap());
        let full = File::create("/dev/full").unwrap();
        let header = Header { source: String::new(), policy: String::new(), redacted: false };
        let recorder = Recorder::new(Disk::new(full), &header, &COMPOSITORS).unwrap();
        let mut writer = Writer::new(shared.ring().unwrap());
        (0..200_000).for_each(|count| writer.push(&Entry::Finished(count)));
        let (stop, stopped) = channel();
        drop(stop);
        let error = write(&shared, recorder, &stopped).written.unwrap_err();
        assert!(format!("{error:#}").contains("No space left"), "{error:#}");
    }

    #[test]
    fn pauses_are_long_if_the_ring_has_room_and_short_before_it_is_full() {
        let after = |filled| (0..20).fold(PAUSE_MIN, |pause, _| pause_after(pause, filled));
        assert_eq!(after(0), PAUSE_MAX);
        assert_eq!(after(FILLED), PAUSE_MIN, "it stays as it is");
        let settled = |per_ms: u32| {
            (0..20).fold(PAUSE_MIN, |pause, _| {
                pause_after(pause, (per_ms * pause.as_millis() as u32).min(1_000))
            })
        };
        // A ring that such a load fills within 0.1 s is an eighth full at each drain.
        assert!((12..=13).contains(&settled(10).as_millis()));
        assert_eq!(pause_after(PAUSE_MAX, 1_000), PAUSE_MAX / 8);
        assert_eq!(settled(100), PAUSE_MIN);
    }
}
