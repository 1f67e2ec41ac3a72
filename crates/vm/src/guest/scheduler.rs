// SPDX-License-Identifier: GPL-2.0-only

//! The scheduler under test: started, watched, stopped, and judged by what it leaves behind.

use super::statistics::Statistics;
use super::{Guest, autopsy, family, kernel, report};
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Loading takes a second or two of verifier time, more on one slow virtual CPU.
pub const LOAD_LIMIT: Duration = Duration::from_secs(25);
/// From signal to the kernel's own scheduler; unloading waits for every task to change class.
pub const STOP_LIMIT: Duration = Duration::from_secs(5);
/// From there to the exit of the process: closing its tracing programs waits for RCU in the kernel,
/// one after the other, which on 6.12 can take several seconds and is nothing we decide.
const EXIT_LIMIT: Duration = Duration::from_secs(15);
/// The reader threads get the last lines after the process is gone.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(2);
const GLANCE: Duration = Duration::from_millis(20);

/// The file name of our own program, to which the full contract applies; a stand-in owes only the
/// basics.
const OURS: &str = "scx_pandemonium_user";

/// A scheduler process.
pub struct Scheduler {
    child: Child,
    output: Receiver<String>,
    /// Expected start of the name in sysfs.
    ops: String,
    ours: bool,
}

/// How it ended.
pub struct Ended {
    pub status: ExitStatus,
    /// Everything it printed since the last look, both streams.
    pub output: Vec<String>,
}

impl Scheduler {
    /// Starts it and waits until the kernel runs under it.
    pub fn start(guest: &Guest, arguments: &[&str]) -> Result<Scheduler> {
        let mut scheduler = Scheduler::spawn(guest, arguments, false)?;
        scheduler.wait_until_enabled()?;
        Ok(scheduler)
    }

    /// The same, and every line it prints goes to the host at once.
    pub fn start_live(guest: &Guest, arguments: &[&str]) -> Result<Scheduler> {
        let mut scheduler = Scheduler::spawn(guest, arguments, true)?;
        scheduler.wait_until_enabled()?;
        Ok(scheduler)
    }

    fn spawn(guest: &Guest, arguments: &[&str], live: bool) -> Result<Scheduler> {
        let name = &guest.orders.scheduler;
        report::progress(format!("starting {name} {}", arguments.join(" ")));
        let mut child =
            command(guest, arguments).spawn().with_context(|| format!("starting /bin/{name}"))?;
        let (sender, output) = channel();
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|stream| Box::new(stream) as _),
            child.stderr.take().map(|stream| Box::new(stream) as _),
        ];
        for stream in streams.into_iter().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    report::log(&line);
                    if live {
                        report::telemetry(line.as_str());
                    }
                    // The receiver goes away with the scheduler; reading on keeps the pipe from
                    // filling.
                    let _ = sender.send(line);
                }
            });
        }
        let ops = name.strip_prefix("scx_").unwrap_or(name).to_string();
        Ok(Scheduler { child, output, ops, ours: name == OURS })
    }

    pub fn pid(&self) -> libc::pid_t {
        self.child.id() as libc::pid_t
    }

    /// CPU time that it has used so far. The process that we started only watches over the one that
    /// decides.
    pub fn cpu_time_ns(&self) -> Result<u64> {
        family::cpu_time_ns(self.pid())
    }

    fn wait_until_enabled(&mut self) -> Result<()> {
        let start = Instant::now();
        while kernel::sched_ext_state()? != "enabled" {
            if let Some(status) = self.child.try_wait().context("looking at the scheduler")? {
                let output = self.rest_of_output();
                bail!(
                    "the scheduler ended before it was loaded: {}",
                    Ended { status, output }.describe()
                );
            }
            ensure!(
                start.elapsed() < LOAD_LIMIT,
                "not loaded after {} s; it printed: {}",
                LOAD_LIMIT.as_secs(),
                self.output.try_iter().collect::<Vec<_>>().join(" | ")
            );
            std::thread::sleep(GLANCE);
        }
        self.expect_in_charge()
    }

    /// The kernel itself says that it runs under this scheduler.
    pub fn expect_in_charge(&self) -> Result<()> {
        let state = kernel::sched_ext_state()?;
        ensure!(
            state == "enabled",
            "sched_ext is {state}, not enabled: {}",
            last_sched_ext_message()
        );
        let ops = kernel::sched_ext_ops()?;
        ensure!(ops.starts_with(&self.ops), "the kernel runs under {ops}, not under {}", self.ops);
        Ok(())
    }

    /// For the console log: what each of its threads is doing now, and who else wants to run.
    pub fn log_state(&self) {
        autopsy::log_family(self.pid());
        autopsy::log_runnable();
    }

    /// Lines printed since the last look.
    pub fn printed(&self) -> Vec<String> {
        self.output.try_iter().collect()
    }

    /// A server that does not answer belongs to a scheduler that hangs: the log then says where.
    pub fn statistics(&self) -> Result<Statistics> {
        Statistics::ask().inspect_err(|_| self.log_state())
    }

    /// A scenario that ends well ends here: still in charge, no page fault, no lost task, leaves at
    /// the first request.
    pub fn finish(self) -> Result<Ended> {
        self.expect_in_charge()?;
        kernel::expect_no_stall()?;
        self.expect_no_page_faults()?;
        self.stop(libc::SIGTERM, STOP_LIMIT)
    }

    /// A fault of the scheduler's own could wait for memory that only a task it should schedule can
    /// free.
    pub fn expect_no_page_faults(&self) -> Result<()> {
        if !self.ours {
            return Ok(());
        }
        let statistics = self.statistics()?;
        let minor = statistics.count("page_faults_minor")?;
        let major = statistics.count("page_faults_major")?;
        let health = statistics.text("health")?;
        ensure!(
            minor + major == 0,
            "page faults while scheduling: {minor} minor, {major} major; health: {health}"
        );
        Ok(())
    }

    /// Asks it to leave and demands exit code 0 and the kernel's own scheduler back.
    pub fn stop(mut self, signal: libc::c_int, limit: Duration) -> Result<Ended> {
        report::progress("stopping the scheduler");
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(self.pid(), signal) };
        kernel::wait_for_state("disabled", limit)
            .with_context(|| format!("after signal {signal} to the scheduler"))?;
        let ended = self.wait_for_end(EXIT_LIMIT)?;
        ensure!(
            ended.status.code() == Some(0),
            "asked to stop, it ended badly: {}",
            ended.describe()
        );
        ended.expect_no_panic()?;
        Ok(ended)
    }

    /// Waits for an end that someone else caused.
    /// Kills the process that decides, as the kernel does when memory runs out, and demands the
    /// kernel's own scheduler back in time.
    pub fn end_by_killed_worker(mut self, limit: Duration) -> Result<Ended> {
        let start = Instant::now();
        // SAFETY: a plain system call.
        ensure!(unsafe { libc::kill(self.worker()?, libc::SIGKILL) } == 0, "it is gone already");
        kernel::wait_for_state("disabled", limit).context("after its worker was killed")?;
        report::note(format!("the kernel's own again after {} ms", start.elapsed().as_millis()));
        self.wait_for_end(EXIT_LIMIT)
    }

    /// The only child of the process that we started.
    fn worker(&self) -> Result<libc::pid_t> {
        match family::children_of(self.pid())[..] {
            [worker] => Ok(worker),
            ref others => bail!("the scheduler has {} children, not one", others.len()),
        }
    }

    pub fn wait_for_end(&mut self, limit: Duration) -> Result<Ended> {
        match wait_with_limit(&mut self.child, limit)? {
            Some(status) => Ok(Ended { status, output: self.rest_of_output() }),
            None => bail!("the scheduler is still there after {} s", limit.as_secs()),
        }
    }

    /// After the end the streams close, and so does the channel; unless something it started lives
    /// on with them.
    fn rest_of_output(&self) -> Vec<String> {
        std::iter::from_fn(|| self.output.recv_timeout(LAST_WORDS_LIMIT).ok()).collect()
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // Still running here means that a check failed: what it does instead belongs into the
        // evidence.
        if let Ok(None) = self.child.try_wait() {
            self.log_state();
            let _ = self.child.kill();
        }
    }
}

impl Ended {
    /// For a message: how it ended, and its last words.
    pub fn describe(&self) -> String {
        let how = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "no exit code".into(),
        };
        let skipped = self.output.len().saturating_sub(8);
        format!("{how}, after printing: {}", self.output[skipped..].join(" | "))
    }

    pub fn expect_no_panic(&self) -> Result<()> {
        match self
            .output
            .iter()
            .find(|line| line.contains("panicked") || line.contains("stack backtrace"))
        {
            Some(line) => bail!("the scheduler panicked: {line}"),
            None => Ok(()),
        }
    }
}

/// The program with its arguments, both streams piped; for scenarios that start it in unusual ways.
pub fn command(guest: &Guest, arguments: &[&str]) -> Command {
    let mut command = Command::new(format!("/bin/{}", guest.orders.scheduler));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `None` when the limit passed first.
pub fn wait_with_limit(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("waiting for a program")? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            return Ok(None);
        }
        std::thread::sleep(GLANCE);
    }
}

/// Why the kernel let a scheduler go, as far as its log tells.
fn last_sched_ext_message() -> String {
    let messages = kernel::messages();
    let last = messages.lines().rfind(|line| line.contains("sched_ext"));
    last.unwrap_or("the kernel log does not say why").to_string()
}
