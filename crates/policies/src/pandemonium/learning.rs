// SPDX-License-Identifier: GPL-2.0-only

//! What the policy knows of programs and tasks, for a later run.

use super::Pandemonium;
use super::behaviour::Behaviour;
use super::classify::Classification;
use pandemonium_engine::procdb::{Minute, Profile};
use pandemonium_engine::task::Tier;
use pandemonium_engine::{Learning, Memo};

impl Learning for Pandemonium {
    fn minute(&mut self, when: Minute) {
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
        let named = self.classifier.named(&memo.comm, &self.knobs);
        let classification = Classification {
            tier: memo.tier,
            behaves: memo.tier,
            named,
            cpu_bound: memo.tier == Tier::Batch,
            over_share: false,
        };
        let behaviour = Behaviour::remembered(memo.run);
        let mut task = self.newcomer();
        (task.comm, task.behaviour, task.classification) = (memo.comm, behaviour, classification);
        self.table.remember(memo.pid, task);
    }
}
