// SPDX-License-Identifier: GPL-2.0-only

//! What a recording says of a task's standing orders.

use super::milliseconds;
use pandemonium_engine::facts::Facts;
use pandemonium_engine::task::{Comm, Dispatch, Pid};
use pandemonium_engine::time::Stamp;
use std::collections::BTreeMap;

/// The standing orders of one task.
#[derive(Default)]
pub struct Orders {
    /// The last order: when it was given, and its credit.
    given: Option<(Stamp, u32)>,
    /// Executions so far; and when the last order was given.
    executed: u32,
    before: u32,
    last: Option<Execution>,
}

/// The last execution of an order before a message.
struct Execution {
    /// When the order was given.
    given: Stamp,
    number: u32,
    credit: u32,
    preempted: Option<Pid>,
}

impl Orders {
    /// Takes the facts of a message.
    pub fn executed(&mut self, facts: &Facts) {
        if let Some((given, credit)) = self.given.filter(|_| facts.orders > self.executed) {
            let number = facts.orders.saturating_sub(self.before);
            self.last = Some(Execution { given, number, credit, preempted: facts.preempted });
        }
        self.executed = facts.orders;
    }

    /// Takes a decision about the task.
    pub fn given(&mut self, now: Stamp, dispatch: &Dispatch) {
        if let Some(order) = dispatch.order {
            (self.given, self.before) = (Some((now, order.credit)), self.executed);
        }
    }

    /// In a sentence; nothing if no order was executed.
    pub fn tell(&self, start: Stamp, names: &BTreeMap<Pid, Comm>) -> String {
        let Some(last) = &self.last else { return String::new() };
        let preempted = last.preempted.map_or(String::new(), |pid| {
            let name = names.get(&pid).map_or("a task".into(), Comm::to_string);
            format!(", preempting {name}[{}]", pid.as_raw())
        });
        format!(
            " It ran {} times by standing orders, the last time by the order of {}, number {} of \
             {}{preempted}.",
            self.executed,
            milliseconds(last.given.since(start)),
            last.number,
            last.credit,
        )
    }
}
