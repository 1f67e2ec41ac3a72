// SPDX-License-Identifier: GPL-2.0-only

//! One boot from start to verdict.

use super::assets::Assets;
use super::console::Console;
use super::host_cpu::HostCpu;
use super::image::Kernel;
use super::qemu::Machine;
use super::{command, progress};
use crate::protocol::{Message, Mode, Orders};
use crate::scenario::{Expect, Scenario};
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How a boot ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// The guest reported a failure.
    Failed(String),
    /// The guest passed or timed out, and its kernel printed a warning or worse.
    KernelWarned(String),
    /// The guest agent sent no hello.
    NeverUp(String),
    /// QEMU ended without a verdict.
    GuestDied(String),
    /// The host killed it at its limit.
    TimedOut(String),
    /// The console proves a fault of QEMU's threads: see `Console::emulators_fault`.
    EmulatorErred(String),
    Interrupted,
}

pub struct Boot<'a> {
    pub assets: &'a Assets,
    pub kernel: &'a Kernel,
    pub scenario: &'static Scenario,
    pub cpus: u32,
    pub mode: Mode,
    /// Input for the scenario: see `Orders`.
    pub detail: &'a str,
    /// The boot is killed after so many seconds of the host in fast mode.
    pub limit_s: u64,
}

/// Called for each message that is neither progress nor verdict.
pub type Listener<'a> = dyn FnMut(&Message) + 'a;

const GLANCE: Duration = Duration::from_millis(200);
/// A boot takes 3 to 10 s. On a busy host about one in 150 stopped before the guest agent ran, with
/// the scheduler not yet loaded and no reason on the console.
const COME_UP_LIMIT: Duration = Duration::from_secs(40);
/// More for each CPU: 72 of them came up within 100 s on a host with two.
const CPU_UP_LIMIT: Duration = Duration::from_secs(3);
/// From the verdict to power-off. Killing QEMU earlier would lose kernel messages.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(10);
/// A kernel that twice in a row does not come up is broken. QEMU failed in 2 of 58 boots beside
/// others.
const ATTEMPTS: u32 = 2;
/// Exact mode takes about 4 s of the host for each second of the guest. A busy host may double that
/// without failing a scenario.
const EXACT_FACTOR: u32 = 10;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// An interrupt ends the boot in progress; the report on earlier boots still appears.
pub fn catch_interrupts() {
    extern "C" fn note(_: libc::c_int) {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores a flag.
        unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
    }
}

/// Whether a signal has asked this program to end.
pub fn was_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

impl Boot<'_> {
    pub fn console_path(&self) -> PathBuf {
        self.assets.logs.join(format!("{}-{}.console.log", self.scenario.name, self.kernel.name))
    }

    /// Boots, receives messages until the end, and judges. A guest that never came up, or that a
    /// fault of QEMU ended, gets a second try, which is reported.
    pub fn run(&self, listener: &mut Listener) -> Result<Outcome> {
        for attempt in 1.. {
            match self.attempt(listener)? {
                outcome if outcome.is_no_verdict() && attempt < ATTEMPTS => {
                    let kept = self.console_path().with_extension("first.log");
                    let _ = fs::rename(self.console_path(), &kept);
                    progress::line(&format!(
                        "    {}: {}, second try (console: {})",
                        self.scenario.name,
                        outcome.name(),
                        kept.display()
                    ));
                }
                outcome => return Ok(outcome),
            }
        }
        unreachable!("the last attempt returns")
    }

    fn attempt(&self, listener: &mut Listener) -> Result<Outcome> {
        let console_path = self.console_path();
        let errors_path = console_path.with_extension("qemu");
        let mut guest = self.start(&console_path, &errors_path)?;
        let start = Instant::now();
        let end = self.listen(&guest, start, listener);
        guest.end(matches!(end, End::Verdict(_)));
        progress::clear();
        let errors = fs::read_to_string(&errors_path).unwrap_or_default();
        let _ = fs::remove_file(&errors_path);
        let console = Console::read(&console_path);
        for fault in console.known_faults() {
            progress::line(&format!("    a known fault of this kernel: {fault}"));
        }
        let emulators = console.emulators_fault().filter(|_| self.mode == Mode::Fast);
        Ok(match end {
            End::Interrupt => Outcome::Interrupted,
            _ if emulators.is_some() => Outcome::EmulatorErred(console.last_words()),
            End::Verdict(Message::Fail { reason }) => Outcome::Failed(reason),
            End::Verdict(_) => match console.trouble() {
                Some(line) => Outcome::KernelWarned(format!("the kernel warned: {line}")),
                None => Outcome::Passed,
            },
            End::Stream if errors.trim().is_empty() => Outcome::GuestDied(console.last_words()),
            End::Stream => Outcome::GuestDied(format!("QEMU: {}", command::last_lines(&errors, 3))),
            End::TooLate(doing) => {
                let reason =
                    format!("killed after {} s; last heard: {doing}", start.elapsed().as_secs());
                match console.trouble() {
                    Some(line) => {
                        Outcome::KernelWarned(format!("{reason}; the kernel warned: {line}"))
                    }
                    None => Outcome::TimedOut(reason),
                }
            }
            End::Nothing => {
                let waited = start.elapsed().as_secs();
                Outcome::NeverUp(format!(
                    "no message from the guest agent in {waited} s; {}",
                    console.last_words()
                ))
            }
        })
    }

    fn start(&self, console: &std::path::Path, errors: &std::path::Path) -> Result<RunningGuest> {
        let orders = Orders {
            scenario: self.scenario.name.into(),
            mode: self.mode,
            scheduler: self.assets.scheduler_name()?,
            detail: self.detail.into(),
        };
        let initramfs = self.assets.initramfs(self.scenario.stress_ng)?;
        let swap = self.swap()?;
        let mut command = self.assets.qemu.boot(&Machine {
            kernel: &self.kernel.image,
            initramfs: &initramfs,
            cpus: self.cpus,
            threads: self.scenario.threads,
            memory_mib: self.scenario.memory_mib,
            mode: self.mode,
            instruction_ns: self.scenario.instruction_ns,
            arguments: &orders.to_arguments(),
            console,
            disk: self.assets.disk.as_deref(),
            swap: swap.as_deref(),
        });
        let errors = File::create(errors).context("creating a file for QEMU's errors")?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        // The guest dies with this process.
        command::die_with_us(&mut command, libc::SIGKILL);
        let host_cpu = match self.mode {
            Mode::Fast => None,
            Mode::Exact => {
                command::lower_priority(&mut command);
                HostCpu::reserve(&self.assets.cache)?
            }
        };
        if let Some(host_cpu) = &host_cpu {
            host_cpu.bind(&mut command);
        }
        let mut child =
            command.spawn().with_context(|| format!("starting {}", command::describe(&command)))?;
        let output = child.stdout.take().context("QEMU's output is piped")?;
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                // A dying guest may cut its last line off.
                if let Ok(message) = serde_json::from_slice(line.trim_ascii())
                    && sender.send(message).is_err()
                {
                    return;
                }
            }
        });
        Ok(RunningGuest { child, messages, _host_cpu: host_cpu })
    }

    /// An empty disk to swap to, if the scenario wants one. It takes room as it is written.
    fn swap(&self) -> Result<Option<PathBuf>> {
        let Scenario { name, swap_mib, .. } = self.scenario;
        if *swap_mib == 0 {
            return Ok(None);
        }
        let path = self.assets.scratch.join(format!("{name}.swap"));
        File::create(&path)
            .and_then(|file| file.set_len(u64::from(*swap_mib) << 20))
            .with_context(|| format!("creating {}", path.display()))?;
        Ok(Some(path))
    }

    fn listen(&self, guest: &RunningGuest, start: Instant, listener: &mut Listener) -> End {
        let factor = if self.mode == Mode::Exact { EXACT_FACTOR } else { 1 };
        let limit = Duration::from_secs(self.limit_s) * factor;
        let come_up_limit = (COME_UP_LIMIT + CPU_UP_LIMIT * self.cpus) * factor;
        let mut doing = "booting".to_string();
        let mut up = false;
        loop {
            progress::show(
                &format!("{} {}", self.kernel.name, self.scenario.name),
                start.elapsed(),
                &doing,
            );
            if was_interrupted() {
                return End::Interrupt;
            }
            if !up && start.elapsed() > come_up_limit {
                return End::Nothing;
            }
            if start.elapsed() > limit {
                return End::TooLate(doing);
            }
            match guest.messages.recv_timeout(GLANCE) {
                Ok(verdict @ (Message::Pass | Message::Fail { .. })) => {
                    return End::Verdict(verdict);
                }
                Ok(Message::Progress { text }) => doing = text,
                Ok(message) => {
                    if let Message::Hello { .. } = message {
                        doing = "the guest is up".into();
                        up = true;
                    }
                    listener(&message);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return End::Stream,
            }
        }
    }
}

enum End {
    Verdict(Message),
    /// No hello within the limit.
    Nothing,
    /// QEMU ended without a verdict.
    Stream,
    TooLate(String),
    Interrupt,
}

struct RunningGuest {
    child: Child,
    messages: Receiver<Message>,
    _host_cpu: Option<HostCpu>,
}

impl RunningGuest {
    /// Waits for a guest that has sent its verdict, and kills any other.
    fn end(&mut self, has_verdict: bool) {
        let start = Instant::now();
        while has_verdict && start.elapsed() < POWER_OFF_LIMIT {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(GLANCE / 10),
                _ => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for RunningGuest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Outcome {
    /// The outcome in words.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed(_) => "failed",
            Outcome::KernelWarned(_) => "failed, with a kernel warning",
            Outcome::NeverUp(_) => "never came up",
            Outcome::GuestDied(_) => "guest died",
            Outcome::TimedOut(_) => "timed out",
            Outcome::EmulatorErred(_) => "the emulator erred",
            Outcome::Interrupted => "interrupted",
        }
    }

    pub fn reason(&self) -> &str {
        match self {
            Outcome::Passed | Outcome::Interrupted => "",
            Outcome::Failed(reason)
            | Outcome::KernelWarned(reason)
            | Outcome::NeverUp(reason)
            | Outcome::GuestDied(reason)
            | Outcome::TimedOut(reason)
            | Outcome::EmulatorErred(reason) => reason,
        }
    }

    /// Whether the outcome says nothing about the scenario.
    fn is_no_verdict(&self) -> bool {
        matches!(self, Outcome::NeverUp(_) | Outcome::EmulatorErred(_))
    }

    /// Whether a host that stopped for seconds, or QEMU's threads, could be the reason. A kernel
    /// that printed a warning or crashed otherwise had a reason of its own.
    pub fn may_be_the_hosts(&self) -> bool {
        matches!(self, Outcome::Failed(_) | Outcome::TimedOut(_) | Outcome::EmulatorErred(_))
    }

    /// Whether this is the outcome that the scenario must have.
    pub fn is_expected(&self, expect: Expect) -> bool {
        match (self, expect) {
            (Outcome::Passed, Expect::Pass) => true,
            (Outcome::Failed(reason) | Outcome::KernelWarned(reason), Expect::Fail(parts)) => {
                parts.iter().any(|part| reason.contains(part))
            }
            (Outcome::GuestDied(_), Expect::Die) => true,
            (Outcome::TimedOut(_), Expect::TimeOut) => true,
            _ => false,
        }
    }
}
