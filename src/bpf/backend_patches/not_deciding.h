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
 * Fix: while the process does not decide, the ring has no room, so the backend queues every task
 * for any CPU by itself, and a CPU that dispatches runs the process first.
 *
 * How to see it: VM scenario `slow-start`, which holds the process up for 8 s before its first
 * round; `killed` for the quiet machine.
 *
 * Upstream: a flag that user space sets at its first notify_complete() and clears before it
 * detaches; queue_task_to_userspace() inserts into SHARED_DSQ while it is clear (docs/upstream.md,
 * report 6).
 */
#ifndef __PATCH_NOT_DECIDING_H
#define __PATCH_NOT_DECIDING_H

static __always_inline bool patch_not_deciding(void)
{
	return patch_activity == PATCH_NOT_DECIDING;
}

#endif
