/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An urgent task waits behind all tasks that were queued before it.
 *
 * Symptom: beside thousands of tasks that compute, a task that wakes up waits for up to a second,
 * although the process decides for it at once.
 *
 * Cause: the shared DSQ is in the order of keys, which are times: a task above Batch passes the
 * Batch tasks of the last 20 ms, and waits for all others. That many tasks get into the DSQ when
 * they begin, as unknown ones, and each that runs makes room for another.
 *
 * Fix: the key of a Batch task is at least the time at which it is due, and a LatCritical task
 * passes all if there are very many.
 *
 * How to see it: VM scenario `runnable-10000`; `crates/lab/tests/sim/pressure.rs`.
 *
 * Upstream: none. Whether keys are times is up to user space.
 */
#ifndef __PATCH_CROWD_H
#define __PATCH_CROWD_H

#include "../rules.h"

/* Set by the backend as it begins; main.bpf.c declares it again. */
volatile u64 nr_online_cpus;

/* The key of a task of this tier that is queued to the shared DSQ now with this key and slice. */
static __always_inline u64 patch_key_in_crowd(u32 tier, u64 key, u64 slice, u64 now)
{
	u32 queued, cpus = nr_online_cpus;

	if (!cpus || (tier != FP_BATCH && tier != FP_LAT_CRITICAL))
		return key;
	queued = scx_bpf_dsq_nr_queued(BACKEND_SHARED_DSQ);
	return tier == FP_BATCH ? crowd_key(key, now, slice, queued, cpus) :
				  crowd_passing_key(key, queued, cpus);
}

#endif
