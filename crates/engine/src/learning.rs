// SPDX-License-Identifier: GPL-2.0-only

//! What a policy learns and keeps over a restart of the scheduler.

use crate::procdb::{Minute, Profile};
use crate::task::{Comm, Pid, Tier};
use crate::time::Span;

/// A policy that learns. It offers itself by [`Policy::learning`](crate::Policy::learning).
pub trait Learning {
    /// What time it is for what is learned of programs. Called about once a minute.
    fn minute(&mut self, when: Minute);
    /// What was learned of programs.
    fn programs(&self) -> &[Profile];
    /// Takes in what was learned of programs before. Called at the start: it may allocate.
    fn learn_programs(&mut self, when: Minute, known: &[Profile]);
    /// Hands out what is worth keeping of tasks.
    fn export(&self, keep: &mut dyn FnMut(Memo));
    /// Takes back what [`export`](Learning::export) handed out.
    fn import(&mut self, memo: Memo);
}

/// What is kept of a task over a restart of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memo {
    /// The task.
    pub pid: Pid,
    /// Its name: a task that has another name since is another program.
    pub comm: Comm,
    /// How urgent it was.
    pub tier: Tier,
    /// How long it usually ran between two sleeps.
    pub run: Span,
}
