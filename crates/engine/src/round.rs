// SPDX-License-Identifier: GPL-2.0-only

//! One round: take in the tasks that wait, decide, hand over. It lives beside the policy on
//! purpose: bounds, order, refusal and accounting are where schedulers in user space break, so
//! whatever tests a policy must run this code and not a copy of it.

use crate::policy::Policy;
use crate::port::{Full, Port};
use crate::task::{Cause, Dispatch, Placement};
use crate::time::Stamp;

/// How much one round may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages taken in before the first decision.
    pub arrivals: usize,
    /// Decisions sent, whatever they are.
    pub dispatches: usize,
    /// Decisions sent besides, while the policy [wants more](Policy::wants_more) or
    /// [sends one along](Policy::sends_along).
    pub extra: usize,
}

impl Limits {
    /// Messages one round takes in: as many as the backend's ring can hold, so that a decision is
    /// made among all tasks that wait, and never more, so that a flood cannot keep the round from
    /// deciding.
    pub const ARRIVALS: usize = 4096;

    /// One decision for the CPU that becomes free, so that all others are made as late as can be;
    /// and while an urgent task waits, as many besides as one dispatch call takes (`PATCH_DRAIN` of
    /// src/bpf/backend_limits.h).
    pub const KERNEL: Limits = Limits { arrivals: Limits::ARRIVALS, dispatches: 1, extra: 7 };
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Arrivals taken in.
    pub received: usize,
    /// Those of them that had lost the CPU; the others woke up.
    pub requeues: usize,
    /// Decisions the port accepted.
    pub sent: usize,
    /// The same by tier, in the order of [`Tier::ALL`](crate::task::Tier::ALL).
    pub by_tier: [u32; 3],
    /// Those of them that were taken for age rather than for order.
    pub rescues: u32,
    /// Whether the port refused one, which ends the round.
    pub refused: bool,
    /// Tasks that still wait. Above zero the scheduler wants to run again at once.
    pub pending: usize,
}

/// One round: take in the tasks that wait, decide, hand over. `now` is the only clock of the round.
pub fn round<P: Port, Q: Policy + ?Sized>(
    now: Stamp,
    port: &mut P,
    policy: &mut Q,
    limits: Limits,
) -> Round {
    let mut done = Round::default();
    while done.received < limits.arrivals && policy.waiting().has_room() {
        let Some(arrival) = port.recv() else { break };
        done.requeues += usize::from(arrival.cause == Cause::Requeue);
        policy.arrive(now, arrival, port.view());
        done.received += 1;
    }
    let mut along = false;
    while done.sent < limits.dispatches
        || done.sent < limits.dispatches + limits.extra && (along || policy.wants_more())
    {
        let Some(mut dispatch) = policy.next(now, port.view()) else { break };
        dispatch.order = policy.orders().and_then(|orders| orders.order(now, &dispatch));
        if port.send(&dispatch) == Err(Full) {
            policy.refused(dispatch);
            done.refused = true;
            break;
        }
        done.note(&dispatch);
        along = policy.sends_along(&dispatch);
        if let (true, Placement::Cpu(cpu)) = (dispatch.preempt, dispatch.placement) {
            port.kick(cpu);
        }
    }
    done.pending = policy.waiting().nr_waiting();
    port.publish(policy.orders().map(|orders| orders.bounds(now)).as_ref());
    done
}

impl Round {
    fn note(&mut self, sent: &Dispatch) {
        self.sent += 1;
        self.by_tier[sent.tier.index()] += 1;
        self.rescues += u32::from(sent.reason.is_rescue());
    }
}
