/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An urgent task wakes up on a slow CPU while a fast one idles.
 *
 * Symptom: on a machine with fast and slow CPUs a frame is late although nothing else runs.
 *
 * Cause: to the kernel's choice of an idle CPU all CPUs are alike, but for caches and cores.
 *
 * Fix: user space says which CPUs tasks above Batch prefer. An idle one of these is looked for
 * first. Kernels before 6.17 cannot look among some CPUs only, and ignore it.
 *
 * How to see it: VM scenario `urgent-cpus`.
 *
 * Upstream: the backend's is_cpu_faster() follows the waker, which need not be fast; nothing is
 * reported yet.
 */
#ifndef __PATCH_URGENT_CPUS_H
#define __PATCH_URGENT_CPUS_H

/*
 * For so long a task counts as Batch after its last message or used-up slice, in units of 2^20 ns:
 * 262 ms, about the life of an order.
 */
#define PATCH_BATCH_TIME 250

/*
 * Whether the task is Batch. One that has found an idle CPU at each wakeup since the time above has
 * also slept before the end of each slice, so it runs briefly whatever user space said of it.
 */
static __always_inline bool patch_is_batch(struct task_struct *p)
{
	const struct order_slot *slot = order_slot_of(p->pid);

	return slot->tier == FP_BATCH && order_is_owner(slot, p) &&
	       order_note_time() - slot->noted < PATCH_BATCH_TIME;
}

/* An idle CPU among those that urgent tasks prefer. -EBUSY if none idles, or for a Batch task. */
static __always_inline s32 patch_idle_urgent(struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	if (!patch_set_sizes[PATCH_SET_URGENT] || patch_is_batch(p))
		return -EBUSY;
	return patch_idle_in_set(p, prev_cpu, wake_flags, PATCH_SET_URGENT);
}

#endif
