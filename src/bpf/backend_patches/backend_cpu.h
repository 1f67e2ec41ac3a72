/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The backend's record of a CPU, which several patches keep. No fault of its own.
 */
#ifndef __PATCH_BACKEND_CPU_H
#define __PATCH_BACKEND_CPU_H

#include "../rules.h"

struct backend_cpu {
	/* Only what the limits on kicks need: may_kick(). */
	struct fp_cpu kicks;
	/* By enum order_event. */
	u64 events[ORDER_EVENTS];
	/* Whether select_cpu has just chosen a busy CPU. */
	u32 steered;
	/* Whether this call of dispatch has found no decided task that may use the CPU. */
	u32 unserved;
	/* The wakee of the running task, which is about to sleep; 0 if there is none. */
	u32 handed_to;
	/* Looks into its own DSQ since it last looked into the shared one: own_queue.h. */
	u32 looked_own;
	/* When the CPU last called ops.dispatch, by the clock of scx_bpf_now(). */
	u64 looked;
	/* The same when it last looked into the shared DSQ: own_queue.h. */
	u64 looked_shared;
	/* How often another performance was asked for: frequency.h. */
	u64 asked;
};

struct backend_cpu backend_cpus[BACKEND_SHARED_DSQ];

static __always_inline struct backend_cpu *backend_cpu_of(s32 cpu)
{
	return &backend_cpus[(u32)cpu & (BACKEND_SHARED_DSQ - 1)];
}

static __always_inline void order_count(enum order_event event)
{
	backend_cpu_of(bpf_get_smp_processor_id())->events[event]++;
}

#endif
