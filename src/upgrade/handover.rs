// SPDX-License-Identifier: GPL-2.0-only

//! What an old program hands on to a new one: a text in an anonymous file. It does not depend on
//! the layout of shared memory, which may have changed.

use crate::adaptive::Change;
use crate::cli;
use crate::procdb_file;
use crate::stats::Source;
use anyhow::{Result, ensure};
use pandemonium_engine::Memo;
use pandemonium_engine::knobs::{KeySet, KnobProfile};
use pandemonium_engine::procdb::codec;
use pandemonium_engine::task::{Comm, Pid, Tier};
use pandemonium_engine::time::Span;
use pandemonium_host::failure::Failure;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable that names the descriptor of the text.
const VARIABLE: &str = "SCX_PANDEMONIUM_USER_UPGRADE";
/// The name of the file, as the kernel shows it.
const NAME: &str = "scx_pandemonium_user-upgrade";
/// The version of the text.
pub const FORMAT: u32 = 1;
/// The largest text that is read: 32,768 memos and 2,048 profiles have some 3 MiB.
const TEXT_MAX: u64 = 16 << 20;

/// What an old program hands on to a new one.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Handover {
    format: u32,
    /// The version of the old program.
    pub version: String,
    /// Where the program is.
    pub program: PathBuf,
    /// The process number of its worker.
    pub worker: i32,
    /// The descriptor of the instance's lock.
    pub lock: Option<RawFd>,
    /// The kernel setting that the end of the scheduler restores.
    pub compaction: Option<String>,
    /// Whether system calls are filtered already: a program inherits that.
    #[serde(default)]
    pub is_filtered: bool,
    /// The upgrades before this one.
    pub upgrades: u64,
    /// The knobs that the user has set, in lines `KEY=VALUE`.
    knobs: Vec<String>,
    /// The profile of knobs, and by what it was chosen.
    profile: Option<(String, String)>,
    /// The learned profiles of programs, as in the file of the process database.
    programs: Vec<u8>,
    memos: Vec<StoredMemo>,
}

/// A memo: pid, name, tier, usual run in nanoseconds.
type StoredMemo = (i32, [u64; 2], u8, u64);

impl Handover {
    /// Collects what is handed on.
    pub fn of(
        source: &Source,
        program: &Path,
        worker: i32,
        lock: Option<RawFd>,
        compaction: Option<String>,
    ) -> Self {
        let status = source.adaptive.status();
        let set = status.values.iter().filter(|(knob, _)| status.pinned.holds(knob.name));
        let profile = status.profile.profile.filter(|_| !status.profile.by.is_empty());
        Handover {
            format: FORMAT,
            version: cli::version(),
            program: program.into(),
            worker,
            lock,
            compaction,
            is_filtered: true,
            upgrades: source.upgrades,
            knobs: set.map(|(knob, word)| format!("{}={}", knob.name, knob.show(word))).collect(),
            profile: profile.map(|profile| (profile.name.into(), status.profile.by.clone())),
            programs: codec::encode(&source.shared.programs.read()),
            memos: source.shared.take_memos().map(|memo| stored(&memo)).collect(),
        }
    }

    /// What an old program has handed on to this one, if it did. To be called before any thread is
    /// started: it removes the variable, which is not for the programs that this one starts.
    pub fn inherited() -> Result<Option<Handover>, Failure> {
        let Some(value) = std::env::var_os(VARIABLE) else { return Ok(None) };
        // SAFETY: no other thread exists yet.
        unsafe { std::env::remove_var(VARIABLE) };
        let fd = value.to_str().and_then(|text| text.parse::<RawFd>().ok());
        fd.and_then(|fd| Handover::read(fd).ok()).map(Some).ok_or_else(|| {
            Failure::Usage(format!(
                "{VARIABLE} is set for the program's own use: unset it and start again"
            ))
        })
    }

    fn read(fd: RawFd) -> Result<Handover> {
        let shown = std::fs::read_link(format!("/proc/self/fd/{fd}"))?;
        let is_ours =
            shown.to_str().is_some_and(|shown| shown.starts_with(&format!("/memfd:{NAME}")));
        ensure!(is_ours, "not a descriptor of ours");
        // SAFETY: the old program passed this descriptor to this one alone.
        let mut file = unsafe { File::from_raw_fd(fd) };
        file.rewind()?;
        let mut text = String::new();
        file.take(TEXT_MAX).read_to_string(&mut text)?;
        let handover: Handover = serde_json::from_str(&text)?;
        ensure!(handover.format == FORMAT, "another version");
        Ok(handover)
    }

    /// Gives knobs, profiles and memos to a supervisor that has started no worker yet. Returns what
    /// this program does not have, in sentences.
    pub fn restore(&self, source: &Source) -> Vec<String> {
        let mut refused = Vec::from_iter(self.restore_profile(source));
        refused.extend(self.restore_knobs(source));
        // Those of another version are read from the file, if there is one.
        if let Ok(known) = codec::decode(&self.programs, procdb_file::now()) {
            source.shared.programs.publish(&known);
        }
        let memos = self.memos.iter().filter_map(memo);
        source.shared.store_memos(|store| memos.for_each(store));
        refused
    }

    fn restore_profile(&self, source: &Source) -> Option<String> {
        let (name, by) = self.profile.as_ref()?;
        let release = KeySet::none(source.adaptive.table());
        let change = KnobProfile::find(source.adaptive.profiles(), name).and_then(|profile| {
            source.adaptive.tune(&Change { set: "", release, profile: Some((profile, by)) })
        });
        let refusal = change.err()?;
        Some(format!("the profile of the earlier version is not kept: {refusal}"))
    }

    fn restore_knobs(&self, source: &Source) -> Vec<String> {
        let status = source.adaptive.status();
        let is_set =
            |name: &str| self.knobs.iter().any(|line| line.split('=').next() == Some(name));
        let released = status.pinned.iter().filter(|knob| !is_set(knob.name));
        let none = KeySet::none(status.values.table());
        let release = released.fold(none, |set, knob| set.with(knob.name));
        let tune =
            |set: &str, release| source.adaptive.tune(&Change { set, release, profile: None });
        if tune(&self.knobs.join("\n"), release).is_ok() {
            return Vec::new();
        }
        let single = self.knobs.iter().filter_map(|line| tune(line, none).err());
        single.map(|why| format!("a knob of the earlier version is not kept: {why}")).collect()
    }

    /// The text, in a file that the next program inherits.
    pub fn write(&self) -> Result<File> {
        let mut file = anonymous()?;
        file.write_all(&serde_json::to_vec(self)?)?;
        // SAFETY: a plain system call, on an open file. If it fails, the next program says so.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
        Ok(file)
    }
}

/// An empty file without a place, which ends with its last descriptor. A program that this one
/// executes does not inherit it.
pub fn anonymous() -> Result<File> {
    let name = std::ffi::CString::new(NAME)?;
    // SAFETY: the name is a C string; the result is checked.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    ensure!(fd >= 0, "cannot create memory: {}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Tells the program that the command executes where the text is.
pub fn pass<'a>(command: &'a mut Command, text: &File) -> &'a mut Command {
    command.env(VARIABLE, text.as_raw_fd().to_string())
}

fn stored(memo: &Memo) -> StoredMemo {
    (memo.pid.as_raw(), memo.comm.to_words(), memo.tier.index() as u8, memo.run.as_nanos())
}

fn memo(&(pid, comm, tier, run): &StoredMemo) -> Option<Memo> {
    Some(Memo {
        pid: Pid::new(pid)?,
        comm: Comm::from_words(comm),
        tier: *Tier::ALL.get(usize::from(tier))?,
        run: Span::from_nanos(run),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any_bytes;
    use crate::procdb_file::text::tests::known;
    use pandemonium_engine::procdb::Profile;
    use pandemonium_policies::knobs::{Knobs, TABLE};
    use pandemonium_policies::profiles::PROFILES;

    /// A supervisor's source, as with an option that sets `affinity`.
    fn source() -> Source {
        any_bytes::source(Knobs::none().with("affinity"), 2)
    }

    fn set(source: &Source) -> Vec<&'static str> {
        source.adaptive.status().pinned.iter().map(|knob| knob.name).collect()
    }

    fn handover(source: &Source) -> Handover {
        Handover::of(source, Path::new("/bin/program"), 4_711, Some(9), Some("1\n".into()))
    }

    /// As the new program reads it: the descriptor is its own.
    fn received(file: &File) -> Result<Handover> {
        // SAFETY: the descriptor from dup has no other owner.
        Handover::read(unsafe { libc::dup(file.as_raw_fd()) })
    }

    #[test]
    fn knobs_programs_and_memos_reach_the_new_program_in_any_layout() {
        let old = source();
        let release = KeySet::none(&TABLE).with("affinity");
        let gaming = KnobProfile::find(PROFILES, "gaming").unwrap();
        let change = Change { set: "slice_us=750", release, profile: Some((gaming, "tune")) };
        old.adaptive.tune(&change).unwrap();
        let memo = Memo {
            pid: Pid::new(7).unwrap(),
            comm: Comm::from_text("fifteen-letters"),
            tier: Tier::LatCritical,
            run: Span::from_micros(250),
        };
        old.shared.store_memos(|store| store(memo));
        let today = Profile { last_seen: procdb_file::now(), ..known("cc1", 5) };
        old.shared.programs.publish(&[today]);
        let handed = handover(&old);
        let received = received(&handed.write().unwrap()).unwrap();
        assert_eq!(received, handed);
        assert_eq!((received.worker, received.upgrades), (4_711, 2));

        let new = source();
        assert_eq!(received.restore(&new), Vec::<String>::new());
        assert_eq!(set(&new), ["slice_us"], "what the user released stays so");
        let status = new.adaptive.status();
        assert_eq!(status.values.time("slice_us"), Some(Span::from_micros(750)));
        assert_eq!((status.profile.name(), &*status.profile.by), ("gaming", "tune"));
        assert_eq!(new.shared.programs.read(), [today]);
        assert_eq!(new.shared.take_memos().collect::<Vec<_>>(), [memo]);
    }

    #[test]
    fn what_the_new_program_refuses_does_not_cost_the_rest() {
        let (old, new) = (source(), source());
        let mut handed = handover(&old);
        handed.knobs = vec!["speed=9".into(), "slice_us=750".into()];
        handed.profile = Some(("warp".into(), "tune".into()));
        handed.programs = vec![1, 2, 3];
        assert_eq!(handed.restore(&new).len(), 2, "the profile and a knob");
        assert_eq!(new.adaptive.status().values.time("slice_us"), Some(Span::from_micros(750)));
    }

    #[test]
    fn another_text_and_another_file_are_refused() {
        let mut file = handover(&source()).write().unwrap();
        assert!(received(&file).is_ok());
        file.rewind().unwrap();
        file.write_all(b"[1, 2").unwrap();
        assert!(received(&file).is_err());
        assert!(received(&File::open("/dev/null").unwrap()).is_err());
        assert!(Handover::read(-1).is_err());
    }
}
