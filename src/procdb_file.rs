// SPDX-License-Identifier: GPL-2.0-only

//! The process database on disk. [`text`] prints it.
//!
//! The scheduler runs as root, and the path may come from the command line. So it opens the
//! directory once, and all accesses go through that descriptor (`/proc/self/fd/N/...`). It does not
//! use a directory that other users can write to. In a trusted directory it renames a file that is
//! no database, or that another user owns or can write to: the file stays for inspection, and is
//! reported once. No such fault ever stops a start: at worst the database is empty, with a sentence
//! that says why.
//!
//! What is read to be used or written goes on where the last run ended ([`rejoin`]), so that a
//! clock that was set loses nothing.
//!
//! Every writer locks `procdb.bin.lock`. It writes a new database to `procdb.bin.tmp-PID-N`, and
//! renames that to `procdb.bin` when it is complete on the disk.

pub mod text;

use super::trusted::{self, Refused};
use anyhow::{Context, Result, anyhow, bail};
use pandemonium_engine::procdb::codec::{self, ENTRY_LEN};
use pandemonium_engine::procdb::{CAPACITY, Minute, ProcDb, Profile, rejoin};
use pandemonium_engine::task::Comm;
use pandemonium_host::durable::{self, Existing, parent};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The path of the database, unless the command line names another one.
pub const DEFAULT_PATH: &str = "/var/lib/scx_pandemonium_user/procdb.bin";
/// The largest file that is read: eight full databases, so that a later version may keep more
/// names.
const SIZE_MAX: u64 = 8 * CAPACITY as u64 * ENTRY_LEN as u64;
/// Rejected files that are kept. Chosen: three show whether it happens repeatedly.
const REJECTED_MAX: u32 = 3;
/// The longest wait for the lock. A save takes milliseconds; a process that holds the lock for
/// seconds hangs, and this one must not hang too.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// The result of a load.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The profiles of the database.
    pub profiles: Vec<Profile>,
    /// Why the database is empty, in a sentence, if it should not be.
    pub note: Option<String>,
}

/// The result of a save.
#[derive(Debug)]
pub struct Saved {
    /// What was done with a file that could not be merged, in a sentence.
    pub note: Option<String>,
}

/// What to forget.
#[derive(Clone, Copy, Debug)]
pub enum Forget {
    /// One program.
    Name(Comm),
    /// Everything.
    All,
}

/// Why the file was not read.
#[derive(Debug)]
enum Refusal {
    /// There is no file.
    Missing,
    /// The file may be valid, but cannot be read: it stays as it is.
    Unusable(String),
    /// The file is no valid database: it is set aside.
    Rejected(String),
}

impl Refusal {
    fn into_error(self) -> anyhow::Error {
        match self {
            Refusal::Missing => anyhow!("its directory does not exist"),
            Refusal::Unusable(reason) | Refusal::Rejected(reason) => anyhow!(reason),
        }
    }
}

/// The minute of the calendar.
pub fn now() -> Minute {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Minute::from_unix(u32::try_from(since_1970.as_secs() / 60).unwrap_or(u32::MAX))
}

/// Loads the profiles. Always returns a database, perhaps an empty one. Sets an invalid file aside.
pub fn load(path: &Path, when: Minute) -> Loaded {
    let reason = match Place::open(path).and_then(|place| place.read(when)) {
        Ok(known) => return Loaded { profiles: known.rejoined(when), note: None },
        Err(Refusal::Missing) => return Loaded::default(),
        Err(Refusal::Unusable(reason)) => reason,
        Err(Refusal::Rejected(reason)) => match replace_rejected(path, when) {
            Ok(loaded) => return loaded,
            Err(error) => format!("{reason}, and it could not be set aside: {error:#}"),
        },
    };
    let note = format!("the process database {} is not used: {reason}", path.display());
    Loaded { profiles: Vec::new(), note: Some(note) }
}

/// Reads the profiles, and changes nothing on the disk.
pub fn read(path: &Path, when: Minute) -> Result<Vec<Profile>> {
    match Place::open(path).and_then(|place| place.read(when)) {
        Ok(known) => Ok(known.profiles),
        Err(Refusal::Missing) => Ok(Vec::new()),
        Err(refusal) => Err(refusal.into_error())
            .with_context(|| format!("cannot read the process database {}", path.display())),
    }
}

/// Merges `profiles` into the file. Creates a file that does not exist.
pub fn save(path: &Path, when: Minute, profiles: &[Profile]) -> Result<Saved> {
    let saving = || format!("cannot save the process database {}", path.display());
    let directory = parent(path);
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o755).create(directory).with_context(saving)?;
    update(path, when, |known| known.extend(profiles)).with_context(saving)
}

/// Removes profiles, and returns how many. A running scheduler still has them, and writes them
/// again at its next save.
pub fn forget(path: &Path, when: Minute, what: Forget) -> Result<usize> {
    let is_meant = |profile: &Profile| match what {
        Forget::Name(comm) => profile.program.comm == comm,
        Forget::All => true,
    };
    if !parent(path).exists() {
        return Ok(0);
    }
    let mut count = 0;
    let change = |known: &mut Vec<Profile>| {
        let before = known.len();
        known.retain(|profile| !is_meant(profile));
        count = before - known.len();
    };
    update(path, when, change)
        .with_context(|| format!("cannot change the process database {}", path.display()))?;
    Ok(count)
}

/// Reads, changes and writes the file under the lock.
fn update(path: &Path, when: Minute, change: impl FnOnce(&mut Vec<Profile>)) -> Result<Saved> {
    let place = Place::open(path).map_err(Refusal::into_error)?;
    let _lock = place.lock(LOCK_WAIT)?;
    place.remove_orphans();
    let mut note = None;
    let mut known = match place.read(when) {
        Ok(known) => known,
        Err(Refusal::Missing) => Known::default(),
        Err(Refusal::Unusable(reason)) => bail!(reason),
        Err(Refusal::Rejected(reason)) => {
            note = Some(place.set_aside(&reason)?);
            Known::default()
        }
    };
    rejoin(&mut known.profiles, when);
    change(&mut known.profiles);
    let mut db = ProcDb::new(CAPACITY);
    db.merge(when, known.profiles);
    let bytes = codec::encode(db.profiles());
    // An unchanged database is not written, so that a sleeping disk stays asleep.
    if bytes != known.bytes {
        place.write(&bytes)?;
    }
    Ok(Saved { note })
}

/// Sets a rejected file aside, unless another process has replaced it by a valid one meanwhile.
fn replace_rejected(path: &Path, when: Minute) -> Result<Loaded> {
    let place = Place::open(path).map_err(Refusal::into_error)?;
    let _lock = place.lock(LOCK_WAIT)?;
    match place.read(when) {
        Ok(known) => Ok(Loaded { profiles: known.rejoined(when), note: None }),
        Err(Refusal::Missing) => Ok(Loaded::default()),
        Err(Refusal::Unusable(reason)) => Err(anyhow!(reason)),
        Err(Refusal::Rejected(reason)) => {
            Ok(Loaded { profiles: Vec::new(), note: Some(place.set_aside(&reason)?) })
        }
    }
}

/// The bytes of a file, and its profiles.
#[derive(Default)]
struct Known {
    bytes: Vec<u8>,
    profiles: Vec<Profile>,
}

impl Known {
    /// The profiles for a run that begins now.
    fn rejoined(mut self, when: Minute) -> Vec<Profile> {
        rejoin(&mut self.profiles, when);
        self.profiles
    }
}

/// An open, trusted directory, and the name of the database in it.
struct Place {
    directory: File,
    name: OsString,
    /// The path that the user gave, for messages.
    path: PathBuf,
}

impl Place {
    fn open(path: &Path) -> Result<Place, Refusal> {
        let Some(name) = path.file_name() else {
            return Err(Refusal::Unusable("the path names no file".into()));
        };
        let directory = trusted::directory(parent(path)).map_err(|refused| match refused {
            Refused::Unopened(error) => refusal(error),
            Refused::Distrusted(why) => Refusal::Unusable(why),
        })?;
        Ok(Place { directory, name: name.into(), path: path.into() })
    }

    /// The path of the database with `suffix`, through the open directory.
    fn at(&self, suffix: &str) -> PathBuf {
        let mut name = self.name.clone();
        name.push(suffix);
        self.inside().join(name)
    }

    fn inside(&self) -> PathBuf {
        durable::inside(&self.directory)
    }

    fn read(&self, when: Minute) -> Result<Known, Refusal> {
        let file = self.at("");
        // Checked before it is opened, because opening a device can have effects; and again after,
        // in case the file was replaced between the two.
        check(&fs::symlink_metadata(&file).map_err(refusal)?)?;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(&file).map_err(refusal)?;
        check(&file.metadata().map_err(refusal)?)?;
        let mut bytes = Vec::new();
        file.take(SIZE_MAX + 1).read_to_end(&mut bytes).map_err(refusal)?;
        if bytes.len() as u64 > SIZE_MAX {
            return Err(Refusal::Rejected(format!("it is larger than {SIZE_MAX} bytes")));
        }
        let profiles = codec::decode(&bytes, when);
        let profiles = profiles.map_err(|error| Refusal::Rejected(error.to_string()))?;
        Ok(Known { bytes, profiles })
    }

    /// Waits for all other writers. The lock is held until the file is dropped.
    fn lock(&self, patience: Duration) -> Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(self.at(".lock")).context("its lock file cannot be opened")?;
        let started = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if started.elapsed() < patience => {
                    thread::sleep(Duration::from_millis(10));
                }
                Err(TryLockError::WouldBlock) => bail!("another process has locked it"),
                Err(TryLockError::Error(error)) => {
                    return Err(error).context("it cannot be locked");
                }
            }
        }
    }

    /// Removes temporary files. The caller holds the lock, so their writers have died. A file that
    /// cannot be removed is harmless.
    fn remove_orphans(&self) {
        let mut prefix = self.name.clone();
        prefix.push(".tmp-");
        for entry in fs::read_dir(self.inside()).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(prefix.as_encoded_bytes()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Renames the file to the first free `.rejected-N`, and returns a sentence about it. If none
    /// is free, deletes the oldest one and renumbers the others.
    fn set_aside(&self, reason: &str) -> Result<String> {
        let slot = |n: u32| self.at(&format!(".rejected-{n}"));
        let is_free = |n: &u32| fs::symlink_metadata(slot(*n)).is_err();
        let n = match (1..=REJECTED_MAX).find(is_free) {
            Some(free) => free,
            None => {
                let oldest = slot(1);
                fs::remove_file(&oldest).or_else(|_| fs::remove_dir(&oldest))?;
                for n in 1..REJECTED_MAX {
                    fs::rename(slot(n + 1), slot(n))?;
                }
                REJECTED_MAX
            }
        };
        fs::rename(self.at(""), slot(n))?;
        let path = self.path.display();
        Ok(format!(
            "{path} was set aside as {path}.rejected-{n}, and learning starts anew: {reason}"
        ))
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        // Readable by all: the names of programs are no secret, since `ps` shows them.
        durable::put(&self.directory, &self.name, Existing::Replaced, |file| file.write_all(bytes))
    }
}

fn refusal(error: std::io::Error) -> Refusal {
    match error.kind() {
        ErrorKind::NotFound => Refusal::Missing,
        _ => Refusal::Unusable(error.to_string()),
    }
}

/// Refuses everything but a plain file that only root and this user can write to.
fn check(meta: &Metadata) -> Result<(), Refusal> {
    let kind = meta.file_type();
    if kind.is_symlink() {
        return Err(Refusal::Rejected("it is a symbolic link".into()));
    }
    if !kind.is_file() {
        return Err(Refusal::Rejected("it is not a regular file".into()));
    }
    if let Some(why) = trusted::distrust_file(meta) {
        return Err(Refusal::Rejected(format!("it {why}")));
    }
    Ok(())
}

#[cfg(test)]
pub mod tests {
    use super::text::tests::{WHEN, known};
    use super::*;
    use pandemonium_engine::time::Span;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A temporary directory, removed at the end of the test.
    pub struct Scratch(PathBuf);

    impl Scratch {
        pub fn new() -> Scratch {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("procdb-file-test-{}-{n}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            DirBuilder::new().mode(0o755).create(&directory).unwrap();
            Scratch(directory)
        }

        pub fn path(&self) -> PathBuf {
            self.0.join("procdb.bin")
        }

        /// A directory with a database, and its bytes.
        fn with(profiles: &[Profile]) -> (Scratch, Vec<u8>) {
            let scratch = Scratch::new();
            let bytes = codec::encode(profiles);
            fs::write(scratch.path(), &bytes).unwrap();
            (scratch, bytes)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn observed(profiles: &[Profile]) -> Vec<(String, u32)> {
        profiles.iter().map(|p| (p.program.comm.to_string(), p.observations)).collect()
    }

    fn pairs(pairs: &[(&str, u32)]) -> Vec<(String, u32)> {
        pairs.iter().map(|(name, count)| (name.to_string(), *count)).collect()
    }

    #[test]
    fn a_save_creates_the_directory_and_a_load_returns_what_was_saved() {
        let scratch = Scratch::new();
        let path = scratch.0.join("a/b/procdb.bin");
        assert!(load(&path, WHEN).profiles.is_empty());
        let saved = save(&path, WHEN, &[known("zsh", 1), known("bash", 5)]).unwrap();
        assert_eq!(saved.note, None);
        let loaded = load(&path, WHEN);
        assert_eq!(loaded.profiles, [known("bash", 5), known("zsh", 1)]);
        assert_eq!(loaded.note, None);
        assert_eq!(read(&path, WHEN).unwrap(), loaded.profiles);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(
            mode(&path) & 0o133,
            0,
            "readable by all, writable by the owner, not executable"
        );
        assert_eq!(mode(&scratch.0.join("a")) & 0o022, 0);
    }

    #[test]
    fn a_save_merges_with_the_file() {
        let scratch = Scratch::new();
        let path = scratch.path();
        save(&path, WHEN, &[known("bash", 5), known("make", 2)]).unwrap();
        save(&path, WHEN, &[known("make", 4), known("bash", 3), known("cc1", 1)]).unwrap();
        let expected = pairs(&[("bash", 5), ("cc1", 1), ("make", 4)]);
        assert_eq!(observed(&load(&path, WHEN).profiles), expected);
        let before = fs::metadata(&path).unwrap();
        save(&path, WHEN, &[known("cc1", 1)]).unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!(before.ino(), after.ino(), "an unchanged database is not written");
        assert_eq!(scratch.names(), ["procdb.bin", "procdb.bin.lock"]);
    }

    fn days_later(days: u64) -> Minute {
        WHEN.later(Span::from_nanos(days * 86_400_000_000_000))
    }

    /// A save of `zsh`, seen then, and what the file has afterwards.
    fn saved_with_zsh(scratch: &Scratch, when: Minute) -> Vec<String> {
        let zsh = Profile { last_seen: when, ..known("zsh", 9) };
        save(&scratch.path(), when, &[zsh]).unwrap();
        let names = load(&scratch.path(), when).profiles;
        names.iter().map(|profile| profile.program.comm.to_string()).collect()
    }

    #[test]
    fn a_save_drops_profiles_of_weeks_ago() {
        let scratch = Scratch::new();
        save(&scratch.path(), WHEN, &[known("bash", 5)]).unwrap();
        for day in 0..=28 {
            assert_eq!(saved_with_zsh(&scratch, days_later(day)), ["bash", "zsh"], "day {day}");
        }
        assert_eq!(saved_with_zsh(&scratch, days_later(29)), ["zsh"]);
    }

    #[test]
    fn a_clock_that_was_set_or_a_machine_that_was_off_drops_nothing() {
        let scratch = Scratch::new();
        save(&scratch.path(), WHEN, &[known("bash", 5)]).unwrap();
        for day in [400, 800, 3, 0, 90] {
            assert_eq!(saved_with_zsh(&scratch, days_later(day)), ["bash", "zsh"], "day {day}");
        }
    }

    #[test]
    fn concurrent_saves_lose_nothing() {
        let scratch = Scratch::new();
        let names: Vec<String> = (0..16).map(|i| format!("name-{i:02}")).collect();
        thread::scope(|scope| {
            for name in &names {
                let path = scratch.path();
                scope.spawn(move || save(&path, WHEN, &[known(name, 1)]).unwrap());
            }
        });
        let expected: Vec<(String, u32)> = names.iter().map(|name| (name.clone(), 1)).collect();
        assert_eq!(observed(&load(&scratch.path(), WHEN).profiles), expected);
        assert_eq!(scratch.names(), ["procdb.bin", "procdb.bin.lock"]);
    }

    #[test]
    fn a_lock_that_is_never_released_is_an_error() {
        let (scratch, _) = Scratch::with(&[known("bash", 5)]);
        let place = Place::open(&scratch.path()).unwrap();
        let held = place.lock(Duration::ZERO).unwrap();
        let refused = place.lock(Duration::from_millis(20)).unwrap_err();
        assert_eq!(refused.to_string(), "another process has locked it");
        drop(held);
        assert!(place.lock(Duration::ZERO).is_ok());
    }

    #[test]
    fn a_save_removes_the_temporary_file_of_a_crashed_one() {
        let (scratch, _) = Scratch::with(&[known("bash", 5)]);
        let orphan = scratch.0.join("procdb.bin.tmp-4711");
        fs::write(&orphan, b"half a data").unwrap();
        symlink("/etc/passwd", scratch.0.join("procdb.bin.tmp-4712")).unwrap();
        assert_eq!(load(&scratch.path(), WHEN).profiles.len(), 1);
        save(&scratch.path(), WHEN, &[known("zsh", 1)]).unwrap();
        assert_eq!(scratch.names(), ["procdb.bin", "procdb.bin.lock"]);
        assert!(Path::new("/etc/passwd").exists());
        assert_eq!(load(&scratch.path(), WHEN).profiles.len(), 2);
    }

    #[test]
    fn a_load_sets_an_invalid_file_aside_and_says_why() {
        let good = codec::encode(&[known("bash", 5)]);
        let mut flipped = good.clone();
        flipped[40] ^= 1;
        let cases: [(&[u8], &str); 5] = [
            (b"#!/bin/sh\n", "it is not a process database"),
            (b"", "it ends before its header does"),
            (&good[..50], "its 50 bytes do not fit the 1 entries it promises"),
            (&flipped, "it is damaged: its checksum does not match"),
            (&vec![b'P'; SIZE_MAX as usize + 1], "it is larger than 1179648 bytes"),
        ];
        for (bytes, reason) in cases {
            let scratch = Scratch::new();
            let path = scratch.path();
            fs::write(&path, bytes).unwrap();
            let error = format!("{:#}", read(&path, WHEN).unwrap_err());
            assert!(error.ends_with(reason), "{error}");
            assert!(path.exists(), "a read changes nothing");
            let loaded = load(&path, WHEN);
            assert!(loaded.profiles.is_empty());
            let expected = format!(
                "{0} was set aside as {0}.rejected-1, and learning starts anew: {reason}",
                path.display()
            );
            assert_eq!(loaded.note, Some(expected));
            assert_eq!(fs::read(scratch.0.join("procdb.bin.rejected-1")).unwrap(), bytes);
            assert_eq!(load(&path, WHEN).note, None, "it is reported once");
        }
    }

    #[test]
    fn the_last_three_rejected_files_are_kept() {
        let scratch = Scratch::new();
        for i in 0..5 {
            fs::write(scratch.path(), format!("bad {i}")).unwrap();
            assert!(load(&scratch.path(), WHEN).note.is_some());
        }
        let kept = |n| fs::read_to_string(scratch.0.join(format!("procdb.bin.rejected-{n}")));
        assert_eq!([1, 2, 3].map(|n| kept(n).unwrap()), ["bad 2", "bad 3", "bad 4"]);
        assert_eq!(scratch.names().len(), 4);
    }

    #[test]
    fn everything_but_a_plain_trusted_file_is_set_aside() {
        let rejected = |reason: &str, place: fn(&Path)| {
            let scratch = Scratch::new();
            place(&scratch.path());
            let note = load(&scratch.path(), WHEN).note.unwrap();
            assert!(note.ends_with(reason), "{note}");
            assert!(fs::symlink_metadata(scratch.path()).is_err());
            save(&scratch.path(), WHEN, &[known("bash", 5)]).unwrap();
            assert_eq!(load(&scratch.path(), WHEN).profiles.len(), 1);
        };
        rejected("it is a symbolic link", |path| symlink("/etc/passwd", path).unwrap());
        rejected("it is a symbolic link", |path| symlink("/dev/null/nowhere", path).unwrap());
        rejected("it is not a regular file", |path| fs::create_dir(path).unwrap());
        rejected("it is not a regular file", |path| {
            fs::create_dir_all(path.join("with/more")).unwrap();
        });
        rejected("it is not a regular file", |path| drop(UnixListener::bind(path).unwrap()));
        rejected("it can be written by every user", |path| {
            fs::write(path, codec::encode(&[])).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
        });
    }

    #[test]
    fn a_save_sets_an_invalid_file_aside_too() {
        let scratch = Scratch::new();
        fs::write(scratch.path(), b"bad").unwrap();
        let saved = save(&scratch.path(), WHEN, &[known("bash", 5)]).unwrap();
        assert!(saved.note.unwrap().ends_with("it is not a process database"));
        assert_eq!(load(&scratch.path(), WHEN).profiles.len(), 1);
    }

    #[test]
    fn a_directory_that_other_users_can_write_to_is_not_used() {
        let (scratch, bytes) = Scratch::with(&[known("bash", 5)]);
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o1777)).unwrap();
        let loaded = load(&scratch.path(), WHEN);
        assert!(loaded.profiles.is_empty());
        assert!(loaded.note.unwrap().ends_with("can be written by every user"));
        assert!(save(&scratch.path(), WHEN, &[]).is_err());
        assert!(forget(&scratch.path(), WHEN, Forget::All).is_err());
        assert_eq!(scratch.names(), ["procdb.bin"]);
        assert_eq!(fs::read(scratch.path()).unwrap(), bytes);
    }

    /// Not even root can create or rename a file in /proc.
    #[test]
    fn an_unwritable_path_does_not_stop_a_start() {
        let loaded = load(Path::new("/proc/self/status"), WHEN);
        assert!(loaded.profiles.is_empty());
        let note = loaded.note.unwrap();
        assert!(note.contains("could not be set aside"), "{note}");
        let error = save(Path::new("/proc/procdb-test/procdb.bin"), WHEN, &[]).unwrap_err();
        assert!(error.to_string().contains("/proc/procdb-test/procdb.bin"), "{error:#}");
        assert!(save(Path::new("/proc/self/procdb.bin"), WHEN, &[]).is_err());
        for path in ["", "/", ".."] {
            assert!(load(Path::new(path), WHEN).note.unwrap().ends_with("names no file"));
        }
        let scratch = Scratch::new();
        fs::write(scratch.0.join("file"), b"").unwrap();
        let below_a_file = scratch.0.join("file/procdb.bin");
        assert!(load(&below_a_file, WHEN).note.is_some());
        assert!(save(&below_a_file, WHEN, &[]).is_err());
    }

    #[test]
    fn one_profile_or_all_are_forgotten() {
        let scratch = Scratch::new();
        let path = scratch.path();
        let name = |text| Forget::Name(Comm::from_text(text));
        assert_eq!(forget(&scratch.0.join("none/procdb.bin"), WHEN, Forget::All).unwrap(), 0);
        assert_eq!(scratch.names(), [""; 0]);
        let three = [known("bash", 5), known("cc1", 1), known("make", 4)];
        save(&path, WHEN, &three).unwrap();
        assert_eq!(forget(&path, WHEN, name("cc1plus")).unwrap(), 0);
        assert_eq!(forget(&path, WHEN, name("cc1")).unwrap(), 1);
        let left = pairs(&[("bash", 5), ("make", 4)]);
        assert_eq!(observed(&load(&path, WHEN).profiles), left);
        assert_eq!(forget(&path, WHEN, Forget::All).unwrap(), 2);
        assert!(load(&path, WHEN).profiles.is_empty());
    }
}
