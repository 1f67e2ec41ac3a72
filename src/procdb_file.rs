// SPDX-License-Identifier: GPL-2.0-only

//! The process database on disk; as a person reads it: [`text`].
//!
//! We run as root and the path may come from a command line, so the directory is opened once and
//! everything happens inside that descriptor (`/proc/self/fd/N/...`). A directory that others can
//! write to is not used at all. In a directory of ours a file that is no database, or was put
//! there by somebody else, is set aside under another name, so that it can be looked at and is
//! met only once. None of this ever stops a start: the worst outcome is an empty database and a
//! sentence that says why.
//!
//! Beside `procdb.bin` there are `procdb.bin.lock`, which every writer holds, and for moments
//! `procdb.bin.tmp-PID`: a new database is complete on the disk before it takes the name.

pub mod text;

use anyhow::{Context, Result, anyhow, bail};
use pandemonium_engine::procdb::codec::{self, ENTRY_LEN};
use pandemonium_engine::procdb::{CAPACITY, Minute, ProcDb, Profile};
use pandemonium_engine::task::Comm;
use pandemonium_host::durable::{self, Existing, parent};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where the database is unless the command line says otherwise.
pub const DEFAULT_PATH: &str = "/var/lib/scx_pandemonium_user/procdb.bin";
/// A larger file is not read: eight full databases, so that a later program may keep more names.
const SIZE_MAX: u64 = 8 * CAPACITY as u64 * ENTRY_LEN as u64;
/// Rejected files that are kept. Chosen: enough to see whether it happens again and again.
const REJECTED_MAX: u32 = 3;
/// How long a writer waits for another one. A save takes milliseconds; whoever holds the lock
/// for seconds hangs, and we must not hang with it.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// What a start finds.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The names that are known.
    pub profiles: Vec<Profile>,
    /// Why there may be fewer than there were, in a sentence for a person.
    pub note: Option<String>,
}

/// What a save did.
#[derive(Debug)]
pub struct Saved {
    /// What became of a file that could not be merged, in a sentence for a person.
    pub note: Option<String>,
}

/// What shall be forgotten.
#[derive(Clone, Copy, Debug)]
pub enum Forget {
    /// One name.
    Name(Comm),
    /// Everything.
    All,
}

/// Why there is nothing to read.
#[derive(Debug)]
enum Refusal {
    /// There is no file.
    Missing,
    /// The file may be good, but not to be had from here: it stays as it is.
    Unusable(String),
    /// The file is none of ours: it is set aside.
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

/// The calendar's minute.
pub fn now() -> Minute {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Minute::from_unix(u32::try_from(since_1970.as_secs() / 60).unwrap_or(u32::MAX))
}

/// The names that the file holds. Always comes back with a database; a bad file is set aside.
pub fn load(path: &Path, when: Minute) -> Loaded {
    let reason = match Place::open(path).and_then(|place| place.read(when)) {
        Ok(known) => return Loaded { profiles: known.profiles, note: None },
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

/// The names that the file holds, for one who only looks: nothing is changed.
pub fn read(path: &Path, when: Minute) -> Result<Vec<Profile>> {
    match Place::open(path).and_then(|place| place.read(when)) {
        Ok(known) => Ok(known.profiles),
        Err(Refusal::Missing) => Ok(Vec::new()),
        Err(refusal) => Err(refusal.into_error())
            .with_context(|| format!("cannot read the process database {}", path.display())),
    }
}

/// Merges `profiles` into the file, which is created if it is not there.
pub fn save(path: &Path, when: Minute, profiles: &[Profile]) -> Result<Saved> {
    let saving = || format!("cannot save the process database {}", path.display());
    let directory = parent(path);
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o755).create(directory).with_context(saving)?;
    update(path, when, |known| known.extend(profiles)).with_context(saving)
}

/// Forgets names, and says how many. A scheduler that runs still knows them, and writes them
/// again when it saves.
pub fn forget(path: &Path, when: Minute, what: Forget) -> Result<usize> {
    let forgotten = |profile: &Profile| match what {
        Forget::Name(comm) => profile.comm == comm,
        Forget::All => true,
    };
    if !parent(path).exists() {
        return Ok(0);
    }
    let mut count = 0;
    let change = |known: &mut Vec<Profile>| {
        let before = known.len();
        known.retain(|profile| !forgotten(profile));
        count = before - known.len();
    };
    update(path, when, change)
        .with_context(|| format!("cannot change the process database {}", path.display()))?;
    Ok(count)
}

/// Reads, changes and writes the file as one step, whoever else wants to.
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
    change(&mut known.profiles);
    let mut db = ProcDb::new(CAPACITY);
    db.merge(when, known.profiles);
    let bytes = codec::encode(db.profiles());
    // A disk that sleeps is not woken for what it holds already.
    if bytes != known.bytes {
        place.write(&bytes)?;
    }
    Ok(Saved { note })
}

/// Sets a rejected file aside, unless somebody has put a good one in its place by now.
fn replace_rejected(path: &Path, when: Minute) -> Result<Loaded> {
    let place = Place::open(path).map_err(Refusal::into_error)?;
    let _lock = place.lock(LOCK_WAIT)?;
    match place.read(when) {
        Ok(known) => Ok(Loaded { profiles: known.profiles, note: None }),
        Err(Refusal::Missing) => Ok(Loaded::default()),
        Err(Refusal::Unusable(reason)) => Err(anyhow!(reason)),
        Err(Refusal::Rejected(reason)) => {
            Ok(Loaded { profiles: Vec::new(), note: Some(place.set_aside(&reason)?) })
        }
    }
}

/// A file that was read, and what it said.
#[derive(Default)]
struct Known {
    bytes: Vec<u8>,
    profiles: Vec<Profile>,
}

/// A trusted directory, open, and the name of the database in it.
struct Place {
    directory: File,
    name: OsString,
    /// As the user wrote it, for messages.
    path: PathBuf,
}

impl Place {
    fn open(path: &Path) -> Result<Place, Refusal> {
        let Some(name) = path.file_name() else {
            return Err(Refusal::Unusable("the path names no file".into()));
        };
        let real = parent(path).canonicalize().map_err(refusal)?;
        let user = User::current();
        for (depth, ancestor) in real.ancestors().enumerate() {
            let facts = Facts::of(&fs::metadata(ancestor).map_err(refusal)?);
            if let Some(why) = distrust(&facts, &user, depth > 0) {
                let ancestor = ancestor.display();
                return Err(Refusal::Unusable(format!("the directory {ancestor} {why}")));
            }
        }
        let directory = durable::directory(&real).map_err(refusal)?;
        Ok(Place { directory, name: name.into(), path: path.into() })
    }

    /// The database's name with `suffix`, inside the directory that was opened.
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
        // Looked at before it is opened, since opening alone can do something to a device; and
        // again after, since only that is about what was opened.
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

    /// Waits for all other writers; the file is the lock, for as long as it lives.
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

    /// Under the lock nobody is writing, so every temporary file was left by one who died. One
    /// that cannot be removed is in nobody's way.
    fn remove_orphans(&self) {
        let mut prefix = self.name.clone();
        prefix.push(".tmp-");
        for entry in fs::read_dir(self.inside()).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(prefix.as_encoded_bytes()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Renames the file to the next free `.rejected-N` and says so. When all are taken, the
    /// oldest is deleted and the others move up.
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
            "{path} was set aside as {path}.rejected-{n}, and learning starts afresh: {reason}"
        ))
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        // Readable for all: names of programs are no secret, `ps` shows them.
        durable::put(&self.directory, &self.name, Existing::Replaced, |file| file.write_all(bytes))
    }
}

fn refusal(error: std::io::Error) -> Refusal {
    match error.kind() {
        ErrorKind::NotFound => Refusal::Missing,
        _ => Refusal::Unusable(error.to_string()),
    }
}

/// Refuses what is not a plain file that only we can write.
fn check(meta: &Metadata) -> Result<(), Refusal> {
    let kind = meta.file_type();
    if kind.is_symlink() {
        return Err(Refusal::Rejected("it is a symbolic link".into()));
    }
    if !kind.is_file() {
        return Err(Refusal::Rejected("it is not a regular file".into()));
    }
    if let Some(why) = distrust(&Facts::of(meta), &User::current(), false) {
        return Err(Refusal::Rejected(format!("it {why}")));
    }
    Ok(())
}

/// Who may do what to a file.
#[derive(Clone, Copy, Debug)]
struct Facts {
    uid: u32,
    gid: u32,
    mode: u32,
}

/// Who we are.
struct User {
    uid: u32,
    gid: u32,
}

impl Facts {
    fn of(meta: &Metadata) -> Facts {
        Facts { uid: meta.uid(), gid: meta.gid(), mode: meta.mode() }
    }
}

impl User {
    fn current() -> User {
        // SAFETY: both calls read a number of this process and cannot fail.
        unsafe { User { uid: libc::geteuid(), gid: libc::getegid() } }
    }
}

/// Why somebody else than we and root could put something there, if one could. In a sticky
/// directory such as `/tmp` others can add names, but not take away or replace ours: that will
/// do for an ancestor.
fn distrust(facts: &Facts, user: &User, sticky_will_do: bool) -> Option<String> {
    if facts.uid != 0 && facts.uid != user.uid {
        return Some(format!("belongs to user {}", facts.uid));
    }
    let sticky = facts.mode & libc::S_ISVTX != 0;
    if sticky_will_do && sticky {
        return None;
    }
    if facts.mode & 0o002 != 0 {
        return Some("can be written by everybody".into());
    }
    if facts.mode & 0o020 != 0 && facts.gid != 0 && facts.gid != user.gid {
        return Some(format!("can be written by group {}", facts.gid));
    }
    None
}

#[cfg(test)]
pub mod tests {
    use super::text::tests::{WHEN, known};
    use super::*;
    use pandemonium_engine::time::Span;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A directory of the test's own, removed when the test ends.
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

        /// A database in place, and its bytes.
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
        profiles.iter().map(|p| (p.comm.to_string(), p.observations)).collect()
    }

    fn pairs(pairs: &[(&str, u32)]) -> Vec<(String, u32)> {
        pairs.iter().map(|(name, count)| (name.to_string(), *count)).collect()
    }

    #[test]
    fn what_is_saved_is_loaded_and_the_directory_is_made() {
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
        assert_eq!(mode(&path) & 0o133, 0, "readable, written by us alone, no program");
        assert_eq!(mode(&scratch.0.join("a")) & 0o022, 0);
    }

    #[test]
    fn a_save_merges_with_what_is_on_disk() {
        let scratch = Scratch::new();
        let path = scratch.path();
        save(&path, WHEN, &[known("bash", 5), known("make", 2)]).unwrap();
        save(&path, WHEN, &[known("make", 4), known("bash", 3), known("cc1", 1)]).unwrap();
        let expected = pairs(&[("bash", 5), ("cc1", 1), ("make", 4)]);
        assert_eq!(observed(&load(&path, WHEN).profiles), expected);
        let before = fs::metadata(&path).unwrap();
        save(&path, WHEN, &[known("cc1", 1)]).unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!(before.ino(), after.ino(), "nothing new, nothing written");
        assert_eq!(scratch.names(), ["procdb.bin", "procdb.bin.lock"]);
    }

    #[test]
    fn names_unseen_for_weeks_are_not_saved_again() {
        let scratch = Scratch::new();
        save(&scratch.path(), WHEN, &[known("bash", 5)]).unwrap();
        let weeks_later = WHEN.later(Span::from_nanos(29 * 86_400_000_000_000));
        save(&scratch.path(), weeks_later, &[]).unwrap();
        assert!(load(&scratch.path(), weeks_later).profiles.is_empty());
    }

    #[test]
    fn many_savers_at_once_lose_nothing() {
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
    fn a_lock_that_is_never_released_ends_in_an_error() {
        let (scratch, _) = Scratch::with(&[known("bash", 5)]);
        let place = Place::open(&scratch.path()).unwrap();
        let held = place.lock(Duration::ZERO).unwrap();
        let refused = place.lock(Duration::from_millis(20)).unwrap_err();
        assert_eq!(refused.to_string(), "another process has locked it");
        drop(held);
        assert!(place.lock(Duration::ZERO).is_ok());
    }

    #[test]
    fn the_temporary_of_a_crashed_save_is_ignored_and_cleaned() {
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
    fn a_bad_file_is_set_aside_with_a_reason_and_never_stops_a_start() {
        let good = codec::encode(&[known("bash", 5)]);
        let mut flipped = good.clone();
        flipped[40] ^= 1;
        let cases: [(&[u8], &str); 5] = [
            (b"#!/bin/sh\n", "it is not a process database"),
            (b"", "it ends before its header does"),
            (&good[..50], "its 50 bytes do not fit the 1 entries it promises"),
            (&flipped, "it is damaged: its checksum does not match"),
            (&vec![b'P'; SIZE_MAX as usize + 1], "it is larger than 1048576 bytes"),
        ];
        for (bytes, reason) in cases {
            let scratch = Scratch::new();
            let path = scratch.path();
            fs::write(&path, bytes).unwrap();
            let error = format!("{:#}", read(&path, WHEN).unwrap_err());
            assert!(error.ends_with(reason), "{error}");
            assert!(path.exists(), "one who only looks changes nothing");
            let loaded = load(&path, WHEN);
            assert!(loaded.profiles.is_empty());
            let expected = format!(
                "{0} was set aside as {0}.rejected-1, and learning starts afresh: {reason}",
                path.display()
            );
            assert_eq!(loaded.note, Some(expected));
            assert_eq!(fs::read(scratch.0.join("procdb.bin.rejected-1")).unwrap(), bytes);
            assert_eq!(load(&path, WHEN).note, None, "it is met once");
        }
    }

    #[test]
    fn few_rejected_files_are_kept_the_newest_last() {
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
    fn what_is_no_plain_file_of_ours_is_set_aside_unopened() {
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
        rejected("it can be written by everybody", |path| {
            fs::write(path, codec::encode(&[])).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
        });
    }

    #[test]
    fn a_save_sets_a_bad_file_aside_too() {
        let scratch = Scratch::new();
        fs::write(scratch.path(), b"bad").unwrap();
        let saved = save(&scratch.path(), WHEN, &[known("bash", 5)]).unwrap();
        assert!(saved.note.unwrap().ends_with("it is not a process database"));
        assert_eq!(load(&scratch.path(), WHEN).profiles.len(), 1);
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_not_used() {
        let (scratch, bytes) = Scratch::with(&[known("bash", 5)]);
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o1777)).unwrap();
        let loaded = load(&scratch.path(), WHEN);
        assert!(loaded.profiles.is_empty());
        assert!(loaded.note.unwrap().ends_with("can be written by everybody"));
        assert!(save(&scratch.path(), WHEN, &[]).is_err());
        assert!(forget(&scratch.path(), WHEN, Forget::All).is_err());
        assert_eq!(scratch.names(), ["procdb.bin"]);
        assert_eq!(fs::read(scratch.path()).unwrap(), bytes);
    }

    #[test]
    fn trust_is_ours_and_roots_and_nobody_elses() {
        let user = User { uid: 1000, gid: 100 };
        let trusted = |uid, gid, mode, ancestor| {
            distrust(&Facts { uid, gid, mode }, &user, ancestor).is_none()
        };
        assert!(trusted(0, 0, 0o755, false));
        assert!(trusted(1000, 100, 0o700, false));
        assert!(!trusted(1001, 100, 0o755, false), "somebody else's");
        assert!(!trusted(1001, 100, 0o1755, true), "somebody else's, sticky or not");
        assert!(!trusted(0, 0, 0o777, false));
        assert!(!trusted(0, 0, 0o1777, false), "others could put a file there");
        assert!(trusted(0, 0, 0o1777, true), "/tmp above a directory of ours");
        assert!(!trusted(0, 0, 0o777, true));
        assert!(trusted(0, 0, 0o775, false), "root's own group");
        assert!(trusted(1000, 100, 0o775, false), "our own group");
        assert!(!trusted(0, 50, 0o775, false));
    }

    /// Not even root can create a name in /proc, or rename one.
    #[test]
    fn where_nothing_can_be_written_a_start_goes_on() {
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
    fn names_are_forgotten_one_by_one_or_all() {
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
