/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stranded tasks: dispatched by a round, and still queued when the scheduler process leaves its
 * CPU.
 *
 * A round dispatches every waiting task above Batch, but only one CPU is certain to look for a task
 * afterwards: the one that the scheduler process leaves. Another CPU looks if it is kicked, and may
 * find another task. So each task above Batch that is still queued when the round ends is watched.
 * After FP_STRANDED_NS a CPU that runs a lower tier is kicked for it. Not at once: most stranded
 * tasks run as soon as the task before them sleeps, and immediate kicks cost hogs beside eight
 * pipes 8 % of their work.
 */
#ifndef __STRANDED_BPF_H
#define __STRANDED_BPF_H

/* The number of decisions that have been checked: fp_round.decided at the last check. */
static u32 checked;

static struct fp_round *the_round(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&rounds, &key);
}

/* Whether a CPU is idle or runs a Batch task. */
__noinline bool has_preemptible_cpu(void)
{
	s32 i;

	bpf_for(i, 0, scanned()) {
		struct fp_cpu *c = cpu_record(i);

		if (c && c->occupant <= FP_BATCH)
			return true;
	}
	return false;
}

/* Watches the task if it is still in a DSQ of the backend. */
__noinline u32 watch_if_stranded(s32 pid, u32 cpu, u64 now)
{
	struct fp_task *t = task_record(pid);
	struct watch *w = watch_of(cpu);
	struct task_struct *p;

	/* Most tasks have begun to run since they stopped. */
	if (!w || !t || t->pid != pid || (!t->waiting && t->started > t->stopped))
		return 0;
	p = bpf_task_from_pid(pid);
	if (!p)
		return 0;
	if (queue_of(p) <= SHARED_QUEUE)
		watch_one(w, pid, t->waiting ? t->woken : t->stopped, now + FP_STRANDED_NS, true,
			  now);
	bpf_task_release(p);
	return 0;
}

/* The scheduler process has left this CPU: watches the stranded tasks. */
__noinline u32 watch_stranded(u32 cpu, u64 now)
{
	struct fp_round *round = the_round();
	u32 from = checked, i;

	if (!round || round->decided == from || !kicks_are_on())
		return 0;
	checked = round->decided;
	if (checked - from > FP_ROUND)
		from = checked - FP_ROUND;
	if (!has_preemptible_cpu())
		return 0;
	bpf_for(i, 0, FP_ROUND) {
		if (from + i == checked)
			break;
		watch_if_stranded(round->pids[(from + i) % FP_ROUND], cpu, now);
	}
	return 0;
}

#endif
