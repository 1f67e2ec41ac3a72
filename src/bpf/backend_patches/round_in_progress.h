/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A kick puts the scheduler process off in the middle of a round.
 *
 * Symptom: a wakeup waits for a whole tick although the scheduler process was running: p99.9 of
 * `long` 4.0 and 7.9 ms on two CPUs, 4.1 ms on four. An audio buffer is done 5.6 ms after its
 * begin.
 *
 * Cause: a kick that was meant for the task before reaches the CPU when the scheduler process has
 * it. The kernel calls .dispatch while the process is still `prev` and in no DSQ, so the backend
 * does not find it in SCHED_DSQ and moves another task. The decisions that the process has not sent
 * yet wait until another CPU looks.
 *
 * Fix: user space says when it is in the middle of a round, and dispatch then lets it go on. The
 * round begins when the process gets the CPU: a kick may arrive before it can say so.
 *
 * How to see it: in a trace of exact time, sched_switch from the scheduler process to a Batch task
 * between its first dequeue and its yield. VM scenario `bars`, p99.9 of `long`.
 *
 * Upstream: a flag that BpfScheduler sets in dequeue_task() and clears in notify_complete()
 * (docs/upstream.md, report 4).
 */
#ifndef __PATCH_ROUND_IN_PROGRESS_H
#define __PATCH_ROUND_IN_PROGRESS_H

/*
 * Decided tasks in the shared DSQ when the scheduler process last got a CPU; 0 if none of them may
 * use that CPU. User space decides on no more Batch tasks while enough wait.
 */
u32 patch_decided;

/* The scheduler process gets a CPU and has a round to do, while so many decided tasks wait. */
static __always_inline void patch_round_begins(u32 decided)
{
	patch_decided = decided;
	if (patch_activity == PATCH_RESTING)
		patch_activity = PATCH_DECIDING;
}

/* Gives the CPU to the scheduler process, if that waits for one. */
static __always_inline bool patch_move_scheduler(u64 enq_flags, bool serves_decided)
{
	if (!scx_bpf_dsq_move_to_local(BACKEND_SCHED_DSQ, enq_flags))
		return false;
	patch_round_begins(serves_decided ? scx_bpf_dsq_nr_queued(BACKEND_SHARED_DSQ) : 0);
	return true;
}

/*
 * Whether the scheduler process keeps its CPU: in a round, and before its first one. In a stall it
 * takes turns with the tasks of the CPU, because its round may have no end.
 */
static __always_inline bool patch_keeps_deciding(void)
{
	return patch_activity != PATCH_RESTING && !patch_stall.since;
}

#endif
