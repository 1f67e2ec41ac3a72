/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Standing orders: what the backend does with a task that would be queued to user space.
 *
 * Pure functions: each takes what it needs and calls no BPF helper. The backend patch
 * (backend_patches/orders.h) includes this file, and crates/bpf_rules compiles it for the host,
 * where a test compares it with the verdict of crates/engine/src/orders.rs.
 */
#ifndef __ORDER_RULES_H
#define __ORDER_RULES_H

#include "rules.h"

enum order_verdict {
	/* The task is queued to user space. */
	ORDER_ASK,
	/* The task runs at once and preempts what runs on its CPU. */
	ORDER_PREEMPT,
	/* The task waits in the shared DSQ, by its key. */
	ORDER_QUEUE,
	/* The task waits in the CPU's own DSQ, by its key. */
	ORDER_QUEUE_HERE,
	/* The task waits in the CPU's local DSQ: it is next when its waker sleeps. */
	ORDER_HAND_OVER,
	/* The task was preempted: it waits in the shared DSQ for the rest of its slice. */
	ORDER_RESUME,
	/* The task has used up its slice: it waits in the shared DSQ for another one. */
	ORDER_AGAIN,
};

/* The time of what does not come. */
#define ORDER_NEVER ((u64)-1)

enum order_times {
	/* A shorter rest of a slice is not worth a switch: the task is queued to user space. */
	ORDER_REST_MIN_NS = 100 * 1000,
	/* An order ends soon if it is valid for no longer than this. */
	ORDER_LAST_NS = 125 * 1000 * 1000,
};

/*
 * The bits of an epoch that are modes. An order of other modes is void. One that was written before
 * knobs changed is executed once more, for a wakee, and ends with that: otherwise each change would
 * have every task wait for a decision.
 */
#define ORDER_EPOCH_MODES 3

/* It also ends soon if it may be executed only so often, this time included. */
#define ORDER_LAST 2

/* What the verdict depends on. */
struct order_view {
	u64 now;
	/* When the task's order ends. */
	u64 until;
	/* What user space publishes: from when on waiting Batch work is due. */
	u64 batch_due;
	/* The key of the task by its order, and of the task that runs on the CPU. */
	u64 key;
	u64 occupant_key;
	/* The tier of the task's order: enum fp_occupant, FP_IDLE without an order. */
	u32 tier;
	/* How often the order may still be executed. */
	u32 left;
	/* The epoch of the order, and the one that is valid. */
	u32 epoch;
	u32 epoch_now;
	/* The rest of the slice of a task that was preempted by an order, in nanoseconds. */
	u32 rest;
	/*
	 * The highest tier of which enough tasks wait in user space to come first: enum fp_occupant.
	 */
	u32 waiting;
	/* How many orders may be executed while Batch work is due. */
	u32 deficit_left;
	/* What the CPU runs: enum fp_occupant. */
	u32 occupant;
	/* Whether the task lost its CPU. If not, it has woken up. */
	bool requeued;
	/* Whether a task waits in the CPU's local DSQ, or was chosen to run on the idle CPU. */
	bool occupied;
	/* Whether the limits on kicks forbid to preempt the CPU's task now. */
	bool limited;
	/* Whether the CPU runs the scheduler process. */
	bool decides;
	/* Whether the CPU runs the waker, which is about to sleep. */
	bool waker_sleeps;
	/* Whether it has just looked for other tasks, and need not do so when the waker sleeps. */
	bool looked;
};

/* Whether the order holds, for a task of any tier. */
static inline bool order_is_valid(const struct order_view *v)
{
	u32 differs = v->epoch ^ v->epoch_now;

	if (!v->requeued)
		differs &= ORDER_EPOCH_MODES;
	return v->tier != FP_IDLE && v->left && !differs && v->now < v->until;
}

/*
 * Whether the order ends soon. With its next execution the backend asks for another one, so that no
 * wakeup has to wait for that.
 */
static inline bool order_is_ending(const struct order_view *v)
{
	return v->left <= ORDER_LAST || v->now + ORDER_LAST_NS >= v->until ||
	       v->epoch != v->epoch_now;
}

/*
 * What happens to the task.
 *
 * A preempted task goes on with the rest of its slice. A used-up slice above Batch ends in user
 * space; a Batch task gets another one while nothing in user space comes before it. Any other order
 * too is executed only while it is valid, and while nothing in user space comes before the task. It
 * preempts a task of a lower tier. It does not if the key of that task has passed, because the task
 * is next by the order of keys. It preempts a task of its own tier that has a later key. It takes
 * over from a waker that is about to sleep and is of its tier or above, or may not be preempted
 * again yet. At most one task waits in a local DSQ: after it the CPU calls ops.dispatch,
 * where the scheduler process gets its turn.
 *
 * A LatCritical task whose CPU runs the scheduler process waits in that CPU's own DSQ: the CPU
 * serves it first when the process leaves. In the shared DSQ an Interactive task that was decided
 * two rescue intervals earlier comes first.
 */
static inline enum order_verdict order_verdict(const struct order_view *v)
{
	if (v->requeued && v->rest >= ORDER_REST_MIN_NS)
		return ORDER_RESUME;
	if (!order_is_valid(v) || (v->now >= v->batch_due && !v->deficit_left))
		return ORDER_ASK;
	if (v->requeued)
		return v->tier == FP_BATCH && v->waiting == FP_IDLE ? ORDER_AGAIN : ORDER_ASK;
	if (v->tier <= FP_BATCH || v->waiting >= v->tier)
		return ORDER_ASK;
	if (v->decides && v->tier == FP_LAT_CRITICAL)
		return ORDER_QUEUE_HERE;
	if (v->occupied)
		return ORDER_QUEUE;
	if (v->occupant == FP_IDLE)
		return ORDER_PREEMPT;
	if (v->occupant >= v->tier && v->waker_sleeps)
		return v->looked ? ORDER_HAND_OVER : ORDER_QUEUE;
	if (v->occupant == v->tier && v->occupant_key > v->key && !v->limited)
		return ORDER_PREEMPT;
	if (v->occupant >= v->tier)
		return ORDER_QUEUE;
	if (v->limited && v->waker_sleeps && v->looked)
		return ORDER_HAND_OVER;
	if (v->limited || v->occupant_key <= v->now)
		return ORDER_ASK;
	return ORDER_PREEMPT;
}

#endif
