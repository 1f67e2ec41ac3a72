/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks are queued for a CPU that is going offline.
 *
 * Symptom: a CPU goes offline under load, the kernel prints "rcu_preempt failed to run for 5s", and
 * its watchdog ejects the scheduler instead of asking it to restart.
 *
 * Cause: sched_cpu_deactivate() clears the CPU in cpu_active_mask, pushes its tasks away, and waits
 * for an RCU grace period. The CPU idles meanwhile, so scx_bpf_select_cpu_and() and
 * scx_bpf_pick_idle_cpu() return it, and the backend queues tasks in its per-CPU DSQ. The kernel
 * refuses to move them to a CPU that is not active, and no other CPU looks into that DSQ. If one of
 * them is rcu_preempt, the grace period never ends.
 *
 * Fix: an idle CPU that is not active counts as busy, and what is inserted for such a CPU goes into
 * the shared DSQ. What is already in its DSQ, the other CPUs run.
 *
 * How to see it: VM scenario `hotplug`.
 *
 * Upstream: check the CPU that pick_idle_cpu() returns, and let any CPU consume the DSQ of a CPU
 * that is not active (docs/upstream.md, report 1).
 */
#ifndef __PATCH_OFFLINE_CPU_H
#define __PATCH_OFFLINE_CPU_H

/* A CPU that was found to be not active while it goes offline, or -1. One goes at a time. */
static s32 patch_inactive_cpu = -1;

/* The CPUs that are offline: hotplug.h. User space reads it. */
u64 patch_offline[PATCH_GROUPS];

static __always_inline bool patch_is_offline(s32 cpu)
{
	return patch_offline[patch_group(cpu)] & patch_bit(cpu);
}

/*
 * While a CPU is not active, its runqueue has a balance callback installed for good: the one that
 * pushes tasks away. At other times the field is set for moments only. A CPU that is then taken
 * for an inactive one costs a less than perfect choice, nothing else.
 */
static __always_inline bool patch_is_inactive(s32 cpu)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && rq->balance_callback;
}

/* Whether the CPU is not active. If it still goes offline, the other CPUs look into its DSQ. */
static __always_inline bool patch_check_inactive(s32 cpu)
{
	if (!patch_is_inactive(cpu))
		return false;
	if (!patch_is_offline(cpu))
		patch_inactive_cpu = cpu;
	return true;
}

/* The idle CPU that the kernel found, or -EBUSY if it is not active. */
static __always_inline s32 patch_idle_cpu(s32 cpu)
{
	return cpu >= 0 && patch_check_inactive(cpu) ? -EBUSY : cpu;
}

/* The DSQ for a task that is inserted into this one. */
static __always_inline u64 patch_active_dsq(u64 dsq)
{
	return dsq < PATCH_CPUS && patch_check_inactive(dsq) ? BACKEND_SHARED_DSQ : dsq;
}

static __always_inline s32 patch_select_cpu_dfl(struct task_struct *p, s32 prev_cpu,
						u64 wake_flags, bool *is_idle)
{
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, is_idle);

	if (*is_idle && patch_idle_cpu(cpu) < 0)
		*is_idle = false;
	return cpu;
}

/* Takes a task from the DSQ of the inactive CPU, as long as there is one. */
static __always_inline bool patch_move_from_inactive(u64 enq_flags)
{
	s32 cpu = patch_inactive_cpu;

	if (cpu < 0)
		return false;
	if (!patch_is_inactive(cpu)) {
		patch_inactive_cpu = -1;
		return false;
	}
	return scx_bpf_dsq_move_to_local(cpu, enq_flags);
}

#endif
