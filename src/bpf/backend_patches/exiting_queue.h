/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks that exit come before all others.
 *
 * Symptom: beside a fork bomb the scheduler process waits for a CPU for 20 ms and more, and an
 * urgent task for 38 to 82 ms, where a real-time task waits for 3.
 *
 * Cause: the kernel does not ask .enqueue about a task that exits. It queues it in the local DSQ,
 * with a slice of 20 ms. As long as a CPU's local DSQ has a task, the CPU does not call .dispatch,
 * and a bomb's processes take milliseconds each to exit.
 *
 * Fix: SCX_OPS_ENQ_EXITING, set in src/backend/connector.rs. Such a task waits in the local DSQ
 * only if that is empty, else in the shared DSQ, by the time, and in both for a slice of one tick.
 * So after one of them the CPU calls .dispatch. User space is not asked: the backend finds the task
 * of a decision by its pid, and a task that has nearly ended has none.
 *
 * How to see it: VM scenario `fork-bomb`.
 *
 * Upstream: the flag, and the same test before a message is reserved (docs/upstream.md, report 17).
 */
#ifndef __PATCH_EXITING_QUEUE_H
#define __PATCH_EXITING_QUEUE_H

/* Queues the task if it exits; returns whether it does. */
static __always_inline bool patch_queue_exiting(struct task_struct *p, u64 enq_flags)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, scx_bpf_task_cpu(p));

	if (!(p->flags & PF_EXITING))
		return false;
	if (rq && !rq->scx.local_dsq.nr)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, FP_DEFAULT_SLICE_NS, enq_flags);
	else
		scx_bpf_dsq_insert_vtime(p, BACKEND_SHARED_DSQ, FP_DEFAULT_SLICE_NS,
					 bpf_ktime_get_ns(), enq_flags);
	return true;
}

#endif
