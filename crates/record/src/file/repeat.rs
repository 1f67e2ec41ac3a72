// SPDX-License-Identifier: GPL-2.0-only

//! Replays a recording: gives a policy the recorded inputs, round by round, and compares its
//! decisions with the recorded ones.

use super::read::Recording;
use crate::{Entry, Start};
use anyhow::{Context, Result, anyhow, bail, ensure};
use pandemonium_engine::durations::Durations;
use pandemonium_engine::knobs::{RawKnobs, Table, Values};
use pandemonium_engine::procdb::{CAPACITY, Profile};
use pandemonium_engine::task::{Arrival, CPUS_MAX, Comm, CpuId, Dispatch, Pid};
use pandemonium_engine::time::Stamp;
use pandemonium_engine::topology::{CpuPlace, Topology};
use pandemonium_engine::treatment::{ASSIGNED_MAX, Assignment, TREATMENTS_MAX, Treatment};
use pandemonium_engine::{Full, Limits, MachineView, Policy, PolicyInfo, Port, round};
use std::collections::{BTreeMap, VecDeque};
use std::io::Read;

/// Most profiles given to a policy at once. A valid recording has no more.
const KNOWN_MAX: usize = 8 * CAPACITY as usize;
/// Most distinct pids: the kernel's limit.
const PIDS_MAX: usize = 1 << 22;
/// Most distinct names of which waits are kept, some 5 KB each: no file can exhaust the memory.
const NAMES_MAX: usize = 1 << 12;

/// A decision in which a replay differs from its recording.
pub struct Difference {
    /// The entry at which the round begins.
    pub entry: u64,
    /// The recorded decision, `None` if the replay made more decisions.
    pub recorded: Option<Dispatch>,
    /// The replayed decision, `None` if the replay made fewer decisions.
    pub replayed: Option<Dispatch>,
}

/// The result of a replay.
#[derive(Default)]
pub struct Replayed {
    /// Rounds replayed.
    pub rounds: u64,
    /// Recorded decisions.
    pub decisions: u64,
    /// Decisions that differ.
    pub different: u64,
    /// The first decision that differs.
    pub first: Option<Difference>,
    /// Starts of a scheduler in the recording: one, and one more for each restart.
    pub starts: u64,
    /// The last name of each task.
    pub names: BTreeMap<Pid, Comm>,
    /// Recorded times from arrival to decision.
    pub recorded: Waits,
    /// Replayed times from arrival to decision.
    pub replayed: Waits,
}

/// How long tasks wait for a decision, by name.
#[derive(Default)]
pub struct Waits {
    since: BTreeMap<Pid, Stamp>,
    /// Times from arrival to decision, by name.
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

/// A port that returns what the recorded one returned.
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

/// A recorded round, as far as it has been read.
#[derive(Default)]
struct Round {
    now: Stamp,
    view: MachineView,
    arrivals: Vec<Arrival>,
    decisions: Vec<(Dispatch, bool)>,
    entry: u64,
}

/// Replays a recording to its end. If it fails before, the error says why, and `replayed` holds the
/// result up to there.
pub fn repeat<R: Read>(
    recording: &mut Recording<R>,
    policies: &Policies,
    set: &[String],
    replayed: &mut Replayed,
) -> Result<()> {
    let start = policies.replayed.knobs.defaults();
    let mut player = Player {
        policies,
        set,
        values: start,
        start: None,
        policy: None,
        known: Vec::new(),
        treatments: Vec::new(),
        assigned: Vec::new(),
        places: Vec::new(),
        open: None,
    };
    while let Some(entry) = recording.next_entry()? {
        let number = recording.entries() - 1;
        player.hear(number, entry, replayed)?;
    }
    Ok(())
}

/// The recorded policy, and the one that replays.
#[derive(Clone, Copy, Debug)]
pub struct Policies {
    /// The knobs of the recorded policy, if they are known.
    pub recorded: Option<&'static Table>,
    /// The policy that gets the recorded inputs.
    pub replayed: PolicyInfo,
}

/// Feeds the entries of a recording to a policy.
struct Player<'s> {
    policies: &'s Policies,
    set: &'s [String],
    /// The current values of the policy's knobs.
    values: Values,
    /// The setup of the next policy, as far as it has been read.
    start: Option<Start>,
    policy: Option<Box<dyn Policy>>,
    known: Vec<Profile>,
    /// The treatments and processes for the next `assign`.
    treatments: Vec<Treatment>,
    assigned: Vec<Assignment>,
    /// The places of the next topology.
    places: Vec<CpuPlace>,
    open: Option<Round>,
}

impl Player<'_> {
    fn hear(&mut self, number: u64, entry: Entry, replayed: &mut Replayed) -> Result<()> {
        if self.start.as_mut().is_some_and(|start| start.take(&entry)) {
            return Ok(());
        }
        if let Some(start) = self.start.take() {
            self.policy = Some((self.policies.replayed.build)(&start.finish()));
            replayed.starts += 1;
        }
        if let Entry::Started { cpus } = entry {
            // A scheduler that died in the middle of a round did not finish it.
            self.open = None;
            self.places.clear();
            self.start = Some(Start::of(cpus).context("a start is damaged")?);
            return Ok(());
        }
        if self.open.is_none() && self.gather(&entry) {
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
                    replayed.play(&round, &mut **policy)?;
                }
            }
            (Entry::Exited(pid), None) => policy.exit(pid),
            (Entry::Applied(raw), None) => {
                let values = values_for(self.policies, self.values, &raw);
                let impossible = || format!("entry {number} holds impossible settings");
                self.values = amended(values.with_context(impossible)?, self.set)?;
                policy.tune(&self.values);
            }
            (Entry::Remembered(memo), None) => {
                policy.learning().into_iter().for_each(|learning| learning.import(memo));
            }
            (Entry::Learned(when), None) => {
                let known = std::mem::take(&mut self.known);
                if let Some(learning) = policy.learning() {
                    learning.learn_programs(when, &known);
                }
            }
            (Entry::AssignedAll(_), None) => {
                let treatments = std::mem::take(&mut self.treatments);
                policy.assign(&treatments, &std::mem::take(&mut self.assigned));
            }
            (Entry::PlacedAll(_), None) => {
                policy.follow_topology(&Topology::new(std::mem::take(&mut self.places)));
            }
            (Entry::Minute(when), None) => {
                policy.learning().into_iter().for_each(|learning| learning.minute(when));
            }
            _ => bail!("the recording is out of order at entry {number}"),
        }
        Ok(())
    }

    /// Keeps a part of what the policy receives with a later entry. Returns false for any other
    /// entry, and for one that exceeds a limit.
    fn gather(&mut self, entry: &Entry) -> bool {
        match *entry {
            Entry::Known(profile) if self.known.len() < KNOWN_MAX => self.known.push(profile),
            Entry::Treated(treatment) if self.treatments.len() < TREATMENTS_MAX => {
                self.treatments.push(treatment);
            }
            Entry::Assigned(process) if self.assigned.len() < ASSIGNED_MAX => {
                self.assigned.push(process);
            }
            Entry::Place(place) if self.places.len() < CPUS_MAX as usize => {
                self.places.push(place);
            }
            _ => return false,
        }
        true
    }
}

/// The recorded values for the replaying policy. A different policy takes those of equal name.
fn values_for(policies: &Policies, before: Values, raw: &RawKnobs) -> Option<Values> {
    let Some(recorded) = policies.recorded else { return Some(before) };
    let given = recorded.values_of(raw)?;
    if std::ptr::eq(recorded, policies.replayed.knobs) {
        return Some(given);
    }
    let mut values = before;
    for (knob, word) in given.iter() {
        values.put(knob.name, word);
    }
    values.check().is_ok().then_some(values)
}

fn amended(mut values: Values, set: &[String]) -> Result<Values> {
    for assignment in set {
        values.set(assignment).map_err(|error| anyhow!("--set {assignment}: {error}"))?;
    }
    Ok(values)
}

impl Replayed {
    fn play(&mut self, recorded: &Round, policy: &mut dyn Policy) -> Result<()> {
        let now = recorded.now;
        for arrival in &recorded.arrivals {
            self.names.insert(arrival.pid, arrival.comm);
            self.recorded.arrive(now, arrival.pid);
            self.replayed.arrive(now, arrival.pid);
        }
        ensure!(self.names.len() <= PIDS_MAX, "the recording has more pids than a kernel can have");
        let mut echo = Echo {
            view: recorded.view,
            arrivals: recorded.arrivals.iter().copied().collect(),
            accepted: recorded.decisions.iter().map(|(_, accepted)| *accepted).collect(),
            said: Vec::new(),
        };
        // The same limits as on a real machine, so that the round asks the policy equally often.
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
