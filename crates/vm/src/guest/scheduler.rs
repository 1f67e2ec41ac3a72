// SPDX-License-Identifier: GPL-2.0-only

//! The scheduler under test: starts it, watches it, stops it and checks how it ended.

use super::processes::signal;
use super::statistics::Statistics;
use super::{Guest, autopsy, family, kernel, report};
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Loading takes a second or two in the BPF verifier, longer on one slow virtual CPU.
pub const LOAD_LIMIT: Duration = Duration::from_secs(25);
/// From the signal to the kernel's own scheduler. Unloading waits until every task has changed its
/// class.
pub const STOP_LIMIT: Duration = Duration::from_secs(5);
/// From there to the exit of the process. Closing its tracing programs waits for RCU in the kernel,
/// one program after the other, which on 6.12 can take several seconds.
pub const EXIT_LIMIT: Duration = Duration::from_secs(15);
/// The reader threads may read the last lines after the process has ended.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(2);
/// From the kernel's own scheduler to this one with another worker, which loads beside hogs.
const BACK_LIMIT: Duration = Duration::from_secs(15);
const GLANCE: Duration = Duration::from_millis(20);

/// The file name of this project's scheduler, which must pass every check. Other schedulers must
/// pass the basic ones.
pub const OURS: &str = "scx_pandemonium_user";

/// How the output of a scheduler is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Usual,
    /// Every line also goes to the host at once.
    Live,
    None,
    /// The pipes have no reader any more: every write to them fails.
    Gone,
}

impl Reader {
    /// The streams that it reads.
    fn streams(self, child: &mut Child) -> Vec<Box<dyn Read + Send>> {
        if self == Reader::Gone {
            (child.stdout, child.stderr) = (None, None);
        }
        if self == Reader::None {
            if let Some(pipe) = &child.stdout {
                // SAFETY: a plain system call, on an open pipe.
                unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
            }
            return Vec::new();
        }
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|stream| Box::new(stream) as _),
            child.stderr.take().map(|stream| Box::new(stream) as _),
        ];
        streams.into_iter().flatten().collect()
    }
}

/// A scheduler process.
pub struct Scheduler {
    child: Child,
    /// The end of a full pipe that is not read.
    unread: Option<PipeReader>,
    output: Receiver<String>,
    /// Expected prefix of the name in sysfs.
    ops: String,
    ours: bool,
}

/// How a scheduler ended.
pub struct Ended {
    pub status: ExitStatus,
    /// The lines that it printed since they were last read, from both streams.
    pub output: Vec<String>,
}

impl Scheduler {
    /// Starts the scheduler and waits until the kernel runs under it.
    pub fn start(guest: &Guest, arguments: &[&str]) -> Result<Scheduler> {
        let mut scheduler = Scheduler::spawn(guest, arguments, Reader::Usual)?;
        scheduler.wait_until_enabled()?;
        Ok(scheduler)
    }

    /// The same, with a standard output of one page that is never read.
    pub fn start_unread(guest: &Guest, arguments: &[&str]) -> Result<Scheduler> {
        let mut scheduler = Scheduler::spawn(guest, arguments, Reader::None)?;
        scheduler.wait_until_enabled()?;
        Ok(scheduler)
    }

    /// The same, with a full pipe as standard output and error.
    pub fn start_with_full_output(guest: &Guest, arguments: &[&str]) -> Result<Scheduler> {
        let (unread, pipe) = full_pipe().context("filling a pipe")?;
        let mut command = command(guest, arguments);
        command.stdout(pipe.try_clone()?).stderr(pipe);
        let mut scheduler = Scheduler::spawn_command(guest, command, Reader::None)?;
        scheduler.unread = Some(unread);
        scheduler.wait_until_enabled()?;
        Ok(scheduler)
    }

    /// The same, with closed pipes as standard output and error.
    pub fn start_without_readers(guest: &Guest, arguments: &[&str]) -> Result<Scheduler> {
        let mut scheduler = Scheduler::spawn(guest, arguments, Reader::Gone)?;
        scheduler.wait_until_enabled()?;
        Ok(scheduler)
    }

    /// Starts it twice at the same time, and waits until one of the two has ended and the other one
    /// is loaded. Returns that, and how the first one ended.
    pub fn start_twice(guest: &Guest) -> Result<(Scheduler, Ended)> {
        let spawn = || Scheduler::spawn(guest, &[], Reader::Usual);
        let mut both = [spawn()?, spawn()?];
        let start = Instant::now();
        loop {
            for at in [0, 1] {
                let status = both[at].child.try_wait().context("looking at the scheduler")?;
                if let Some(status) = status {
                    let [first, second] = both;
                    let (ended, mut other) =
                        if at == 0 { (first, second) } else { (second, first) };
                    let ended = Ended { status, output: ended.rest_of_output() };
                    other.wait_until_enabled().with_context(|| ended.describe())?;
                    return Ok((other, ended));
                }
            }
            ensure!(start.elapsed() < LOAD_LIMIT, "two schedulers run at the same time");
            std::thread::sleep(GLANCE);
        }
    }

    /// The same as [`start`](Self::start), and sends every line that it prints to the host at once.
    pub fn start_live(guest: &Guest, arguments: &[&str]) -> Result<Scheduler> {
        let mut scheduler = Scheduler::spawn(guest, arguments, Reader::Live)?;
        scheduler.wait_until_enabled()?;
        Ok(scheduler)
    }

    fn spawn(guest: &Guest, arguments: &[&str], reader: Reader) -> Result<Scheduler> {
        let name = &guest.orders.scheduler;
        report::progress(format!("starting {name} {}", arguments.join(" ")));
        Scheduler::spawn_command(guest, command(guest, arguments), reader)
    }

    fn spawn_command(guest: &Guest, mut command: Command, reader: Reader) -> Result<Scheduler> {
        let name = &guest.orders.scheduler;
        let mut child = command.spawn().with_context(|| format!("starting /bin/{name}"))?;
        let (sender, output) = channel();
        for stream in reader.streams(&mut child) {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    report::log(&line);
                    if reader == Reader::Live {
                        report::telemetry(line.as_str());
                    }
                    // The receiver is dropped with the scheduler. Reading on keeps the pipe from
                    // filling.
                    let _ = sender.send(line);
                }
            });
        }
        let ops = name.strip_prefix("scx_").unwrap_or(name).to_string();
        Ok(Scheduler { child, unread: None, output, ops, ours: name == OURS })
    }

    pub fn pid(&self) -> libc::pid_t {
        self.child.id() as libc::pid_t
    }

    /// CPU time that the scheduler has used so far. The started process is only the supervisor; its
    /// child schedules.
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

    /// Fails unless the kernel reports that it runs under this scheduler.
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

    /// Logs what each of its threads does now, and which other tasks are runnable.
    pub fn log_state(&self) {
        autopsy::log_family(self.pid());
        autopsy::log_runnable();
    }

    /// Lines printed since the last call.
    pub fn printed(&self) -> Vec<String> {
        self.output.try_iter().collect()
    }

    /// Reads the statistics. If the server does not answer, the scheduler hangs, and the log shows
    /// where.
    pub fn statistics(&self) -> Result<Statistics> {
        Statistics::ask().inspect_err(|_| self.log_state())
    }

    /// The end of a successful scenario: the scheduler is still in charge, has no page fault and no
    /// stalled task, and exits at the first signal.
    pub fn finish(self) -> Result<Ended> {
        self.expect_in_charge()?;
        kernel::expect_no_stall()?;
        self.expect_no_page_faults()?;
        self.stop(libc::SIGTERM, STOP_LIMIT)
    }

    /// A page fault of the scheduler could wait for memory that only a task waiting for the
    /// scheduler can free.
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

    /// Sends the signal, and demands exit code 0 and the kernel's own scheduler.
    pub fn stop(mut self, signal: libc::c_int, limit: Duration) -> Result<Ended> {
        report::progress("stopping the scheduler");
        // SAFETY: a child of this process, not yet waited for.
        unsafe { libc::kill(self.pid(), signal) };
        kernel::wait_for_state("disabled", limit)
            .with_context(|| format!("after signal {signal} to the scheduler"))?;
        let ended = self.wait_for_end(EXIT_LIMIT)?;
        ensure!(ended.status.code() == Some(0), "after the signal it failed: {}", ended.describe());
        ended.expect_no_panic()?;
        Ok(ended)
    }

    /// Kills the worker process, as the kernel does when memory runs out. Demands the kernel's own
    /// scheduler within the limit, and then this one again, with another worker. Returns how long
    /// the latter took.
    pub fn replace_worker(&self, limit: Duration) -> Result<Duration> {
        let start = Instant::now();
        signal(self.worker()?, libc::SIGKILL).context("killing the worker")?;
        kernel::wait_for_state("disabled", limit).context("after its worker was killed")?;
        report::note(format!("the kernel's own again after {} ms", start.elapsed().as_millis()));
        let start = Instant::now();
        while let Err(why) = self.expect_in_charge() {
            if start.elapsed() > BACK_LIMIT {
                return Err(why.context(format!("not in charge after {} s", BACK_LIMIT.as_secs())));
            }
            std::thread::sleep(GLANCE);
        }
        Ok(start.elapsed())
    }

    /// The worker process: the only child of the supervisor.
    pub fn worker(&self) -> Result<libc::pid_t> {
        match family::children_of(self.pid())[..] {
            [worker] => Ok(worker),
            ref others => bail!("the scheduler has {} children, not one", others.len()),
        }
    }

    /// Its processes, the one that schedules last.
    pub fn processes(&self) -> Vec<libc::pid_t> {
        let mut processes = vec![self.pid()];
        processes.extend(family::children_of(self.pid()));
        processes
    }

    /// Kills it, whatever it does now, and waits for the kernel's own scheduler.
    pub fn kill(mut self) -> Result<()> {
        for process in self.processes() {
            // SAFETY: a plain system call.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
        self.wait_for_end(EXIT_LIMIT)?;
        kernel::wait_for_state("disabled", STOP_LIMIT)
    }

    /// Waits for an end that the scenario caused otherwise.
    pub fn wait_for_end(&mut self, limit: Duration) -> Result<Ended> {
        match wait_with_limit(&mut self.child, limit)? {
            Some(status) => Ok(Ended { status, output: self.rest_of_output() }),
            None => bail!("the scheduler is still there after {} s", limit.as_secs()),
        }
    }

    /// After the end the streams close, and with them the channel, unless a child process still
    /// holds them.
    fn rest_of_output(&self) -> Vec<String> {
        std::iter::from_fn(|| self.output.recv_timeout(LAST_WORDS_LIMIT).ok()).collect()
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // A scheduler that still runs here belongs to a failed check: log its state as evidence.
        if let Ok(None) = self.child.try_wait() {
            self.log_state();
            let _ = self.child.kill();
        }
    }
}

impl Ended {
    /// How it ended, and the last lines that it printed, for a message.
    pub fn describe(&self) -> String {
        let how = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "no exit code".into(),
        };
        let skipped = self.output.len().saturating_sub(8);
        format!("{how}, after printing: {}", self.output[skipped..].join(" | "))
    }

    /// Whether a line that it printed contains this.
    pub fn tells(&self, text: &str) -> bool {
        self.output.iter().any(|line| line.contains(text))
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

/// The program with its arguments and both streams piped, for scenarios that start it in unusual
/// ways. It is a job of its own, as a shell starts it.
pub fn command(guest: &Guest, arguments: &[&str]) -> Command {
    let mut command = Command::new(format!("/bin/{}", guest.orders.scheduler));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0);
    command
}

/// A pipe into which nothing more can be written.
fn full_pipe() -> std::io::Result<(PipeReader, PipeWriter)> {
    let (reader, mut writer) = std::io::pipe()?;
    // SAFETY: a plain system call, on an open pipe.
    let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
    writer.write_all(&vec![b'.'; usize::try_from(size).unwrap_or_default()])?;
    Ok((reader, writer))
}

/// Waits for the end; `None` if it does not end within the limit.
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

/// The kernel's reason for ejecting a scheduler, if its log has one.
fn last_sched_ext_message() -> String {
    let messages = kernel::messages();
    let last = messages.lines().rfind(|line| line.contains("sched_ext"));
    last.unwrap_or("the kernel log does not say why").to_string()
}
