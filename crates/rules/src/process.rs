// SPDX-License-Identifier: GPL-2.0-only

//! Processes, as `/proc` describes them.

use crate::proc::{ProcFolder, Reader};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

/// A kernel thread's flag in `/proc/PID/stat`.
const KERNEL_THREAD: u64 = 0x0020_0000;
/// Facts that may change without a sign (program, user, command line, cgroup) are read again every
/// so many refreshes: up to ten seconds late, if each second has one.
const AGAIN: u64 = 10;
/// Longest chain of parents that is followed.
const ANCESTORS_MAX: usize = 64;

/// The scheduling class of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedClass {
    /// `SCHED_OTHER`.
    #[default]
    Other,
    /// `SCHED_BATCH`.
    Batch,
    /// `SCHED_IDLE`.
    Idle,
    /// `SCHED_EXT`.
    Ext,
    /// A real-time class: no task of this scheduler.
    RealTime,
}

impl FromStr for SchedClass {
    type Err = String;

    fn from_str(text: &str) -> Result<SchedClass, String> {
        match text {
            "other" => Ok(SchedClass::Other),
            "batch" => Ok(SchedClass::Batch),
            "idle" => Ok(SchedClass::Idle),
            "ext" => Ok(SchedClass::Ext),
            _ => Err(format!("{text:?} is no class: other, batch, idle or ext")),
        }
    }
}

/// What is known of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// The process that started it, or that has adopted it.
    pub parent: i32,
    /// When it started, in ticks since the boot: a reused number starts later.
    pub started: u64,
    /// Its name, at most 15 bytes. It can give itself any.
    pub name: String,
    /// The path of its executable; the first word of its command line if that may not be read.
    pub executable: String,
    /// Its command line, with spaces between the words. It can write there what it likes.
    pub command: String,
    /// The path of its cgroup.
    pub cgroup: String,
    /// The real user, also of a program that runs with another user's rights.
    pub user: u32,
    /// Its nice value.
    pub nice: i64,
    /// Its class.
    pub class: SchedClass,
}

/// All processes, without kernel threads.
pub struct Processes {
    proc: PathBuf,
    all: BTreeMap<i32, Seen>,
    refreshes: u64,
    reader: Reader,
}

/// A process, and the refresh that saw it last.
#[derive(Default)]
struct Seen {
    process: Process,
    at: u64,
}

impl Default for Processes {
    fn default() -> Self {
        Processes::below("/proc")
    }
}

impl Processes {
    /// Processes as the files below this folder describe them.
    pub fn below(proc: impl Into<PathBuf>) -> Processes {
        let (all, reader) = (BTreeMap::new(), Reader::default());
        Processes { proc: proc.into(), all, refreshes: 0, reader }
    }

    /// These processes. A refresh replaces them by those of the machine.
    pub fn of(processes: impl IntoIterator<Item = Process>) -> Processes {
        let seen = |process: Process| (process.pid, Seen { process, at: 0 });
        Processes { all: processes.into_iter().map(seen).collect(), ..Processes::default() }
    }

    /// Reads what has changed. Name, parent, nice value and class of every process are read each
    /// time; the rest of new processes, of those with a new name, and of a tenth of all others.
    /// What is as before is read without an allocation.
    pub fn refresh(&mut self) {
        self.refreshes += 1;
        let now = self.refreshes;
        if let Some(folder) = ProcFolder::open(&self.proc) {
            folder.for_each(|pid| self.look(&folder, pid));
        }
        self.all.retain(|_, seen| seen.at == now);
    }

    /// Reads a process. It is left out if it has ended, or is a kernel thread.
    fn look(&mut self, folder: &ProcFolder, pid: i32) {
        let Processes { all, refreshes, reader, .. } = self;
        let stat = reader.text(folder, pid, "stat").and_then(Stat::parse);
        let Some(Stat { name, parent, nice, started, class }) = stat else { return };
        let Seen { process, at } = all.entry(pid).or_default();
        let is_same = process.name == name && process.started == started;
        replace(&mut process.name, name);
        (process.pid, process.parent, process.started) = (pid, parent, started);
        (process.nice, process.class) = (nice, class);
        let is_due = (*refreshes + pid as u64).is_multiple_of(AGAIN);
        if is_same && !is_due || read_rest(reader, folder, process).is_some() {
            *at = *refreshes;
        }
    }

    /// All processes, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Process> {
        self.all.values().map(|seen| &seen.process)
    }

    /// The parent, its parent, and so on.
    pub fn ancestors<'a>(&'a self, process: &'a Process) -> impl Iterator<Item = &'a Process> {
        let parent = |of: &Process| self.all.get(&of.parent).map(|seen| &seen.process);
        std::iter::successors(parent(process), move |of| parent(of)).take(ANCESTORS_MAX)
    }
}

/// What is read of a process each time.
struct Stat<'a> {
    name: &'a str,
    parent: i32,
    nice: i64,
    started: u64,
    class: SchedClass,
}

impl Stat<'_> {
    /// Of the text of `/proc/PID/stat`. `None` for a kernel thread.
    fn parse(stat: &str) -> Option<Stat<'_>> {
        // The name may contain spaces and parentheses.
        let (head, tail) = stat.rsplit_once(") ")?;
        let (_, name) = head.split_once('(')?;
        // The first of them is the third in proc(5).
        let field = |number: usize| tail.split(' ').nth(number - 3)?.trim().parse::<i64>().ok();
        if field(9)? as u64 & KERNEL_THREAD != 0 {
            return None;
        }
        let class = match field(41).unwrap_or_default() {
            0 => SchedClass::Other,
            3 => SchedClass::Batch,
            5 => SchedClass::Idle,
            7 => SchedClass::Ext,
            _ => SchedClass::RealTime,
        };
        let (parent, nice, started) = (field(4)? as i32, field(19)?, field(22)? as u64);
        Some(Stat { name, parent, nice, started, class })
    }
}

/// Reads what may only change with the name, or without a sign. `None` if the process has ended.
fn read_rest(reader: &mut Reader, folder: &ProcFolder, process: &mut Process) -> Option<()> {
    let pid = process.pid;
    let status = reader.text(folder, pid, "status")?;
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    process.user = user?.split_whitespace().next()?.parse().ok()?;
    let link = reader.link(folder, pid, "exe");
    replace(&mut process.executable, link.strip_suffix(" (deleted)").unwrap_or(link));
    let command = reader.text(folder, pid, "cmdline").unwrap_or_default();
    replace(&mut process.command, command);
    // Without privileges the link of another user's process may not be read.
    if process.executable.is_empty() {
        replace(&mut process.executable, command.split(' ').next().unwrap_or_default());
    }
    let cgroups = reader.text(folder, pid, "cgroup").unwrap_or_default();
    let cgroup = cgroups.lines().find_map(|line| line.strip_prefix("0::"));
    replace(&mut process.cgroup, cgroup.unwrap_or_default());
    Some(())
}

/// Makes the text this one.
fn replace(text: &mut String, new: &str) {
    if text != new {
        text.clear();
        text.push_str(new);
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::fs;

    /// A folder for one test, removed in the end.
    pub struct Scratch(pub PathBuf);

    impl Scratch {
        pub fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("rules-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }

        /// Writes a process as in `/proc`; `fields` are its name, parent, nice value and start.
        pub fn put(&self, pid: i32, (name, parent, nice, started): (&str, i32, i64, u64)) {
            let folder = self.0.join(pid.to_string());
            fs::create_dir_all(&folder).unwrap();
            let zeros = |count: usize| vec!["0"; count].join(" ");
            let stat = format!(
                "{pid} ({name}) S {parent} {} 4194304 {} {nice} 1 0 {started} {} 0 5 0\n",
                zeros(4),
                zeros(9),
                zeros(17)
            );
            fs::write(folder.join("stat"), stat).unwrap();
            fs::write(folder.join("status"), format!("Name:\tx\nUid:\t{pid}\t0\t0\t0\n")).unwrap();
            fs::write(folder.join("cmdline"), b"/bin/x\0--flag\0a b\0").unwrap();
            fs::write(folder.join("cgroup"), "1:cpu:/old\n0::/user.slice/a.scope\n").unwrap();
            let _ = std::os::unix::fs::symlink("/usr/bin/x (deleted)", folder.join("exe"));
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let proc = Scratch::new("read");
        proc.put(1000, ("a) S 1 (b", 1, -5, 77));
        let mut processes = Processes::below(&proc.0);
        processes.refresh();
        let expected = Process {
            pid: 1000,
            parent: 1,
            started: 77,
            name: "a) S 1 (b".into(),
            executable: "/usr/bin/x".into(),
            command: "/bin/x --flag a b".into(),
            cgroup: "/user.slice/a.scope".into(),
            user: 1000,
            nice: -5,
            class: SchedClass::Idle,
        };
        assert_eq!(processes.iter().collect::<Vec<_>>(), [&expected]);
    }

    #[test]
    fn a_new_name_or_a_reused_number_is_read_anew_and_the_end_is_noticed() {
        let proc = Scratch::new("anew");
        let mut processes = Processes::below(&proc.0);
        let command = |processes: &mut Processes| {
            processes.refresh();
            processes.iter().next().map(|process| process.command.clone())
        };
        proc.put(1001, ("sh", 1, 0, 5));
        assert_eq!(command(&mut processes).unwrap(), "/bin/x --flag a b");
        fs::write(proc.0.join("1001/cmdline"), "new").unwrap();
        assert_eq!(command(&mut processes).unwrap(), "/bin/x --flag a b", "nothing tells of it");
        let stat = fs::read_to_string(proc.0.join("1001/stat")).unwrap();
        fs::write(proc.0.join("1001/stat"), stat.replace("(sh)", "(game)")).unwrap();
        assert_eq!(command(&mut processes).unwrap(), "new");
        fs::write(proc.0.join("1001/cmdline"), "newer").unwrap();
        let seen: Vec<_> = (0..AGAIN).map(|_| command(&mut processes).unwrap()).collect();
        assert!(seen.contains(&"newer".into()), "read again within ten refreshes");
        fs::remove_dir_all(proc.0.join("1001")).unwrap();
        assert_eq!(command(&mut processes), None);
    }

    #[test]
    fn the_processes_of_this_machine_include_this_one_and_its_ancestors() {
        let mut processes = Processes::default();
        processes.refresh();
        let own = std::process::id() as i32;
        let own = processes.iter().find(|process| process.pid == own).unwrap();
        assert!(own.executable.contains("pandemonium_rules"), "{own:?}");
        assert!(processes.ancestors(own).count() > 0);
    }
}
