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

/* An idle CPU among those that urgent tasks prefer. -EBUSY if none idles, or for a Batch task. */
static __always_inline s32 patch_idle_urgent(struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	if (!patch_set_sizes[PATCH_SET_URGENT] || patch_is_batch(p))
		return -EBUSY;
	return patch_idle_in_set(p, prev_cpu, wake_flags, PATCH_SET_URGENT);
}

#endif
