/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task loses its CPU some microseconds before it ends.
 *
 * Symptom: a parent that waits for a short-lived child gets on 4 to 6 ms late beside hogs: launch
 * p99 15.3 ms on two CPUs, with a median of 4.8 ms.
 *
 * Cause: near its end the kernel takes the task out of its autogroup, which dequeues and enqueues
 * it, and asks for the next task. If its slice is used up, the backend's dispatch moves another
 * task to the local DSQ, and the exiting one waits for a hog's whole slice. It needs 10 to 600 us
 * more.
 *
 * Fix: an exiting task that has given up its memory gets one more slice of 1 ms, once: a task with
 * a million files to close gives way like any other.
 *
 * How to see it: VM scenario `launches`.
 *
 * Upstream: replenish the slice of an exiting `prev` before any DSQ is consumed (docs/upstream.md,
 * report 7).
 */
#ifndef __PATCH_EXITING_TASK_H
#define __PATCH_EXITING_TASK_H

/* The slice in which a task ends. */
#define PATCH_EXIT_NS (1000 * 1000)

/* By CPU: the last exiting task that was given a slice. */
static s32 patch_exiting[PATCH_CPUS];

static __always_inline bool patch_keeps_exiting(const struct task_struct *p)
{
	u32 here = bpf_get_smp_processor_id() & (PATCH_CPUS - 1);

	if (!(p->flags & PF_EXITING) || p->mm || patch_exiting[here] == p->pid ||
	    patch_holds_decisions())
		return false;
	patch_exiting[here] = p->pid;
	return true;
}

#endif
