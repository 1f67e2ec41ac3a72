/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks are queued to a scheduler process that does not decide.
 *
 * Symptom: one start of some thousands ends with "rcu_preempt failed to run for 5.2s" and the
 * watchdog. On a quiet machine the first round comes seconds after the start.
 *
 * Cause: the backend queues tasks to user space from the moment it is attached. The process has its
 * rings to map and its memory to lock before its first round, and the kernel has it wait for locks
 * and grace periods. If the owner of such a lock, or rcu_preempt, waits for a decision, neither
 * goes on. The same holds after the last round, while the process detaches. And SCHED_DSQ is
 * consumed only if a task wants a decision: on a quiet machine the process gets a slice for each
 * heartbeat, one a second.
 *
 * Fix: while the process does not decide, the backend queues every task to the shared DSQ, and a
 * CPU that dispatches runs the process first. The same order serves a task that finds the ring
 * full: the backend would give it a slice but no new key, and it would come before all others for
 * ever.
 *
 * How to see it: VM scenario `slow-start`, which holds the process up for 8 s before its first
 * round; `killed` for the quiet machine; `stalled` for the order.
 *
 * Upstream: a flag that user space sets at its first notify_complete() and clears before it
 * detaches; queue_task_to_userspace() inserts into SHARED_DSQ while it is clear (docs/upstream.md,
 * report 6).
 */
#ifndef __PATCH_NOT_DECIDING_H
#define __PATCH_NOT_DECIDING_H

#include "../rules.h"

/* Set by the backend's user space; main.bpf.c declares it again. */
const volatile bool numa_local;

/* What user space and the backend tell each other about a stall. */
struct patch_stall {
	/* Odd in a round. User space counts each begin and each end. */
	u64 rounds;
	/* Messages queued to user space. The backend counts them when they are in the ring. */
	u64 asked;
	/*
	 * The same number before the process last found the ring empty, in a round that has ended.
	 * User space writes it.
	 */
	u64 answered;
	/*
	 * Since when the backend decides instead of the process; 0 if it does not. The backend
	 * writes it, and user space clears it at the end of the next round.
	 */
	u64 since;
	/* The longest slice of tasks that compute, in nanoseconds. User space writes it. */
	u64 slice_ns;
	/* Checks in stalls that found each cause: the last one need not be that of most of the time. */
	u64 causes[PATCH_STALL_CAUSES];
};

struct patch_stall patch_stall;

/* The mean length of a turn of all tasks that the backend queues itself: key_by_weight(). */
static u64 patch_turn = FP_DEFAULT_SLICE_NS;

/* Whether a message may be unread, or its round has not ended. */
static __always_inline bool patch_is_unanswered(void)
{
	return patch_stall.asked != patch_stall.answered;
}

static __always_inline bool patch_not_deciding(void)
{
	return patch_activity == PATCH_NOT_DECIDING || patch_stall.since;
}

/*
 * Queues the task to the shared DSQ without user space; it ran for so long before. Keys are times,
 * as those of user space are, so that no task waits for ever.
 */
static __always_inline void patch_queue_by_time(struct task_struct *p, u64 ran, u64 enq_flags)
{
	u64 now = bpf_ktime_get_ns(), key;

	if (enq_flags & SCX_ENQ_WAKEUP)
		key = now - patch_turn - PATCH_WAKEUP_LEAD_NS;
	else
		key = key_by_weight(&patch_turn, p->scx.dsq_vtime, now, ran, p->scx.weight);
	scx_bpf_dsq_insert_vtime(p, BACKEND_SHARED_DSQ, FP_DEFAULT_SLICE_NS, key, enq_flags);
}

/*
 * An idle CPU that the task may use. With --numa-local the kernel tracks idle CPUs by node, and
 * ejects a scheduler that asks for one without a node.
 */
static __always_inline s32 patch_pick_idle(const struct task_struct *p)
{
	if (numa_local && bpf_ksym_exists(scx_bpf_pick_idle_cpu_node))
		return scx_bpf_pick_idle_cpu_node(p->cpus_ptr, NUMA_NO_NODE, 0);
	return scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
}

/* Has an idle CPU look into the shared DSQ: the task may use it, and its own CPU is busy. */
static __always_inline void patch_kick_idle(const struct task_struct *p)
{
	s32 cpu = patch_pick_idle(p);

	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

#endif
