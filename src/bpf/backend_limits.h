/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Numbers of the backend and of its patches that user space needs too. bindgen reads them along
 * with the backend's intf.h, and tests/contract.rs compares what Rust states again.
 */
#ifndef __BACKEND_LIMITS_H
#define __BACKEND_LIMITS_H

enum backend_limits {
	/* The number of the backend's queue for any CPU: MAX_CPUS of its intf.h. */
	BACKEND_SHARED_DSQ = 1024,
	/* Its queue for the user-space scheduler alone. */
	BACKEND_SCHED_DSQ = BACKEND_SHARED_DSQ + 1,
	/* Decisions that one dispatch call takes at most: backend_patches/drain_many.h. */
	PATCH_DRAIN = 8,
};

/* What the scheduler process does: backend_patches/round_in_progress.h and not_deciding.h. */
enum patch_activity {
	/* It has not begun its first round, or has ended its last one. */
	PATCH_NOT_DECIDING = 0,
	/* It is in the middle of a round. */
	PATCH_DECIDING = 1,
	/* It has ended a round and waits for the next one. */
	PATCH_RESTING = 2,
};

/* Standing orders: backend_patches/orders.h. */
enum order_limits {
	/* Slots of orders, a power of two. Pids that are equal modulo this share one. */
	ORDER_SLOTS = 65536,
	/* CPUs besides the waker's that are looked at for a task to preempt. */
	ORDER_SCAN = 7,
};

/* Which tasks wait for a decision when a round ends. */
enum order_pending {
	ORDER_NOTHING_PENDING = 0,
	ORDER_BATCH_PENDING = 1,
	ORDER_URGENT_PENDING = 2,
};

/* What the backend counts, per CPU. */
enum order_event {
	/* Orders executed that preempted a task, or took an idle CPU. */
	ORDER_PREEMPTED,
	/* Orders executed that put the task into the shared DSQ. */
	ORDER_QUEUED,
	/* Preempted tasks that went on with the rest of their slice. */
	ORDER_RESUMED,
	ORDER_EVENTS,
};

#endif
