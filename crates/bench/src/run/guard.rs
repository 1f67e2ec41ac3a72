// SPDX-License-Identifier: GPL-2.0-only

//! What a benchmark changes of the machine, and that it is put back whatever ends it.
//!
//! A signal sets a flag that everything looks at which waits; then, as after an error or a panic,
//! the guards are dropped. Only a SIGKILL goes by them: what we started then dies with us, but
//! CPUs stay as they are.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often a process that is waited for is looked at.
const GLANCE: Duration = Duration::from_millis(20);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on signals that ask for the end are noticed by [`check_interrupt`].
pub fn catch_signals() -> Result<()> {
    let handler = || INTERRUPTED.store(true, Ordering::SeqCst);
    ctrlc::set_handler(handler).context("signals cannot be caught")
}

pub fn was_interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// An error as soon as somebody has asked for the end.
pub fn check_interrupt() -> Result<()> {
    ensure!(!was_interrupted(), "a signal asked for the end");
    Ok(())
}

/// Waits, unless somebody asks for the end.
pub fn pause(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        check_interrupt()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        sleep(left.min(GLANCE));
    }
}

/// The CPUs that were there at the start, which are there again at the end.
pub struct Cpus {
    folder: PathBuf,
    /// Those that were online.
    all: Vec<usize>,
    /// Those that are.
    online: Vec<usize>,
}

impl Cpus {
    pub fn of_this_machine() -> Result<Cpus> {
        Cpus::at("/sys/devices/system/cpu".into())
    }

    fn at(folder: PathBuf) -> Result<Cpus> {
        let path = folder.join("online");
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("reading {}", path.display()))?;
        let all = list(text.trim()).with_context(|| format!("{text:?} is no list of CPUs"))?;
        Ok(Cpus { folder, online: all.clone(), all })
    }

    /// How many there were at the start.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Leaves the first so many online, and takes the others away.
    pub fn use_first(&mut self, count: usize) -> Result<()> {
        ensure!(count <= self.all.len(), "there are {} CPUs, not {count}", self.all.len());
        let wanted = self.all[..count].to_vec();
        self.set(&wanted)
    }

    fn set(&mut self, wanted: &[usize]) -> Result<()> {
        // What comes goes first: so there is never less than one.
        for &cpu in wanted.iter().filter(|cpu| !self.online.contains(cpu)) {
            self.switch(cpu, true)?;
        }
        for &cpu in self.online.iter().filter(|cpu| !wanted.contains(cpu)) {
            self.switch(cpu, false)?;
        }
        self.online = wanted.to_vec();
        Ok(())
    }

    fn switch(&self, cpu: usize, online: bool) -> Result<()> {
        let path = self.folder.join(format!("cpu{cpu}/online"));
        let what = if online { "bring back" } else { "take away" };
        fs::write(&path, if online { "1" } else { "0" })
            .with_context(|| format!("cannot {what} CPU {cpu} ({})", path.display()))
    }
}

impl Drop for Cpus {
    fn drop(&mut self) {
        for &cpu in &self.all {
            // A CPU that never went has no such file or is online: nothing to do, nothing to say.
            let path = self.folder.join(format!("cpu{cpu}/online"));
            let is_off = fs::read_to_string(path).is_ok_and(|text| text.trim() == "0");
            if is_off && let Err(error) = self.switch(cpu, true) {
                eprintln!("warning: {error:#}: bring it back by hand");
            }
        }
    }
}

/// `0-3,6` as numbers.
fn list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    (!cpus.is_empty()).then_some(cpus)
}

/// A process that we have started, and that does not outlive us.
pub struct Process {
    child: Child,
    /// What it is called in messages.
    name: String,
}

impl Process {
    pub fn start(name: &str, command: &mut Command) -> Result<Process> {
        // SAFETY: a plain system call, all that happens between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // A Ctrl-C is for us, and we tell our own.
                libc::setpgid(0, 0);
                Ok(())
            });
        }
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("{program} cannot be started"))?;
        Ok(Process { child, name: name.into() })
    }

    pub fn pid(&self) -> libc::pid_t {
        self.child.id() as libc::pid_t
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("looking at {}", self.name))
    }

    /// Waits for its end, but not longer than this, and not if somebody asks for ours.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if start.elapsed() > limit {
                bail!("{} did not end within {} s", self.name, limit.as_secs());
            }
            check_interrupt()?;
            sleep(GLANCE);
        }
    }

    /// Asks it to end, and if it does not within the time, makes it. Whether it did by itself.
    pub fn stop(&mut self, patience: Duration) -> bool {
        // SAFETY: our own child, not yet waited for, or a pid that `ended` has just seen unused.
        if let Ok(None) = self.child.try_wait() {
            unsafe { libc::kill(self.pid(), libc::SIGTERM) };
        }
        let start = Instant::now();
        while start.elapsed() < patience {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            sleep(GLANCE);
        }
        self.kill();
        false
    }

    /// Ends it with everything of its process group.
    fn kill(&mut self) {
        // SAFETY: the group is our child's own, and it is not yet waited for.
        unsafe { libc::kill(-self.pid(), libc::SIGKILL) };
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(list("0-3,6"), Some(vec![0, 1, 2, 3, 6]));
        assert_eq!(list("0"), Some(vec![0]));
        for wrong in ["", "0-", "a", "3-0"] {
            assert_eq!(list(wrong), None, "{wrong:?}");
        }
    }

    /// A folder like the kernel's, with four CPUs of which the third is away.
    fn machine(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("cpus-{name}-{}", std::process::id()));
        for cpu in 0..4 {
            fs::create_dir_all(folder.join(format!("cpu{cpu}"))).unwrap();
            let online = if cpu == 2 { "0\n" } else { "1\n" };
            fs::write(folder.join(format!("cpu{cpu}/online")), online).unwrap();
        }
        fs::write(folder.join("online"), "0-1,3\n").unwrap();
        folder
    }

    fn states(folder: &std::path::Path) -> String {
        let state = |cpu| fs::read_to_string(folder.join(format!("cpu{cpu}/online"))).unwrap();
        (0..4).map(|cpu| state(cpu).trim().to_string()).collect()
    }

    #[test]
    fn cpus_that_were_taken_away_come_back_and_others_stay_away() {
        let folder = machine("back");
        let mut cpus = Cpus::at(folder.clone()).unwrap();
        assert_eq!(cpus.count(), 3);
        cpus.use_first(1).unwrap();
        assert_eq!(states(&folder), "1000");
        cpus.use_first(2).unwrap();
        assert_eq!(states(&folder), "1100");
        assert!(cpus.use_first(4).is_err());
        drop(cpus);
        assert_eq!(states(&folder), "1101");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn cpus_come_back_when_the_program_panics() {
        let folder = machine("panic");
        let inside = folder.clone();
        let panicked = std::panic::catch_unwind(move || {
            let mut cpus = Cpus::at(inside).unwrap();
            cpus.use_first(1).unwrap();
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert_eq!(states(&folder), "1101");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_process_is_gone_when_its_guard_is() {
        let mut command = Command::new("sleep");
        command.arg("60").stdin(Stdio::null());
        let process = Process::start("a sleeper", &mut command).unwrap();
        let pid = process.pid();
        drop(process);
        // SAFETY: signal 0 only asks whether there is such a process.
        assert_eq!(unsafe { libc::kill(pid, 0) }, -1);
        let mut process = Process::start("a sleeper", &mut command).unwrap();
        let error = process.wait(Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("a sleeper did not end"), "{error}");
        assert!(process.stop(Duration::from_secs(5)));
    }
}
