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

#endif
