/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Those for whom a round of the scheduler process decided, and who still wait when it is over.
 *
 * A round decides for everybody urgent who waits, but only one CPU is certain to look for a task
 * afterwards: the one that the process leaves. The others look if they were interrupted, and what
 * they find may be somebody else. So whoever urgent is still in a queue is watched, and after a
 * moment interrupts a CPU that runs a lower tier. Not at once: most of those who are left over run
 * as soon as the one before them sleeps, and interrupting somebody for them cost 8 % of the hogs'
 * work beside eight pipes.
 */
#ifndef __LEFTOVER_BPF_H
#define __LEFTOVER_BPF_H

/* How many of the decisions were looked at. */
static u32 looked_at;

static struct fp_round *the_round(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&rounds, &key);
}

/* Whether there is a CPU that runs nobody urgent. */
__noinline bool somebody_could_give_way(void)
{
	s32 i;

	bpf_for(i, 0, scanned()) {
		struct fp_cpu *c = cpu_record(i);

		if (c && c->occupant <= FP_BATCH)
			return true;
	}
	return false;
}

/* Watches the task if it still waits in a queue of the backend. */
__noinline u32 watch_left_over(s32 pid, u32 cpu, u64 now)
{
	struct fp_task *t = task_record(pid);
	struct watch *w = watch_of(cpu);
	struct task_struct *p;

	/* Most have begun to run since they stopped. */
	if (!w || !t || t->pid != pid || (!t->waiting && t->started > t->stopped))
		return 0;
	p = bpf_task_from_pid(pid);
	if (!p)
		return 0;
	if (queue_of(p) <= SHARED_QUEUE)
		watch_one(w, pid, t->waiting ? t->woken : t->stopped, now + FP_STRANDED_NS, true, now);
	bpf_task_release(p);
	return 0;
}

/* The scheduler process has left this CPU. */
__noinline u32 watch_left_overs(u32 cpu, u64 now)
{
	struct fp_round *round = the_round();
	u32 from = looked_at, i;

	if (!round || round->decided == from || !kicks_are_on())
		return 0;
	looked_at = round->decided;
	if (looked_at - from > FP_ROUND)
		from = looked_at - FP_ROUND;
	if (!somebody_could_give_way())
		return 0;
	bpf_for(i, 0, FP_ROUND) {
		if (from + i == looked_at)
			break;
		watch_left_over(round->pids[(from + i) % FP_ROUND], cpu, now);
	}
	return 0;
}

#endif
