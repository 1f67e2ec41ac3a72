// SPDX-License-Identifier: GPL-2.0-only

//! The task that did not run for so long that the kernel ejected the scheduler: where it waited,
//! whether it was bound, and what had its CPUs.

use super::DUMP_MAX;
use super::dump::{self, Line, Named};

/// Queues of the kernel: the local one of a CPU, the global one, and the one of its own while a
/// scheduler is being unloaded.
const LOCAL: u64 = 0x8000_0000_0000_0002;
const GLOBAL: u64 = 0x8000_0000_0000_0001;
const BYPASS: u64 = 0x8000_0000_0000_0003;
/// Queues of `scx_rustland_core`: those below are of the CPUs of these numbers.
const SHARED: u64 = 1_024;
const SCHEDULER: u64 = 1_025;
/// The task was handed to the scheduler and was not dispatched (`SCX_OPSS_QUEUED`).
const QUEUED: &str = "2";
/// Most CPUs that are listed by number.
const LISTED_MAX: usize = 8;

/// The stalled task, as the dump shows it.
#[derive(Default)]
struct Stalled<'a> {
    /// The CPU under which it is listed.
    cpu: u32,
    queued: bool,
    queue: Option<&'a str>,
    allowed: Vec<u32>,
    stays: bool,
}

/// The task that a CPU runs.
struct Current<'a> {
    cpu: u32,
    task: Named<'a>,
    class: &'a str,
}

/// Describes the stall of the message; `None` if it speaks of none.
pub fn describe(message: &str, dump: &str) -> Option<String> {
    let (task, time) = message.rsplit_once(" failed to run for ")?;
    let (name, pid) = task.strip_suffix(']')?.rsplit_once('[')?;
    let (pid, seconds) = (pid.parse::<u32>().ok()?, time.trim().strip_suffix('s')?);
    let mut text = format!("{name} (pid {pid}) did not run for {seconds} s");
    let (stalled, running) = read(dump, pid);
    let Some(stalled) = stalled else { return Some(text + "; where it waited is unknown") };
    text += &format!(": it waited {}", stalled.place());
    if !stalled.allowed.is_empty() {
        text += &format!(", {}, and {}", stalled.bounds(), stalled.company(&running, dump));
    }
    Some(text)
}

/// The task of this pid, and what each CPU runs.
fn read(dump: &str, pid: u32) -> (Option<Stalled<'_>>, Vec<Current<'_>>) {
    let (mut stalled, mut running) = (None, Vec::new());
    let (mut cpu, mut is_it) = (0, false);
    for text in dump.lines() {
        match dump::line(text) {
            Line::Cpu(number) => cpu = number,
            Line::Current(task, class) => running.push(Current { cpu, task, class }),
            Line::Task(named) => {
                is_it = named.pid == pid;
                if is_it {
                    stalled = Some(Stalled { cpu, ..Stalled::default() });
                }
            }
            Line::Facts if is_it => {
                stalled.iter_mut().for_each(|stalled: &mut Stalled| stalled.take(text));
            }
            _ => {}
        }
    }
    (stalled, running)
}

impl<'a> Stalled<'a> {
    /// Takes the facts of a line.
    fn take(&mut self, line: &'a str) {
        if let Some(state) = dump::fact(line, "ops_state/qseq") {
            self.queued = state.split('/').next() == Some(QUEUED);
        }
        self.queue = dump::fact(line, "dsq_id").or(self.queue);
        if let Some(cpus) = dump::fact(line, "cpus") {
            self.allowed = dump::mask(cpus);
        }
        self.stays |= dump::fact(line, "no_mig").is_some_and(|count| count != "0");
    }

    /// Where it waited.
    fn place(&self) -> String {
        let number = self.queue.and_then(|queue| queue.strip_prefix("0x"));
        match number.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            None if self.queued => "for a decision of the scheduling process".into(),
            None => format!("on CPU {}, in no queue", self.cpu),
            Some(LOCAL) => format!("in the local queue of CPU {}", self.cpu),
            Some(GLOBAL) => "in the kernel's global queue".into(),
            Some(BYPASS) => "in the kernel's own queue".into(),
            Some(SHARED) => "in the shared queue".into(),
            Some(SCHEDULER) => "in the queue of the scheduling process".into(),
            Some(cpu) if cpu < SHARED => format!("in the queue of CPU {cpu}"),
            Some(other) => format!("in queue {other:#x}"),
        }
    }

    /// Where it may run.
    fn bounds(&self) -> String {
        let cpus = match self.allowed[..] {
            [cpu] => format!("may run on CPU {cpu} only"),
            _ if self.allowed.len() > LISTED_MAX => {
                format!("may run on {} CPUs", self.allowed.len())
            }
            _ => format!("may run on {} CPUs ({})", self.allowed.len(), list(&self.allowed)),
        };
        if self.stays { format!("{cpus} but must not move now") } else { cpus }
    }

    /// What had its CPUs.
    fn company(&self, running: &[Current], dump: &str) -> String {
        let theirs: Vec<&Current> =
            running.iter().filter(|current| self.allowed.contains(&current.cpu)).collect();
        let pronoun = if self.allowed.len() == 1 { "that CPU" } else { "them" };
        let real_time: Vec<&&Current> = theirs.iter().filter(|it| is_real_time(it.class)).collect();
        let mut text = match real_time[..] {
            [] if theirs.iter().any(|it| it.class.starts_with("0x")) => {
                format!("the kernel does not say of which class the tasks on {pronoun} were")
            }
            [] => format!("no real-time task had {pronoun}"),
            [only] if self.allowed.len() == 1 => {
                format!("the real-time task {} had that CPU", only.task.label())
            }
            ref several => {
                let tasks: Vec<String> = several
                    .iter()
                    .take(LISTED_MAX)
                    .map(|it| format!("{} (CPU {})", it.task.label(), it.cpu))
                    .collect();
                format!("real-time tasks had {} of them: {}", several.len(), tasks.join(", "))
            }
        };
        if let Some(cpu) = self.idle(running, dump) {
            text += &format!("; CPU {cpu} was idle");
        }
        text
    }

    /// One of its CPUs that ran nothing. A dump that is complete leaves out most of these.
    fn idle(&self, running: &[Current], dump: &str) -> Option<u32> {
        let on = |cpu: u32| running.iter().find(|current| current.cpu == cpu);
        let is_cut = dump.contains("~~~~ TRUNCATED ~~~~") || dump.len() >= DUMP_MAX;
        let is_whole = !is_cut && !running.is_empty();
        self.allowed.iter().copied().find(|&cpu| match on(cpu) {
            Some(current) => current.class == "idle_sched_class",
            // Masks may name CPUs that the machine does not have.
            None => is_whole && running.iter().any(|current| current.cpu > cpu),
        })
    }
}

fn is_real_time(class: &str) -> bool {
    ["rt_sched_class", "dl_sched_class", "stop_sched_class"].contains(&class)
}

fn list(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

impl Named<'_> {
    fn label(&self) -> String {
        format!("{} (pid {})", self.name, self.pid)
    }
}
