// SPDX-License-Identifier: GPL-2.0-only

//! Gives a policy what a recording's policy was given, round by round, and compares what it
//! decides.

use super::read::Recording;
use crate::{Entry, Start};
use anyhow::{Context, Result, anyhow, bail, ensure};
use pandemonium_engine::Setup;
use pandemonium_engine::durations::Durations;
use pandemonium_engine::knobs::Knobs;
use pandemonium_engine::procdb::{CAPACITY, Profile};
use pandemonium_engine::task::{Arrival, Comm, CpuId, Dispatch, Pid};
use pandemonium_engine::time::Stamp;
use pandemonium_engine::{Full, Limits, MachineView, Policy, Port, round};
use std::collections::{BTreeMap, VecDeque};
use std::io::Read;

/// Programs that are told at once, at most; a file with more is none of ours.
const KNOWN_MAX: usize = 8 * CAPACITY as usize;
/// Pids that are told apart: as many as a kernel has.
const PIDS_MAX: usize = 1 << 22;
/// Names that are told apart, so that no file fills the memory.
const NAMES_MAX: usize = 1 << 16;

/// Where a replay differs from its recording.
pub struct Difference {
    pub entry: u64,
    pub recorded: Option<Dispatch>,
    pub replayed: Option<Dispatch>,
}

/// What came of a replay.
#[derive(Default)]
pub struct Replayed {
    pub rounds: u64,
    pub decisions: u64,
    pub different: u64,
    pub first: Option<Difference>,
    /// Schedulers that the recording tells of: one more for each restart.
    pub starts: u64,
    pub names: BTreeMap<Pid, Comm>,
    /// From arrival to decision, recorded and replayed.
    pub recorded: Waits,
    pub replayed: Waits,
}

/// How long tasks wait for a decision, by name.
#[derive(Default)]
pub struct Waits {
    since: BTreeMap<Pid, Stamp>,
    pub by_name: BTreeMap<Comm, Durations>,
}

impl Waits {
    fn arrive(&mut self, now: Stamp, pid: Pid) {
        self.since.entry(pid).or_insert(now);
    }

    fn decide(&mut self, now: Stamp, dispatch: &Dispatch, names: &BTreeMap<Pid, Comm>) {
        if let Some(since) = self.since.remove(&dispatch.pid) {
            let name = names.get(&dispatch.pid).copied().unwrap_or_default();
            if self.by_name.len() < NAMES_MAX || self.by_name.contains_key(&name) {
                self.by_name.entry(name).or_default().add(now.since(since));
            }
        }
    }
}

/// A port that says again what a recorded one said.
struct Echo {
    view: MachineView,
    arrivals: VecDeque<Arrival>,
    /// Whether the recorded decisions were accepted, in order.
    accepted: VecDeque<bool>,
    said: Vec<Dispatch>,
}

impl Port for Echo {
    fn recv(&mut self) -> Option<Arrival> {
        self.arrivals.pop_front()
    }

    fn send(&mut self, dispatch: &Dispatch) -> Result<(), Full> {
        self.said.push(*dispatch);
        if self.accepted.pop_front().unwrap_or(true) { Ok(()) } else { Err(Full) }
    }

    fn kick(&mut self, _cpu: CpuId) {}

    fn view(&self) -> &MachineView {
        &self.view
    }
}

/// A recorded round, as far as it was read.
#[derive(Default)]
struct Round {
    now: Stamp,
    view: MachineView,
    arrivals: Vec<Arrival>,
    decisions: Vec<(Dispatch, bool)>,
    entry: u64,
}

/// Replays a recording to its end, or to where it cannot be replayed further: then the error says
/// so, and what came of it until there stands in `replayed`.
pub fn repeat<R: Read, Q: Policy>(
    recording: &mut Recording<R>,
    make: impl Fn(&Setup) -> Q,
    set: &[String],
    replayed: &mut Replayed,
) -> Result<()> {
    let mut player = Player { make, set, start: None, policy: None, known: Vec::new(), open: None };
    while let Some(entry) = recording.next_entry()? {
        let number = recording.entries() - 1;
        player.hear(number, entry, replayed)?;
    }
    Ok(())
}

/// Plays a recording's part against a policy.
struct Player<'s, M, Q> {
    make: M,
    set: &'s [String],
    /// What the next policy is told at its start, as far as it was read.
    start: Option<Start>,
    policy: Option<Q>,
    known: Vec<Profile>,
    open: Option<Round>,
}

impl<M: Fn(&Setup) -> Q, Q: Policy> Player<'_, M, Q> {
    fn hear(&mut self, number: u64, entry: Entry, replayed: &mut Replayed) -> Result<()> {
        if self.start.as_mut().is_some_and(|start| start.take(&entry)) {
            return Ok(());
        }
        if let Some(start) = self.start.take() {
            self.policy = Some((self.make)(&start.finish()));
            replayed.starts += 1;
        }
        if let Entry::Started { cpus } = entry {
            // A scheduler that ended in the middle of a round never finished it.
            self.open = None;
            self.start = Some(Start::of(cpus).context("a start is damaged")?);
            return Ok(());
        }
        let policy = self.policy.as_mut();
        let policy = policy.with_context(|| format!("entry {number} comes before any start"))?;
        match (entry, &mut self.open) {
            (Entry::Dropped(count), _) => bail!(
                "{count} entries are missing at entry {number}, where the recording could not keep \
                 up: it can be replayed up to there"
            ),
            (Entry::Began { now, view }, None) => {
                self.open = Some(Round { now, view, entry: number, ..Round::default() });
            }
            (Entry::Took(arrival), Some(round)) if round.arrivals.len() < Limits::ARRIVALS => {
                round.arrivals.push(arrival);
            }
            (Entry::Sent(dispatch), Some(round)) if round.decisions.len() < Limits::ARRIVALS => {
                round.decisions.push((dispatch, true));
            }
            (Entry::Refused(dispatch), Some(round)) => round.decisions.push((dispatch, false)),
            (Entry::Ended { .. }, Some(_)) => {
                if let Some(round) = self.open.take() {
                    replayed.play(&round, policy)?;
                }
            }
            (Entry::Exited(pid), None) => policy.on_exit(pid),
            (Entry::Applied(raw), None) => {
                let knobs = Entry::knobs(&raw);
                let impossible = || format!("entry {number} holds impossible settings");
                policy.apply(&amended(knobs.with_context(impossible)?, self.set)?);
            }
            (Entry::Remembered(memo), None) => policy.import(memo),
            (Entry::Known(profile), None) if self.known.len() < KNOWN_MAX => {
                self.known.push(profile);
            }
            (Entry::Learned(when), None) => {
                policy.learn_programs(when, &std::mem::take(&mut self.known));
            }
            (Entry::Minute(when), None) => policy.on_minute(when),
            _ => bail!("the recording is out of order at entry {number}"),
        }
        Ok(())
    }
}

fn amended(mut knobs: Knobs, set: &[String]) -> Result<Knobs> {
    for assignment in set {
        knobs.set(assignment).map_err(|error| anyhow!("--set {assignment}: {error}"))?;
    }
    Ok(knobs)
}

impl Replayed {
    fn play<Q: Policy>(&mut self, recorded: &Round, policy: &mut Q) -> Result<()> {
        let now = recorded.now;
        for arrival in &recorded.arrivals {
            self.names.insert(arrival.pid, arrival.comm);
            self.recorded.arrive(now, arrival.pid);
            self.replayed.arrive(now, arrival.pid);
        }
        ensure!(self.names.len() <= PIDS_MAX, "more tasks than a kernel can tell apart");
        let mut echo = Echo {
            view: recorded.view,
            arrivals: recorded.arrivals.iter().copied().collect(),
            accepted: recorded.decisions.iter().map(|(_, accepted)| *accepted).collect(),
            said: Vec::new(),
        };
        // As a scheduler on a machine calls it, so that a policy is asked as often as it was.
        let limits = Limits { arrivals: recorded.arrivals.len(), ..Limits::KERNEL };
        round(now, &mut echo, policy, limits);
        self.rounds += 1;
        self.compare(recorded, &echo.said);
        let accepted = recorded.decisions.iter().filter(|(_, accepted)| *accepted);
        accepted.for_each(|(dispatch, _)| self.recorded.decide(now, dispatch, &self.names));
        echo.said.iter().for_each(|dispatch| self.replayed.decide(now, dispatch, &self.names));
        Ok(())
    }

    fn compare(&mut self, recorded: &Round, said: &[Dispatch]) {
        for number in 0..recorded.decisions.len().max(said.len()) {
            let before = recorded.decisions.get(number).map(|(dispatch, _)| *dispatch);
            let again = said.get(number).copied();
            self.decisions += u64::from(before.is_some());
            if before != again {
                self.different += 1;
                self.first.get_or_insert(Difference {
                    entry: recorded.entry,
                    recorded: before,
                    replayed: again,
                });
            }
        }
    }
}
