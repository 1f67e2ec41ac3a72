// SPDX-License-Identifier: GPL-2.0-only

//! Thousands of tasks: threads of the agent, since that many processes would need more memory than
//! the machine has. They are ordinary tasks, unlike the agent's own thread.

use super::clock::{now_ns, sleep_until};
use super::futex::futex;
use super::work::{self, HOG_ROUNDS};
use anyhow::{Context, Result, bail};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Limits of the kernel on numbers of tasks and of parts of a process's memory, raised for it.
const LIMITS: [(&str, &str); 3] = [
    ("/proc/sys/kernel/pid_max", "4194304"),
    ("/proc/sys/kernel/threads-max", "200000"),
    ("/proc/sys/vm/max_map_count", "2000000"),
];
/// The pid of the newest task; the next one gets the number after what is written.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";
/// A task that is forked at the same time may take a chosen pid.
const ATTEMPTS: usize = 16;
const STACK: usize = 16 << 10;
/// A unit of a hog's work, in rounds: shorter than the shortest slice, so that the time between two
/// units tells how long it waited.
const UNIT: u32 = HOG_ROUNDS / 32;
/// A hog that was interrupted for longer has lost its turn. An urgent task runs for less.
const TURN_PAUSE_NS: u64 = 1_000_000;

/// What a member does.
#[derive(Clone, Copy, Debug)]
pub enum Life {
    /// Never sleeps.
    Hog,
    /// Sleeps until the end.
    Asleep,
    /// Wakes up once in each period, and works a little.
    Ticker { period: Duration },
}

/// What is known of a member.
#[derive(Default)]
pub struct Member {
    pid: AtomicI32,
    /// Units of work done.
    steps: AtomicU64,
    /// The times between two units of a hog; how late a ticker woke up.
    longest_ns: AtomicU64,
    sum_ns: AtomicU64,
    /// The most units of a hog in one turn.
    most: AtomicU64,
}

impl Member {
    pub fn pid(&self) -> libc::pid_t {
        self.pid.load(Relaxed)
    }

    pub fn steps(&self) -> u64 {
        self.steps.load(Relaxed)
    }

    /// The longest of its times.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_ns.load(Relaxed))
    }

    /// The mean of its times.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.load(Relaxed) / self.steps().max(1))
    }

    /// The most units that it did in one turn.
    pub fn most(&self) -> u64 {
        self.most.load(Relaxed)
    }

    /// Begins to count anew.
    pub fn begin_anew(&self) {
        for count in [&self.steps, &self.longest_ns, &self.sum_ns, &self.most] {
            count.store(0, Relaxed);
        }
    }

    fn done(&self, took_ns: u64) {
        self.steps.fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(took_ns, Relaxed);
        self.longest_ns.fetch_max(took_ns, Relaxed);
    }

    fn live(&self, life: Life, end: &End) {
        // SAFETY: a plain call.
        self.pid.store(unsafe { libc::gettid() }, Relaxed);
        match life {
            Life::Hog => self.compute(end),
            Life::Asleep => end.wait(),
            Life::Ticker { period } => self.tick(period.as_nanos() as u64, end),
        }
    }

    fn compute(&self, end: &End) {
        let (mut last, mut turn) = (now_ns(), 0);
        while !end.has_come() {
            work::burn(UNIT);
            let now = now_ns();
            self.done(now - last);
            // A unit that took far longer was interrupted: it belongs to the next turn.
            turn = if now - last < TURN_PAUSE_NS { turn + 1 } else { 1 };
            self.most.fetch_max(turn, Relaxed);
            last = now;
        }
    }

    fn tick(&self, period_ns: u64, end: &End) {
        let mut due = now_ns() + period_ns * (self.pid() as u64 % 64) / 64;
        while !end.has_come() {
            sleep_until(due);
            self.done(now_ns().saturating_sub(due));
            work::burn(UNIT);
            due = now_ns().max(due) + period_ns;
        }
    }
}

/// Tells all members to end.
#[derive(Default)]
struct End {
    /// 1 when it has come; a futex.
    word: AtomicU32,
}

impl End {
    fn has_come(&self) -> bool {
        self.word.load(Relaxed) != 0
    }

    fn wait(&self) {
        while !self.has_come() {
            futex(&self.word, libc::FUTEX_WAIT, 0);
        }
    }

    fn tell(&self) {
        self.word.store(1, Relaxed);
        futex(&self.word, libc::FUTEX_WAKE, i32::MAX as u32);
    }
}

/// The members. Dropping the value ends them.
pub struct Crowd {
    members: Vec<Arc<Member>>,
    threads: Vec<JoinHandle<()>>,
    end: Arc<End>,
}

impl Crowd {
    /// An empty crowd, on a machine that has room for it.
    pub fn prepare() -> Result<Crowd> {
        for (path, value) in LIMITS {
            fs::write(path, value).with_context(|| format!("writing {value} to {path}"))?;
        }
        Ok(Crowd { members: Vec::new(), threads: Vec::new(), end: Arc::default() })
    }

    /// Adds so many members.
    pub fn add(&mut self, count: usize, life: Life) -> Result<()> {
        (0..count).try_for_each(|_| self.start(life).map(drop))
    }

    /// Adds a member with this pid. If a task that is forked at the same time takes it, the member
    /// gets a pid that is equal modulo `modulus`.
    pub fn add_congruent(&mut self, pid: usize, modulus: usize, life: Life) -> Result<()> {
        let is_equal = |got: libc::pid_t| got as usize % modulus == pid % modulus;
        for attempt in 0..ATTEMPTS {
            let last = pid + attempt * modulus * ATTEMPTS - 1;
            fs::write(LAST_PID, last.to_string()).context("choosing a pid")?;
            let member = self.start(life)?;
            // The thread writes its pid when it first runs.
            while member.pid() == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            if is_equal(member.pid()) {
                return Ok(());
            }
            // It stays as one more task, apart from the members.
            self.members.pop();
        }
        bail!("no task gets the pid {pid}")
    }

    pub fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    fn start(&mut self, life: Life) -> Result<Arc<Member>> {
        let member = Arc::new(Member::default());
        let (own, end) = (Arc::clone(&member), Arc::clone(&self.end));
        let thread = Builder::new().stack_size(STACK).spawn(move || own.live(life, &end));
        let number = self.members.len();
        self.threads.push(thread.with_context(|| format!("starting thread {number}"))?);
        self.members.push(Arc::clone(&member));
        Ok(member)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.end.tell();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
