/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which CPU to interrupt for a task that wakes up, and when none.
 */
#ifndef __KICK_BPF_H
#define __KICK_BPF_H

void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
/* The scheduler core's record of a CPU. */
extern struct rq runqueues __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;

/* The backend's queue for any CPU; below it, the queue of each CPU. MAX_CPUS of its intf.h. */
#define SHARED_QUEUE FP_CPUS

/* SCX_KICK_PREEMPT of the running kernel; 0 makes no kicks. */
const volatile u64 kick_flags;
/* The CPUs that tasks prefer, of the first 64; 0 if there is no domain. */
const volatile u64 domain;

static void kick(struct fp_cpu *c, u32 cpu, u64 now)
{
	note_kick(c, now);
	scx_bpf_kick_cpu(cpu, kick_flags);
}

/*
 * Whether its occupant is about to end. The kernel keeps such a task from the backend: it puts it
 * into a queue of the CPU's own that goes before all others, so that interrupting it makes room
 * for the scheduler process and for nobody else.
 */
static bool is_ending(u32 cpu)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && BPF_CORE_READ(rq, curr, flags) & TASK_EXITING_FLAG;
}

/* How many CPUs are looked at. */
static s32 scanned(void)
{
	return nr_cpus < FP_SCAN ? nr_cpus : FP_SCAN;
}

/*
 * The CPU to kick for a task, by the rules of rules.h, of those that the task may use; -1 if none
 * gives way.
 *
 * The mask is taken from the task itself: 7.2 verifies this for fp_prepare too, which may sleep,
 * and there p->cpus_ptr is not trusted.
 */
__noinline s32 find_victim(struct task_struct *p __arg_trusted, struct need *n __arg_nonnull)
{
	struct fp_settings *s = the_settings();
	struct victim best = NO_VICTIM;
	s32 i;

	if (!s)
		return -1;
	bpf_for(i, 0, scanned()) {
		u32 cpu = n->here + i;
		struct fp_cpu *c;
		bool is_better;

		if (cpu >= nr_cpus)
			cpu -= nr_cpus;
		if (!i && n->spare_here)
			continue;
		c = cpu_record(cpu);
		if (!c || !bpf_cpumask_test_cpu(cpu, &p->cpus_mask) || !gives_way(c, n, s))
			continue;
		if (is_limited(c, n)) {
			count(FP_LIMITED);
			continue;
		}
		is_better = beats(c, !i, n->now, &best);
		if (is_better && !is_ending(cpu))
			take_victim(&best, c, cpu, !i, n->now);
	}
	return best.cpu;
}

static bool kicks_are_on(void)
{
	struct fp_settings *s = the_settings();

	return kick_flags && s && s->preempt;
}

/*
 * A CPU of the domain idles: kicks a CPU outside that runs a task of ours. If the task may return
 * to the domain, a patch of the backend (backend_patches/domain_return.h) has it queued to user
 * space now, else at the end of its slice, which is at a tick.
 */
__noinline s32 call_home(u32 cpu, u64 now)
{
	s32 i;

	if (cpu >= 64 || !(domain >> cpu & 1) || !kicks_are_on())
		return -1;
	bpf_for(i, 0, scanned()) {
		struct fp_cpu *c = cpu_record(i);

		if (i >= 64 || domain >> i & 1)
			continue;
		if (!c || c->occupant < FP_BATCH || c->occupant > FP_LAT_CRITICAL ||
		    now - c->kicked < FP_RETURN_INTERVAL_NS)
			continue;
		kick(c, i, now);
		return i;
	}
	return -1;
}

/* The next switch of the CPU should serve the task; a switch that does not has missed it. */
static void want(struct fp_cpu *c, s32 pid, u64 since)
{
	c->wanted = pid;
	c->wanted_since = since;
}

/* Whether the waker's CPU is about to be free for the wakee, so that no CPU has to be kicked. */
static bool is_handoff(struct task_struct *p, const struct fp_cpu *here, u32 cpu)
{
	struct fp_settings *s = the_settings();

	return s && hands_over(here, s) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* Makes room for a task that waits in user space; returns where, or -1. */
static s32 make_room(struct task_struct *p, struct need *n)
{
	s32 victim = find_victim(p, n);
	struct fp_cpu *c = cpu_record(victim);

	if (victim < 0 || !c)
		return -1;
	kick(c, victim, n->now);
	return victim;
}

#endif
