/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Standing orders (orders.h): whether the tasks that wait for a decision need a round now.
 */
#ifndef __PATCH_ORDER_PENDING_H
#define __PATCH_ORDER_PENDING_H

/*
 * Whether tasks that user space has received need a round now. While only Batch tasks wait for a
 * decision, and a decided task is in the shared DSQ, the CPU runs that one first.
 */
static __always_inline bool order_needs_round(void)
{
	const struct order_bounds *bounds = &order_bounds;

	if (bounds->pending != ORDER_BATCH_PENDING)
		return bounds->pending != ORDER_NOTHING_PENDING;
	return !bounds->enabled || !scx_bpf_dsq_nr_queued(BACKEND_SHARED_DSQ) ||
	       bpf_ktime_get_ns() >= bounds->batch_due;
}

/* Whether the scheduler process has work: also if this CPU has found no decided task. */
static __always_inline bool order_is_pending(void)
{
	const struct backend_cpu *c = backend_cpu_of(bpf_get_smp_processor_id());

	return (c->unserved && order_bounds.pending) || order_needs_round();
}

#endif
