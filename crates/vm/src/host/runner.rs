// SPDX-License-Identifier: GPL-2.0-only

//! One boot from start to verdict.

use super::assets::Assets;
use super::console::Console;
use super::kernel::Kernel;
use super::qemu::Machine;
use super::seat::Seat;
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

/// How a boot ended. Only the guest can fail; dying and being late are told apart from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// The guest said so.
    Failed(String),
    /// The guest passed, or was late, and its kernel printed a warning or worse.
    Complained(String),
    /// The agent never said hello.
    NeverUp(String),
    /// QEMU ended without a verdict.
    GuestDied(String),
    /// We ended it.
    TimedOut(String),
    /// The console proves a fault of QEMU's threads: `Console::emulators_fault`.
    EmulatorErred(String),
    Interrupted,
}

pub struct Boot<'a> {
    pub assets: &'a Assets,
    pub kernel: &'a Kernel,
    pub scenario: &'static Scenario,
    pub cpus: u32,
    pub mode: Mode,
    /// For the scenario: see `Orders`.
    pub detail: &'a str,
    /// The boot is killed after so many seconds of the host in fast mode.
    pub limit_s: u64,
}

/// What to do with messages that are neither progress nor verdict.
pub type Listener<'a> = dyn FnMut(&Message) + 'a;

const GLANCE: Duration = Duration::from_millis(200);
/// A boot takes 3 to 10 s. One in some 150, on a busy host, was seen to stop short of our agent,
/// for a reason that its console did not tell; the scheduler was not even loaded.
const COME_UP_LIMIT: Duration = Duration::from_secs(40);
/// From verdict to power off; later messages of the kernel would be lost.
const FAREWELL: Duration = Duration::from_secs(10);
/// A kernel that does not come up twice in a row has a reason. QEMU erred in 2 of 58 boots beside
/// others.
const ATTEMPTS: u32 = 2;
/// Exact mode takes about 4 s of the host for each of the guest; a busy host may double that, and
/// is no reason to fail.
const EXACT_FACTOR: u32 = 10;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Ctrl-C ends the boot in progress, not the report of what was found until then.
pub fn catch_interrupts() {
    extern "C" fn note(_: libc::c_int) {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores a flag.
        unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
    }
}

/// Whether a signal asked for the end.
pub fn was_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

impl Boot<'_> {
    pub fn console_path(&self) -> PathBuf {
        self.assets.logs.join(format!("{}-{}.console.log", self.scenario.name, self.kernel.name))
    }

    /// Boots, listens until the end, and judges. Only a guest that never came up, or that a fault
    /// of QEMU ended, gets a second chance, and that is said.
    pub fn run(&self, listener: &mut Listener) -> Result<Outcome> {
        for attempt in 1.. {
            match self.attempt(listener)? {
                outcome if outcome.is_no_verdict() && attempt < ATTEMPTS => {
                    let kept = self.console_path().with_extension("first.log");
                    let _ = fs::rename(self.console_path(), &kept);
                    progress::line(&format!(
                        "    {}: {}, once more (console: {})",
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
        let complaints_path = console_path.with_extension("qemu");
        let mut guest = self.start(&console_path, &complaints_path)?;
        let start = Instant::now();
        let heard = self.listen(&guest, start, listener);
        guest.end(matches!(heard, Heard::Verdict(_)));
        progress::clear();
        let violations = fs::read_to_string(&complaints_path).unwrap_or_default();
        let _ = fs::remove_file(&complaints_path);
        let console = Console::read(&console_path);
        for fault in console.known_faults() {
            progress::line(&format!("    a known fault of this kernel, not ours: {fault}"));
        }
        let emulators = console.emulators_fault().filter(|_| self.mode == Mode::Fast);
        Ok(match heard {
            Heard::Interrupt => Outcome::Interrupted,
            _ if emulators.is_some() => Outcome::EmulatorErred(console.last_words()),
            Heard::Verdict(Message::Fail { reason }) => Outcome::Failed(reason),
            Heard::Verdict(_) => match console.trouble() {
                Some(line) => Outcome::Complained(format!("the kernel complained: {line}")),
                None => Outcome::Passed,
            },
            Heard::End if violations.trim().is_empty() => Outcome::GuestDied(console.last_words()),
            Heard::End => {
                Outcome::GuestDied(format!("QEMU: {}", command::last_lines(&violations, 3)))
            }
            Heard::TooLate(doing) => {
                let reason =
                    format!("killed after {} s; last heard: {doing}", start.elapsed().as_secs());
                match console.trouble() {
                    Some(line) => {
                        Outcome::Complained(format!("{reason}; the kernel complained: {line}"))
                    }
                    None => Outcome::TimedOut(reason),
                }
            }
            Heard::Nothing => {
                let waited = start.elapsed().as_secs();
                Outcome::NeverUp(format!(
                    "no word from the agent in {waited} s; {}",
                    console.last_words()
                ))
            }
        })
    }

    fn start(
        &self,
        console: &std::path::Path,
        violations: &std::path::Path,
    ) -> Result<RunningGuest> {
        let orders = Orders {
            scenario: self.scenario.name.into(),
            mode: self.mode,
            scheduler: self.assets.scheduler_name()?,
            detail: self.detail.into(),
        };
        let initramfs = self.assets.initramfs(self.scenario.stress_ng)?;
        let mut command = self.assets.qemu.boot(&Machine {
            kernel: &self.kernel.image,
            initramfs: &initramfs,
            cpus: self.cpus,
            mode: self.mode,
            arguments: &orders.to_arguments(),
            console,
        });
        let violations =
            File::create(violations).context("creating a file for QEMU's complaints")?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(violations);
        // A harness that is killed takes its guest along.
        command::die_with_us(&mut command, libc::SIGKILL);
        let seat = match self.mode {
            Mode::Fast => None,
            Mode::Exact => {
                command::make_way(&mut command);
                Seat::take(&self.assets.cache)?
            }
        };
        if let Some(seat) = &seat {
            seat.give(&mut command);
        }
        let mut child =
            command.spawn().with_context(|| format!("starting {}", command::describe(&command)))?;
        let output = child.stdout.take().context("QEMU's output is piped")?;
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                // A line cut off by a dying guest is no message.
                if let Ok(message) = serde_json::from_slice(line.trim_ascii())
                    && sender.send(message).is_err()
                {
                    return;
                }
            }
        });
        Ok(RunningGuest { child, messages, _seat: seat })
    }

    fn listen(&self, guest: &RunningGuest, start: Instant, listener: &mut Listener) -> Heard {
        let factor = if self.mode == Mode::Exact { EXACT_FACTOR } else { 1 };
        let limit = Duration::from_secs(self.limit_s) * factor;
        let mut doing = "booting".to_string();
        let mut up = false;
        loop {
            progress::show(
                &format!("{} {}", self.kernel.name, self.scenario.name),
                start.elapsed(),
                &doing,
            );
            if was_interrupted() {
                return Heard::Interrupt;
            }
            if !up && start.elapsed() > COME_UP_LIMIT * factor {
                return Heard::Nothing;
            }
            if start.elapsed() > limit {
                return Heard::TooLate(doing);
            }
            match guest.messages.recv_timeout(GLANCE) {
                Ok(verdict @ (Message::Pass | Message::Fail { .. })) => {
                    return Heard::Verdict(verdict);
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
                Err(RecvTimeoutError::Disconnected) => return Heard::End,
            }
        }
    }
}

enum Heard {
    Verdict(Message),
    /// Not even a hello.
    Nothing,
    End,
    TooLate(String),
    Interrupt,
}

struct RunningGuest {
    child: Child,
    messages: Receiver<Message>,
    _seat: Option<Seat>,
}

impl RunningGuest {
    /// Waits for a guest that said goodbye, kills any other.
    fn end(&mut self, goodbye: bool) {
        let start = Instant::now();
        while goodbye && start.elapsed() < FAREWELL {
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
    /// In one word.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed(_) => "failed",
            Outcome::Complained(_) => "failed, with a complaint of the kernel",
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
            | Outcome::Complained(reason)
            | Outcome::NeverUp(reason)
            | Outcome::GuestDied(reason)
            | Outcome::TimedOut(reason)
            | Outcome::EmulatorErred(reason) => reason,
        }
    }

    /// Whether it says nothing of the scenario.
    fn is_no_verdict(&self) -> bool {
        matches!(self, Outcome::NeverUp(_) | Outcome::EmulatorErred(_))
    }

    /// Whether a host that stood still for some seconds could be the reason, or QEMU's threads are.
    /// A kernel that complained or died for another reason had one of its own.
    pub fn may_be_the_hosts(&self) -> bool {
        matches!(self, Outcome::Failed(_) | Outcome::TimedOut(_) | Outcome::EmulatorErred(_))
    }

    /// Whether this is what the scenario is meant to end in.
    pub fn is_expected(&self, expect: Expect) -> bool {
        match (self, expect) {
            (Outcome::Passed, Expect::Pass) => true,
            (Outcome::Failed(reason) | Outcome::Complained(reason), Expect::Fail(parts)) => {
                parts.iter().any(|part| reason.contains(part))
            }
            (Outcome::GuestDied(_), Expect::Die) => true,
            (Outcome::TimedOut(_), Expect::TimeOut) => true,
            _ => false,
        }
    }
}
