// SPDX-License-Identifier: GPL-2.0-only

//! What the policy knows of programs and tasks, for a later run.

use super::Pandemonium;
use super::behaviour::Behaviour;
use super::classify::Classification;
use super::known::NamePrediction;
use pandemonium_engine::procdb::{Minute, Profile, Program};
use pandemonium_engine::runqueue::Slot;
use pandemonium_engine::task::{Arrival, Tier, User};
use pandemonium_engine::{Learning, Memo};

impl Learning for Pandemonium {
    fn minute(&mut self, when: Minute) {
        self.programs.clock_moved(self.minute, when);
        self.minute = when;
    }

    fn programs(&self) -> &[Profile] {
        self.programs.profiles()
    }

    fn learn_programs(&mut self, when: Minute, known: &[Profile]) {
        self.minute = when;
        self.programs.merge(when, known.iter().copied());
    }

    fn export(&self, keep: &mut dyn FnMut(Memo)) {
        for (pid, task) in self.table.known() {
            let run = task.behaviour.expected_run();
            keep(Memo { pid, comm: task.comm, tier: task.classification.tier, run });
        }
    }

    fn import(&mut self, memo: Memo) {
        let classification = Classification {
            tier: memo.tier,
            tier_by_score: memo.tier,
            cpu_bound: memo.tier == Tier::Batch,
            ..Classification::of(self.classifier.look_up(&memo.comm))
        };
        let behaviour = Behaviour::remembered(memo.run);
        let mut task = self.newcomer();
        (task.comm, task.behaviour, task.classification) = (memo.comm, behaviour, classification);
        self.table.remember(memo.pid, task);
    }
}

/// The name and the user of the task.
pub fn program_of(arrival: &Arrival) -> Program {
    let user = arrival.facts.map_or(User::UNKNOWN, |facts| facts.user);
    Program { comm: arrival.comm, user }
}

impl Pandemonium {
    /// Teaches the process database what this task turned out to be, at most once a minute.
    ///
    /// A task of an unknown user teaches only where no task's user is known: a task whose record
    /// another one uses is not to teach what counts for all users.
    pub(super) fn tell_programs(&mut self, slot: Slot, arrival: &Arrival) {
        let program = program_of(arrival);
        if self.sees_users && !program.user.is_known() {
            return;
        }
        let task = self.table.data_mut(slot);
        if !self.knobs.rules.procdb || task.learned == Some(self.minute) {
            return;
        }
        task.learned = Some(self.minute);
        let mut observed = task.behaviour.observation(task.classification.tier_by_behaviour);
        observed.program = program;
        if let NamePrediction::Tier(tier) = task.name_prediction {
            observed.predicted = Some(tier);
            task.name_prediction = NamePrediction::Nothing;
        }
        self.programs.learn(self.minute, &observed);
    }
}
