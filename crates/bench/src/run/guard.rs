// SPDX-License-Identifier: GPL-2.0-only

//! Guards for what a benchmark changes on the machine: dropping a guard undoes the change.
//!
//! A signal sets a flag, and every wait polls that flag; then, as after an error or a panic, the
//! guards are dropped. SIGKILL drops no guards: child processes then die with this one
//! (PR_SET_PDEATHSIG), but offline CPUs stay offline.

use anyhow::{Context, Result, bail, ensure};
use pandemonium_host::print::print_error;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often a wait polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Installs the handler, so that [`check_interrupt`] notices SIGINT and SIGTERM.
pub fn catch_signals() -> Result<()> {
    let handler = || INTERRUPTED.store(true, Ordering::SeqCst);
    ctrlc::set_handler(handler).context("signals cannot be caught")
}

/// Whether a signal has asked this program to end.
pub fn was_interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Fails if a signal has asked this program to end.
pub fn check_interrupt() -> Result<()> {
    ensure!(!was_interrupted(), "a signal ended the benchmark");
    Ok(())
}

/// Sleeps; fails as soon as a signal asks this program to end.
pub fn pause(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        check_interrupt()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        sleep(left.min(POLL_INTERVAL));
    }
}

/// The CPUs that were online at the start. Drop brings them back online.
pub struct Cpus {
    folder: PathBuf,
    /// The CPUs that were online at the start.
    all: Vec<usize>,
    /// The CPUs that are online now.
    online: Vec<usize>,
}

impl Cpus {
    /// The CPUs of this machine.
    pub fn of_this_machine() -> Result<Cpus> {
        Cpus::at("/sys/devices/system/cpu".into())
    }

    fn at(folder: PathBuf) -> Result<Cpus> {
        let path = folder.join("online");
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("reading {}", path.display()))?;
        let all = list(text.trim()).with_context(|| format!("{text:?} is not a list of CPUs"))?;
        Ok(Cpus { folder, online: all.clone(), all })
    }

    /// How many CPUs were online at the start.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Leaves the first `count` CPUs online and takes the others offline.
    pub fn use_first(&mut self, count: usize) -> Result<()> {
        ensure!(count <= self.all.len(), "there are {} CPUs, not {count}", self.all.len());
        let wanted = self.all[..count].to_vec();
        self.set(&wanted)
    }

    fn set(&mut self, wanted: &[usize]) -> Result<()> {
        // CPUs come online before others go offline, so that at least one is always online.
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
        let to = if online { "online" } else { "offline" };
        fs::write(&path, if online { "1" } else { "0" })
            .with_context(|| format!("cannot take CPU {cpu} {to} ({})", path.display()))
    }
}

impl Drop for Cpus {
    fn drop(&mut self) {
        for &cpu in &self.all {
            // A CPU that was never taken offline has no such file, or is online.
            let path = self.folder.join(format!("cpu{cpu}/online"));
            let is_off = fs::read_to_string(path).is_ok_and(|text| text.trim() == "0");
            if is_off && let Err(error) = self.switch(cpu, true) {
                print_error(&format!("warning: {error:#}: do it by hand"));
            }
        }
    }
}

/// Parses a list of CPUs such as `0-3,6`.
fn list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    (!cpus.is_empty()).then_some(cpus)
}

/// A child process. Drop kills it, and it does not outlive this program.
pub struct Process {
    child: Child,
    /// Its name in messages.
    name: String,
}

impl Process {
    /// Starts the command in a process group of its own.
    pub fn start(name: &str, command: &mut Command) -> Result<Process> {
        // SAFETY: between fork and exec there are only these two async-signal-safe system calls.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // With a group of its own, Ctrl-C does not reach the child: this program stops it.
                libc::setpgid(0, 0);
                Ok(())
            });
        }
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("{program} cannot be started"))?;
        Ok(Process { child, name: name.into() })
    }

    /// The process ID.
    pub fn pid(&self) -> libc::pid_t {
        self.child.id() as libc::pid_t
    }

    /// The child, for its streams.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The exit status, or `None` while it runs.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("polling {}", self.name))
    }

    /// Waits for its end. Fails after `limit`, or when a signal asks this program to end.
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
            sleep(POLL_INTERVAL);
        }
    }

    /// Sends SIGTERM, and SIGKILL if it has not ended after `patience`. Returns whether SIGTERM was
    /// enough.
    pub fn stop(&mut self, patience: Duration) -> bool {
        // SAFETY: the child is not yet reaped, so the pid is still its own.
        if let Ok(None) = self.child.try_wait() {
            unsafe { libc::kill(self.pid(), libc::SIGTERM) };
        }
        let start = Instant::now();
        while start.elapsed() < patience {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            sleep(POLL_INTERVAL);
        }
        self.kill();
        false
    }

    /// Kills and reaps it, and kills the rest of its process group.
    fn kill(&mut self) {
        // SAFETY: the process group is the child's own, and the child is not yet reaped.
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
    fn lists_of_cpus_are_parsed() {
        assert_eq!(list("0-3,6"), Some(vec![0, 1, 2, 3, 6]));
        assert_eq!(list("0"), Some(vec![0]));
        for wrong in ["", "0-", "a", "3-0"] {
            assert_eq!(list(wrong), None, "{wrong:?}");
        }
    }

    /// A folder like /sys/devices/system/cpu, with four CPUs, the third of them offline.
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
    fn drop_restores_the_cpus_that_were_online_at_the_start() {
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
    fn a_panic_restores_the_cpus() {
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
    fn drop_kills_the_process() {
        let mut command = Command::new("sleep");
        command.arg("60").stdin(Stdio::null());
        let process = Process::start("a sleeper", &mut command).unwrap();
        let pid = process.pid();
        drop(process);
        // SAFETY: signal 0 only checks whether the process exists.
        assert_eq!(unsafe { libc::kill(pid, 0) }, -1);
        let mut process = Process::start("a sleeper", &mut command).unwrap();
        let error = process.wait(Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("a sleeper did not end"), "{error}");
        assert!(process.stop(Duration::from_secs(5)));
    }
}
