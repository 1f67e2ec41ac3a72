/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which CPU to kick for a task that wakes up, if any.
 */
#ifndef __KICK_BPF_H
#define __KICK_BPF_H

void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
/* The scheduler core's record of a CPU. */
extern struct rq runqueues __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;

/* The backend's DSQ for any CPU: MAX_CPUS of its intf.h. Lower numbers are the DSQs of each CPU. */
#define SHARED_QUEUE FP_CPUS

/* SCX_KICK_PREEMPT of the running kernel; 0 switches all kicks off. */
const volatile u64 kick_flags;
/* The CPUs that tasks prefer, if there is a domain. */
const volatile u64 domain[FP_GROUPS];
const volatile bool has_domain;

static void kick(struct fp_cpu *c, u32 cpu, u64 now)
{
	note_kick(c, now);
	scx_bpf_kick_cpu(cpu, kick_flags);
}

/*
 * Whether the CPU's task exits, and has begun to run just now. Most often it is through in a
 * moment, and a parent waits for it; after a kick it would wait for whatever comes first here.
 */
static bool is_ending(const struct fp_cpu *c, u32 cpu, u64 now)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && rq->curr->flags & TASK_EXITING_FLAG && now - c->since < FP_ENDING_NS;
}

static bool is_in_domain(u32 cpu)
{
	return domain[cpu / FP_GROUP & (FP_GROUPS - 1)] >> cpu % FP_GROUP & 1;
}

/* The number of CPUs that a search looks at. */
static s32 scanned(void)
{
	return nr_cpus < FP_SCAN ? nr_cpus : FP_SCAN;
}

/* The CPU of this number, which counts on from the first CPU after the last one. */
static u32 wrapped(u32 cpu)
{
	return cpu < nr_cpus ? cpu : cpu - nr_cpus;
}

/* Makes the CPU the best victim if it is. */
static bool consider_victim(u32 cpu, const struct need *n, struct victim *best)
{
	struct fp_settings *s = the_settings();
	struct fp_cpu *c = cpu_record(cpu);
	bool is_here = cpu == n->here;

	if (!s || !c || (is_here && n->spare_here) || !gives_way(c, n, s))
		return false;
	if (!may_kick(c, n->now)) {
		count(FP_LIMITED);
		return false;
	}
	if (!beats(c, is_here, n->now, best) || is_ending(c, cpu, n->now))
		return false;
	take_victim(best, c, cpu, is_here, n->now);
	return true;
}

/*
 * The same if the task may use the CPU. A function of its own, not static: the verifier of Linux
 * 6.12 checks it once, and gives up after a million instructions if the loop contains it.
 *
 * It reads p->cpus_mask, not p->cpus_ptr: Linux 7.2 verifies this function for fp_prepare too,
 * which is sleepable, and there p->cpus_ptr is not trusted.
 */
__noinline u32 compare_victim(struct task_struct *p __arg_trusted, u32 cpu,
			      struct need *n __arg_nonnull, struct victim *best __arg_nonnull)
{
	return bpf_cpumask_test_cpu(cpu, &p->cpus_mask) && consider_victim(cpu, n, best);
}

/*
 * The CPU to kick for a task: by the rules of rules.h, among those that the task may use; -1 if
 * none gives way.
 */
__noinline s32 find_victim(struct task_struct *p __arg_trusted, struct need *n __arg_nonnull)
{
	bool is_bound = p->nr_cpus_allowed < nr_cpus;
	u32 from = search_from(n->here, scx_bpf_task_cpu(p), is_bound, nr_cpus);
	struct victim best = NO_VICTIM;
	s32 i;

	bpf_for(i, 0, scanned())
		compare_victim(p, wrapped(from + i), n, &best);
	return best.cpu;
}

static bool kicks_are_on(void)
{
	struct fp_settings *s = the_settings();

	return kick_flags && s && s->preempt;
}

/* Where the next search for a CPU outside the domain begins. */
static u32 outside_from;

/*
 * A CPU of the domain has gone idle: kicks a CPU outside that runs a SCHED_EXT task. If that task
 * may return to the domain, a backend patch (backend_patches/domain_return.h) then queues it to
 * user space. Without the kick this happens at the end of its slice, which is at a tick.
 */
__noinline s32 return_to_domain(u32 cpu, u64 now)
{
	u32 from = outside_from;
	s32 i;

	if (!has_domain || !is_in_domain(cpu) || !kicks_are_on())
		return -1;
	outside_from = wrapped(from + scanned());
	bpf_for(i, 0, scanned()) {
		u32 other = wrapped(from + i);
		struct fp_cpu *c = cpu_record(other);

		if (is_in_domain(other) || !c || c->occupant < FP_BATCH ||
		    c->occupant > FP_LAT_CRITICAL || now - c->kicked < FP_RETURN_INTERVAL_NS)
			continue;
		kick(c, other, now);
		return other;
	}
	return -1;
}

/* Whether the waker is about to hand over its CPU to the wakee, so that no CPU has to be kicked. */
static bool is_handoff(struct task_struct *p, const struct fp_cpu *here, u32 cpu)
{
	struct fp_settings *s = the_settings();

	return s && hands_over(here, s) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* Kicks the victim that a search has found; returns it, or -1 if there is none. */
static s32 kick_found(s32 victim, u64 now)
{
	struct fp_cpu *c = cpu_record(victim);

	if (victim < 0 || !c)
		return -1;
	kick(c, victim, now);
	return victim;
}

/* Kicks a CPU for a task that waits in user space; returns the CPU, or -1 if none gives way. */
static s32 kick_victim(struct task_struct *p, struct need *n)
{
	return kick_found(find_victim(p, n), n->now);
}

#endif
