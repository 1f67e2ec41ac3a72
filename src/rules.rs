// SPDX-License-Identifier: GPL-2.0-only

//! Rules for processes, in the supervisor: a thread looks at the processes once a second, and soon
//! after programs were executed, and publishes to the worker which of them get which treatment.

use super::machine::{self, Machine};
use super::mutex::lock;
use super::output;
use super::shared::Shared;
use pandemonium_engine::task::Pid;
use pandemonium_engine::topology::CpuMask;
use pandemonium_engine::treatment::{ASSIGNED_MAX, Assignment, Treatment};
use pandemonium_host::failure::Failure;
use pandemonium_rules::{CpuKinds, Processes, Rules, Users};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time between two looks at the processes.
const INTERVAL: Duration = Duration::from_millis(1_000);
/// The shortest, while programs are executed. A look at 300 processes takes some 5 ms.
const INTERVAL_MIN: Duration = Duration::from_millis(250);
/// How often it looks whether programs were executed.
const GLANCE: Duration = Duration::from_millis(50);

/// The rules in force, and what was published.
pub struct RuleKeeper {
    paths: Vec<PathBuf>,
    shared: Arc<Shared>,
    state: Mutex<State>,
    /// The number of rules, and of the processes that they apply to.
    counts: [AtomicUsize; 2],
}

#[derive(Default)]
struct State {
    rules: Rules,
    processes: Processes,
    users: Users,
    /// The CPUs at the last look at which they had changed.
    machine: Option<CpuKinds>,
    published: (Vec<Treatment>, Vec<Assignment>),
    has_warned: bool,
}

impl RuleKeeper {
    /// Reads the rules, and publishes the processes that they apply to for the first time. `None`
    /// without files.
    pub fn load(paths: &[PathBuf], shared: Arc<Shared>) -> Result<Option<Arc<Self>>, Failure> {
        if paths.is_empty() {
            return Ok(None);
        }
        let state = Mutex::new(State::default());
        let counts = Default::default();
        let keeper = RuleKeeper { paths: paths.to_vec(), shared, state, counts };
        keeper.reload().map_err(Failure::Usage)?;
        Ok(Some(Arc::new(keeper)))
    }

    /// Starts the thread, which ends with the process.
    pub fn start(self: &Arc<Self>) {
        let keeper = Arc::clone(self);
        let execs = move || keeper.shared.counters.read().execs;
        let keeper = Arc::clone(self);
        thread::spawn(move || {
            let (mut looked, mut seen) = (Instant::now(), execs());
            loop {
                thread::sleep(GLANCE);
                let (since, now) = (looked.elapsed(), execs());
                if since >= INTERVAL || now != seen && since >= INTERVAL_MIN {
                    (looked, seen) = (Instant::now(), now);
                    keeper.look();
                }
            }
        });
    }

    /// Reads the files again. Returns the number of rules; an error is a sentence, and the rules
    /// stay as they are.
    pub fn reload(&self) -> Result<usize, String> {
        let rules = Rules::read(&self.paths)?;
        let count = rules.rules().len();
        lock(&self.state).rules = rules;
        self.look();
        Ok(count)
    }

    /// The number of rules, and of the processes that they apply to. Does not wait for a look.
    pub fn counts(&self) -> (usize, usize) {
        let [rules, processes] = &self.counts;
        (rules.load(Ordering::Relaxed), processes.load(Ordering::Relaxed))
    }

    /// Looks at the processes, and publishes what has changed.
    fn look(&self) {
        let mut state = lock(&self.state);
        let State { rules, processes, users, machine, has_warned, .. } = &mut *state;
        processes.refresh();
        users.refresh();
        let kinds = kinds(machine);
        let treatments = rules.rules().iter().map(|rule| rule.treatment(kinds)).collect();
        let own = std::process::id() as i32;
        let found =
            rules.apply(processes, users).into_iter().filter(|found| found.process.pid != own);
        let mut assigned: Vec<Assignment> = found
            .filter_map(|found| {
                let treatment = u8::try_from(found.rule).ok()?;
                Some(Assignment { pid: Pid::new(found.process.pid)?, treatment })
            })
            .collect();
        let left_out = assigned.len().saturating_sub(ASSIGNED_MAX);
        assigned.truncate(ASSIGNED_MAX);
        if left_out > 0 && !std::mem::replace(has_warned, true) {
            output::warn(&format!(
                "the rules apply to more than {ASSIGNED_MAX} processes: {left_out} are left out"
            ));
        }
        let counts = [rules.rules().len(), assigned.len()];
        for (cell, count) in self.counts.iter().zip(counts) {
            cell.store(count, Ordering::Relaxed);
        }
        let list = (treatments, assigned);
        if list != state.published {
            self.shared.assignments.publish(&list.0, &list.1);
            state.published = list;
        }
    }
}

/// The CPUs by kind, read again if others are online than in `known`.
fn kinds(known: &mut Option<CpuKinds>) -> &CpuKinds {
    let online = machine::online();
    if known.is_none_or(|known| online.is_some_and(|online| online != known.online)) {
        // While a CPU comes or goes, the kernel's files may contradict each other.
        if let Ok(machine) = Machine::observe() {
            *known = Some(machine.kinds());
        }
    }
    known.get_or_insert(CpuKinds { online: CpuMask::EMPTY, slow: CpuMask::EMPTY })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::assignments::AssignmentList;
    use pandemonium_engine::topology::Domain;

    #[test]
    fn matching_processes_reach_the_worker_and_a_bad_file_changes_nothing() {
        let shared = Arc::new(Shared::create().unwrap());
        let path = std::env::temp_dir().join(format!("keeper-{}.toml", std::process::id()));
        let put = |demand: &str| {
            let rule = format!("[[rule]]\nabout = 'x'\nexecutable = 'sleep'\n{demand}\n");
            std::fs::write(&path, rule).unwrap();
        };
        put("weight = 50");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let keeper =
            RuleKeeper::load(std::slice::from_ref(&path), Arc::clone(&shared)).unwrap().unwrap();
        let pid = Pid::new(child.id() as i32).unwrap();
        let mut list = AssignmentList::default();
        assert!(shared.assignments.take_newer(&mut list));
        let is_assigned =
            |list: &AssignmentList| list.processes.iter().any(|assigned| assigned.pid == pid);
        assert!(is_assigned(&list), "{:?}", list.processes);
        assert_eq!(list.treatments[0].weight.map(|weight| weight.get()), Some(50));
        put("weight = 70");
        assert_eq!(keeper.reload(), Ok(1));
        assert!(shared.assignments.take_newer(&mut list));
        assert_eq!(list.treatments[0].weight.map(|weight| weight.get()), Some(70));
        put("domain = '0'\ndomain_strict = true");
        assert_eq!(keeper.reload(), Ok(1));
        assert!(shared.assignments.take_newer(&mut list));
        let domain = Domain { cpus: CpuMask::first(1), strict: true };
        let is_alone = machine::online() == Some(domain.cpus);
        assert_eq!(list.treatments[0].domain, (!is_alone).then_some(domain));
        put("weight = 0");
        assert!(keeper.reload().unwrap_err().contains("line 4, column 10"));
        assert_eq!(keeper.counts().0, 1, "the rules stay");
        child.kill().unwrap();
        child.wait().unwrap();
        keeper.look();
        assert!(shared.assignments.take_newer(&mut list) && !is_assigned(&list));
        std::fs::remove_file(&path).unwrap();
        assert!(RuleKeeper::load(&[], shared).unwrap().is_none());
    }
}
