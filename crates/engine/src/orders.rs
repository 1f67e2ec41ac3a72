// SPDX-License-Identifier: GPL-2.0-only

//! Standing orders: decisions made ahead.
//!
//! With a decision a policy may order what happens at the next wakeups of the task, or, for a Batch
//! task, at the ends of its next slices. The backend executes an order at that moment, without the
//! scheduler process. An order repeats the tier and the slice of the decision that it came with.
//! The policy learns of executions with the task's next message
//! ([`Facts::orders`](crate::facts::Facts::orders)).
//!
//! ```text
//! decision with an order --> the task wakes up --> verdict --> it preempts a lower tier
//!                                                         --> it takes over from its waker
//!                                                         --> it waits in the shared DSQ
//!                                                         --> it is queued to user space
//! ```
//!
//! [`verdict`] is what the backend does. `src/bpf/order_rules.h` states it again in C, and a test
//! compares the two.

use crate::tier::Tier;
use crate::time::{Span, Stamp, Vtime};

/// A shorter rest of a slice is not worth a switch: the task is queued to user space.
pub const REST_MIN: Span = Span::from_micros(100);
/// An order ends soon if it may be executed only so often, this time included.
pub const LAST_CREDIT: u32 = 2;
/// It also ends soon if it is valid for no longer than this: half of the life of [`Order::usual`].
pub const LAST_LIFE: Span = Span::from_millis(125);
/// The bits of an epoch that are modes. An order of other modes is void. One that was written
/// before knobs changed is executed once more, for a wakee, and ends with that: otherwise each
/// change would have every task wait for a decision.
pub const EPOCH_MODES: u32 = 3;

/// A standing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// How often it may be executed.
    pub credit: u32,
    /// For how long it is valid.
    pub life: Span,
    /// The task's key in the shared DSQ is the time of the wakeup plus this.
    pub key_offset: Span,
}

impl Order {
    /// The usual order. A task that wakes up at 1 kHz is judged again 31 times a second, one that
    /// draws 60 frames a second four times.
    pub const fn usual(key_offset: Span) -> Order {
        Order { credit: 32, life: Span::from_millis(250), key_offset }
    }

    /// The order for a Batch task: further slices in its turn. A hog with slices of 4 ms beside one
    /// other is judged again 14 times a second.
    pub const fn batch(key_offset: Span) -> Order {
        Order { credit: 8, life: Span::from_millis(250), key_offset }
    }
}

/// The bounds on all orders, published after each round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The epoch: what orders were decided by. See [`EPOCH_MODES`].
    pub epoch: u32,
    /// The highest tier of which enough tasks wait for a decision to come before what orders
    /// execute; on a few CPUs one task is enough.
    pub waiting: Option<Tier>,
    /// From when on Batch work that waits for a decision is due; `None` if none waits.
    pub batch_due: Option<Stamp>,
    /// How many orders may still be executed once Batch work is due.
    pub deficit_left: u32,
}

/// What runs on a CPU, the least urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Occupant {
    /// Nothing.
    Idle,
    /// A task of this tier.
    Task(Tier),
    /// The scheduler process, or a task that orders do not preempt.
    Foreign,
}

/// What the verdict depends on.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The time.
    pub now: Stamp,
    /// Why the task is enqueued.
    pub event: Event,
    /// The epoch that is valid.
    pub epoch: u32,
    /// The highest tier of which enough tasks wait for a decision to come first.
    pub waiting: Option<Tier>,
    /// From when on Batch work is due.
    pub batch_due: Option<Stamp>,
    /// How many orders may still be executed once Batch work is due.
    pub deficit_left: u32,
    /// What the task's CPU runs.
    pub occupant: Occupant,
    /// The key of the task that the CPU runs.
    pub occupant_key: Vtime,
    /// A task waits in the CPU's local DSQ, or was chosen to run on the CPU, which idles.
    pub occupied: bool,
    /// The limits on kicks forbid to preempt the CPU's task now.
    pub limited: bool,
    /// The CPU runs the scheduler process.
    pub decides: bool,
    /// The CPU runs the waker, which is about to sleep.
    pub waker_sleeps: bool,
    /// The CPU has just looked for other tasks, and need not do so when the waker sleeps.
    pub looked: bool,
}

/// Why a task is enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It woke up, and has this order.
    Wakeup(Option<Posted>),
    /// It lost its CPU.
    Requeue {
        /// The rest of its slice; zero unless an order preempted it.
        rest: Span,
        /// Its order.
        order: Option<Posted>,
    },
}

/// An order as the backend keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The tier of the decision.
    pub tier: Tier,
    /// The key of the task is the time of the wakeup plus this.
    pub key_offset: Span,
    /// When it ends.
    pub until: Stamp,
    /// How often it may still be executed.
    pub left: u32,
    /// The epoch in which it was written.
    pub epoch: u32,
}

impl Posted {
    /// Whether the order ends soon. With its next execution the backend asks for another one, so
    /// that no wakeup has to wait for that.
    pub fn is_ending(&self, now: Stamp, epoch: u32) -> bool {
        self.left <= LAST_CREDIT || now + LAST_LIFE >= self.until || self.epoch != epoch
    }

    /// Whether the order holds: for a wakee also if only knobs have changed since it was written.
    fn is_valid(&self, view: &View) -> bool {
        let differs = self.epoch ^ view.epoch;
        let is_of_now = match view.event {
            Event::Wakeup(_) => differs & EPOCH_MODES == 0,
            Event::Requeue { .. } => differs == 0,
        };
        is_of_now && self.left > 0 && view.now < self.until
    }
}

/// What happens to a task that would be queued to user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is queued to user space.
    Ask,
    /// It runs at once and preempts what runs on its CPU.
    Preempt,
    /// It waits in the shared DSQ, by its key.
    Queue,
    /// It waits in the CPU's own DSQ, by its key.
    QueueHere,
    /// It waits in the CPU's local DSQ: it is next when its waker sleeps.
    HandOver,
    /// It waits in the shared DSQ for the rest of its slice, by its old key if it is a Batch task,
    /// else by a new one.
    Resume,
    /// It waits in the shared DSQ for another slice, by its key.
    Again,
}

/// What happens to the task.
///
/// A preempted task goes on with the rest of its slice. A used-up slice above Batch ends in user
/// space; a Batch task gets another one while nothing in user space comes before it. Another order
/// too is executed only while it is valid, and while nothing in user space comes before the task.
/// It preempts a task of a lower tier. It does not if the key of that task has passed, because the
/// task is next by the order of keys. It preempts a task of its own tier that has a later key. It
/// takes over from a waker that is about to sleep and is of its tier or above, or may not be
/// preempted again yet. At most one task waits in a local DSQ: after it the CPU calls
/// `ops.dispatch`, where the scheduler process gets its turn.
///
/// A LatCritical task whose CPU runs the scheduler process waits in that CPU's own DSQ: the CPU
/// serves it first when the process leaves. In the shared DSQ an Interactive task that was decided
/// two rescue intervals earlier comes first.
pub fn verdict(view: &View) -> Verdict {
    let due = view.batch_due.is_some_and(|due| view.now >= due) && view.deficit_left == 0;
    let order = match view.event {
        Event::Requeue { rest, .. } if rest >= REST_MIN => return Verdict::Resume,
        Event::Requeue { order, .. } => {
            let goes_on = |order: Posted| order.tier == Tier::Batch && order.is_valid(view);
            let goes_on = view.waiting.is_none() && !due && order.is_some_and(goes_on);
            return if goes_on { Verdict::Again } else { Verdict::Ask };
        }
        Event::Wakeup(None) => return Verdict::Ask,
        Event::Wakeup(Some(order)) => order,
    };
    let is_next = order.tier > Tier::Batch && !due && view.waiting < Some(order.tier);
    if !is_next || !order.is_valid(view) {
        return Verdict::Ask;
    }
    let occupant_key = view.occupant_key.as_raw();
    match view.occupant {
        _ if view.decides && order.tier == Tier::LatCritical => Verdict::QueueHere,
        _ if view.occupied => Verdict::Queue,
        Occupant::Idle => Verdict::Preempt,
        occupant if occupant >= Occupant::Task(order.tier) && view.waker_sleeps => {
            if view.looked {
                Verdict::HandOver
            } else {
                Verdict::Queue
            }
        }
        occupant
            if occupant == Occupant::Task(order.tier)
                && occupant_key > (view.now + order.key_offset).as_nanos()
                && !view.limited =>
        {
            Verdict::Preempt
        }
        occupant if occupant >= Occupant::Task(order.tier) => Verdict::Queue,
        _ if view.limited && view.waker_sleeps && view.looked => Verdict::HandOver,
        _ if view.limited || occupant_key <= view.now.as_nanos() => Verdict::Ask,
        _ => Verdict::Preempt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stamp = Stamp::from_nanos(1 << 40);

    const ORDER: Posted = Posted {
        tier: Tier::LatCritical,
        key_offset: Span::from_nanos(5),
        until: Stamp::from_nanos((1 << 40) + 1),
        left: 1,
        epoch: 7,
    };

    /// A wakeup on a CPU that runs a Batch task in its turn, with one of each bound left.
    fn wakeup(change: fn(&mut View, &mut Posted)) -> Verdict {
        let mut order = ORDER;
        let mut view = View {
            now: NOW,
            event: Event::Wakeup(None),
            epoch: 7,
            waiting: Some(Tier::Batch),
            batch_due: Some(NOW),
            deficit_left: 1,
            occupant: Occupant::Task(Tier::Batch),
            occupant_key: Vtime::from_raw((1 << 40) + 1),
            occupied: false,
            limited: false,
            decides: false,
            waker_sleeps: false,
            looked: false,
        };
        change(&mut view, &mut order);
        view.event = Event::Wakeup(Some(order));
        verdict(&view)
    }

    #[test]
    fn a_valid_order_preempts_a_lower_tier_and_takes_an_idle_cpu() {
        assert_eq!(wakeup(|_, _| ()), Verdict::Preempt);
        let interactive = wakeup(|view, _| view.occupant = Occupant::Task(Tier::Interactive));
        assert_eq!(interactive, Verdict::Preempt);
        let idle = wakeup(|view, _| (view.occupant, view.limited) = (Occupant::Idle, true));
        assert_eq!(idle, Verdict::Preempt);
    }

    #[test]
    fn each_bound_of_an_order_ends_it() {
        for change in [
            (|_, order| order.left = 0) as fn(&mut View, &mut Posted),
            |view, order| order.until = view.now,
            |_, order| order.epoch = 6,
            |_, order| order.tier = Tier::Batch,
            |view, _| view.deficit_left = 0,
            |view, order| view.waiting = Some(order.tier),
            |view, _| view.limited = true,
            |view, _| view.occupant_key = Vtime::from_raw(view.now.as_nanos()),
        ] {
            assert_eq!(wakeup(change), Verdict::Ask);
        }
        let not_due = wakeup(|view, _| (view.batch_due, view.deficit_left) = (None, 0));
        assert_eq!(not_due, Verdict::Preempt);
    }

    #[test]
    fn an_order_from_before_a_change_of_knobs_is_a_wakee_s_last_one() {
        let before = |_: &mut View, order: &mut Posted| order.epoch = 7 - (EPOCH_MODES + 1);
        assert_eq!(wakeup(before), Verdict::Preempt);
        let until = NOW + LAST_LIFE + LAST_LIFE;
        let order = Posted { left: LAST_CREDIT + 1, until, ..ORDER };
        assert!(!order.is_ending(NOW, ORDER.epoch) && order.is_ending(NOW, ORDER.epoch + 4));
    }

    #[test]
    fn an_order_waits_for_its_own_tier_and_for_the_scheduler_process() {
        for change in [
            (|view, _| view.occupant = Occupant::Task(Tier::LatCritical))
                as fn(&mut View, &mut Posted),
            |view, _| view.occupant = Occupant::Foreign,
            |view, _| view.occupied = true,
        ] {
            assert_eq!(wakeup(change), Verdict::Queue);
        }
    }

    #[test]
    fn only_a_lat_critical_wakee_waits_where_the_scheduler_process_runs() {
        let interactive = wakeup(|view, order| {
            (view.occupant, view.decides) = (Occupant::Foreign, true);
            order.tier = Tier::Interactive;
        });
        assert_eq!(interactive, Verdict::Queue);
        let urgent = wakeup(|view, _| (view.occupant, view.decides) = (Occupant::Foreign, true));
        assert_eq!(urgent, Verdict::QueueHere);
        let expired = wakeup(|view, order| (view.decides, order.left) = (true, 0));
        assert_eq!(expired, Verdict::Ask);
    }

    #[test]
    fn an_order_preempts_a_later_key_of_its_own_tier() {
        let verdict_of = |key: u64, limited: bool| {
            let mut view = View { event: Event::Wakeup(Some(ORDER)), ..view_of_wakeup() };
            (view.epoch, view.limited) = (7, limited);
            view.occupant = Occupant::Task(Tier::LatCritical);
            view.occupant_key = Vtime::from_raw(NOW.as_nanos() + key);
            verdict(&view)
        };
        assert_eq!(verdict_of(6, false), Verdict::Preempt);
        assert_eq!(verdict_of(5, false), Verdict::Queue);
        assert_eq!(verdict_of(6, true), Verdict::Queue);
    }

    #[test]
    fn a_wakee_takes_over_from_its_waker_unless_a_task_waits_there() {
        let hands_over = |change: fn(&mut View, &mut Posted)| {
            let mut view = View {
                epoch: 7,
                waker_sleeps: true,
                looked: true,
                occupant_key: Vtime::from_raw(u64::MAX),
                ..view_of_wakeup()
            };
            let mut order = ORDER;
            view.occupant = Occupant::Task(Tier::LatCritical);
            change(&mut view, &mut order);
            verdict(&View { event: Event::Wakeup(Some(order)), ..view })
        };
        assert_eq!(hands_over(|_, _| ()), Verdict::HandOver);
        assert_eq!(hands_over(|view, _| view.occupied = true), Verdict::Queue);
        assert_eq!(hands_over(|_, order| order.left = 0), Verdict::Ask);
        assert_eq!(hands_over(|view, _| view.looked = false), Verdict::Queue);
        assert_eq!(hands_over(|view, _| view.waker_sleeps = false), Verdict::Preempt);
    }

    #[test]
    fn a_wakee_takes_over_from_a_waker_of_a_lower_tier_that_may_not_be_preempted_now() {
        let view = View {
            epoch: 7,
            event: Event::Wakeup(Some(ORDER)),
            occupant: Occupant::Task(Tier::Batch),
            occupant_key: Vtime::from_raw(u64::MAX),
            waker_sleeps: true,
            looked: true,
            limited: true,
            ..view_of_wakeup()
        };
        assert_eq!(verdict(&view), Verdict::HandOver);
        assert_eq!(verdict(&View { limited: false, ..view }), Verdict::Preempt);
        assert_eq!(verdict(&View { looked: false, ..view }), Verdict::Ask);
        assert_eq!(verdict(&View { waker_sleeps: false, ..view }), Verdict::Ask);
    }

    #[test]
    fn a_batch_task_goes_on_while_no_task_comes_first() {
        let again = |change: fn(&mut View, &mut Posted)| {
            let mut order = Posted { tier: Tier::Batch, ..ORDER };
            let mut view = View {
                epoch: 7,
                waiting: None,
                batch_due: None,
                deficit_left: 0,
                ..view_of_wakeup()
            };
            change(&mut view, &mut order);
            view.event = Event::Requeue { rest: Span::ZERO, order: Some(order) };
            verdict(&view)
        };
        assert_eq!(again(|_, _| ()), Verdict::Again);
        for change in [
            (|view, _| view.waiting = Some(Tier::Interactive)) as fn(&mut View, &mut Posted),
            |view, _| view.waiting = Some(Tier::Batch),
            |view, _| view.batch_due = Some(view.now),
            |_, order| order.tier = Tier::Interactive,
            |_, order| order.left = 0,
            |_, order| order.epoch = 6,
            |_, order| order.epoch = 3,
            |view, order| order.until = view.now,
        ] {
            assert_eq!(again(change), Verdict::Ask);
        }
        let soon = |view: &mut View, _: &mut Posted| view.batch_due = Some(view.now + REST_MIN);
        assert_eq!(again(soon), Verdict::Again);
        let has_left = |view: &mut View, _: &mut Posted| {
            (view.batch_due, view.deficit_left) = (Some(NOW), 1);
        };
        assert_eq!(again(has_left), Verdict::Again);
    }

    #[test]
    fn a_preempted_task_goes_on_unless_its_slice_is_used_up() {
        let requeue = |rest| {
            let mut view = View { event: Event::Requeue { rest, order: None }, ..view_of_wakeup() };
            view.deficit_left = 0;
            verdict(&view)
        };
        assert_eq!(requeue(REST_MIN), Verdict::Resume);
        assert_eq!(requeue(REST_MIN - Span::from_nanos(1)), Verdict::Ask);
        assert_eq!(requeue(Span::ZERO), Verdict::Ask);
        let unknown = View { event: Event::Wakeup(None), ..view_of_wakeup() };
        assert_eq!(verdict(&unknown), Verdict::Ask);
    }

    fn view_of_wakeup() -> View {
        View {
            now: NOW,
            event: Event::Wakeup(None),
            epoch: 0,
            waiting: None,
            batch_due: None,
            deficit_left: 0,
            occupant: Occupant::Idle,
            occupant_key: Vtime::from_raw(0),
            occupied: false,
            limited: false,
            decides: false,
            waker_sleeps: false,
            looked: false,
        }
    }
}
