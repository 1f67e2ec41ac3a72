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
	/* The bits of a decision's key that are the task's tier: backend_patches/crowd.h. */
	PATCH_KEY_TIER = 3,
};

/* Sets of CPUs: backend_patches/cpu_sets.h. */
enum patch_set_numbers {
	/* The domain of all tasks. */
	PATCH_SET_PRIMARY = 0,
	/* The domains that rules demand have the numbers from 1 up to this one. */
	PATCH_SET_RULES = 128,
	/* The CPUs that urgent tasks prefer. */
	PATCH_SET_URGENT,
	/* A power of two. */
	PATCH_SETS = 256,
	/* Processes that have a domain. */
	PATCH_PROCESSES = 4096,
};

/* The set of which user space has written the CPUs. */
struct patch_set_arg {
	unsigned int set;
};

/* Where the tasks of a process are to run. */
struct patch_domain {
	/* Zero for no domain. */
	unsigned int set;
	/* Whether they never run outside. */
	unsigned int strict;
};

struct patch_domain_arg {
	unsigned int process;
	struct patch_domain domain;
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

/* Why the scheduler process did not decide: backend_patches/stalled.h. */
enum patch_stall_cause {
	/* It could run, and no CPU ran it: a task of a higher scheduling class had its CPU. */
	PATCH_STALL_NO_CPU = 0,
	/* A signal, a debugger or the freezer stopped it. */
	PATCH_STALL_STOPPED = 1,
	/* It waited in the kernel, for instance for a page. */
	PATCH_STALL_BLOCKED = 2,
	/* It ran, in one long round. */
	PATCH_STALL_RUNNING = 3,
	PATCH_STALL_CAUSES = 4,
};

/* What the backend does while the process does not decide. Times in nanoseconds. */
enum patch_default_times {
	/*
	 * A woken task comes before tasks that wait for less than a turn of all and this time, which
	 * is eight slices. A task that computes beside tasks that only wake each other up gets one
	 * slice in each such time.
	 */
	PATCH_WAKEUP_LEAD_NS = 32 * 1000 * 1000,
	/*
	 * Between two checks. A decision takes some 20 us, and a wakeup may wait 50 ms: the checks
	 * below, one more, and two slices fit into that.
	 */
	PATCH_CHECK_NS = 10 * 1000 * 1000,
};

enum patch_checks {
	/* Checks without the end of a round after which the process counts as stalled. */
	PATCH_CHECKS = 2,
	/*
	 * While it waits in SCHED_DSQ, one more if so many slices take as long as a check. A CPU
	 * takes it at the end of a slice; a CPU with a real-time task does not, and it may be bound
	 * to that. Not as many more as the slices take: a wakeup may wait 50 ms, whatever the slice.
	 */
	PATCH_SLICES = 2,
};

/* A CPU looks into the shared DSQ after so many tasks of its own one and so long: own_queue.h. */
enum patch_own_queue {
	/* Chosen: far shorter than the watchdog waits, and longer than a burst of wakeups. */
	PATCH_OWN_NS = 100 * 1000 * 1000,
	PATCH_OWN_TASKS = 16,
};

/* Standing orders: backend_patches/orders.h. */
enum order_limits {
	/*
	 * Slots of orders. Pids that are equal modulo ORDER_SETS share a set of ORDER_WAYS slots,
	 * ORDER_SETS apart. All are powers of two.
	 */
	ORDER_SLOTS = 65536,
	ORDER_WAYS = 4,
	ORDER_SETS = ORDER_SLOTS / ORDER_WAYS,
	/* CPUs besides the waker's that are looked at for a task to preempt. */
	ORDER_SCAN = 7,
	/*
	 * Tasks hand a CPU over without a call of ops.dispatch for at most so long: then the CPU
	 * looks whether another task comes first. Two tasks of a pipe pass it on every 20 us, and
	 * a hog whose turn it is waits some 200 us longer, a twentieth of its slice.
	 */
	ORDER_LOOK_NS = 200 * 1000,
	/*
	 * For so long a task counts as Batch after its last message or used-up slice: about the
	 * life of an order.
	 */
	ORDER_BATCH_NS = 250 << 20,
	/*
	 * So long a task waits for a real-time task that keeps its CPU. Sound servers and
	 * interrupt threads run for less than this, and a slice above Batch is this long.
	 */
	ORDER_STAY_NS = 1000 * 1000,
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
	/* Batch tasks that got another slice. */
	ORDER_CONTINUED,
	/* Orders for which another one was asked before they ended. */
	ORDER_RENEWED,
	/* Valid orders that were lost because another task took their slot. */
	ORDER_DISPLACED,
	ORDER_EVENTS,
};

#endif
