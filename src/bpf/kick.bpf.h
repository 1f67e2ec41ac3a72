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
/* A CPU is not kicked twice within this. */
const volatile u64 kick_interval_ns = 50 * 1000;
/*
 * A waker that sleeps within this handed its CPU over. The way through user space takes about as
 * long when a CPU is interrupted for it, so waiting for the waker's costs no more.
 */
const volatile u64 handoff_ns = 100 * 1000;

/* The CPUs that tasks prefer, of the first 64; 0 if there is no domain. */
const volatile u64 domain;
/* A CPU is not called home twice within this. */
const volatile u64 home_interval_ns = 1000 * 1000;

/* Why a CPU is to be interrupted. */
struct need {
	u64 now;
	/* The CPU on which this is found out. */
	u32 here;
	/* Whether that CPU must be left alone. */
	bool spare_here;
	/* Whether the task is of the kind that interrupts nobody: SCHED_IDLE, or nice 19. */
	bool meek;
	/* Whether the task also wants a CPU whose occupant has used up its slice. */
	bool overdue;
	/* Whether it wants only a CPU that runs a lower tier. */
	bool lower_only;
	/* enum fp_occupant */
	u32 tier;
	/* If nobody gives way now: when somebody will, as far as that is a matter of time. */
	u64 retry_at;
};

/* None soon after another, and at most so many in a window of time. */
static bool may_kick(struct fp_cpu *c, u64 now)
{
	return now - c->kicked >= kick_interval_ns &&
	       (c->window != now >> FP_WINDOW_BITS || c->kicks < FP_KICKS_PER_WINDOW);
}

/* Whether a kick is on its way: the CPU has not switched since. */
static bool is_kicked(const struct fp_cpu *c)
{
	return c->kicked > c->since;
}

static void kick(struct fp_cpu *c, u32 cpu, u64 now)
{
	if (c->window != now >> FP_WINDOW_BITS) {
		c->window = now >> FP_WINDOW_BITS;
		c->kicks = 0;
	}
	c->kicks++;
	c->kicked = now;
	scx_bpf_kick_cpu(cpu, kick_flags);
}

/* Whether its occupant has had what it was given. */
static bool is_outlived(const struct fp_cpu *c, u64 now)
{
	return c->slice && now - c->since >= c->slice;
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

/* A CPU gives way at `at`. */
static void retry(struct need *n, u64 at)
{
	if (!n->retry_at || at < n->retry_at)
		n->retry_at = at;
}

/*
 * Whether the occupant gives way: to a higher tier, to its own when it has used up its slice, and
 * batch to batch at once, since the one that wakes up has slept and the one that runs has not. To
 * another batch task one that has just begun does not give way for a moment, unless there is a
 * burst. SCHED_IDLE and nice 19 interrupt nobody.
 */
static bool gives_way(const struct fp_cpu *c, struct need *n)
{
	struct fp_settings *s;

	if (c->occupant == FP_IDLE)
		return true;
	if (c->occupant >= FP_FOREIGN)
		return false;
	if (n->lower_only)
		return c->occupant < n->tier;
	if (n->overdue && is_outlived(c, n->now))
		return true;
	if (n->meek || c->occupant > n->tier)
		return false;
	if (c->occupant < n->tier)
		return true;
	if (n->tier != FP_BATCH) {
		if (!c->slice || is_outlived(c, n->now))
			return c->slice;
		retry(n, c->since + c->slice);
		return false;
	}
	s = the_settings();
	if (!s || s->burst || n->now - c->since >= s->preempt_thresh_ns)
		return true;
	retry(n, c->since + s->preempt_thresh_ns);
	return false;
}

/*
 * The CPU to interrupt: of those that the task may use and whose occupant gives way, the one that
 * runs the lowest tier; of these one of low weight; of these the one on which we are, which needs
 * no message to another CPU; else the one that has run longest. -1 if there is none.
 *
 * The mask is taken from the task itself: 7.2 verifies this for fp_prepare too, which may sleep,
 * and there p->cpus_ptr is not trusted.
 */
__noinline s32 find_victim(struct task_struct *p __arg_trusted, struct need *n __arg_nonnull)
{
	u32 lowest = (u32)-1;
	u64 longest = 0;
	s32 victim = -1;
	s32 i;

	bpf_for(i, 0, scanned()) {
		u32 cpu = n->here + i;
		struct fp_cpu *c;
		u64 ran;
		u32 rank;

		if (cpu >= nr_cpus)
			cpu -= nr_cpus;
		if (!i && n->spare_here)
			continue;
		c = cpu_record(cpu);
		if (!c || !bpf_cpumask_test_cpu(cpu, &p->cpus_mask) || !gives_way(c, n))
			continue;
		if (!may_kick(c, n->now)) {
			count(FP_LIMITED);
			retry(n, c->kicked + kick_interval_ns);
			continue;
		}
		ran = i ? n->now - c->since : (u64)-1;
		rank = 2 * c->occupant + !c->light;
		if (rank > lowest || (rank == lowest && ran <= longest) || is_ending(cpu))
			continue;
		lowest = rank;
		longest = ran;
		victim = cpu;
	}
	return victim;
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
		    now - c->kicked < home_interval_ns)
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

/*
 * Whether the waker's CPU is about to be free for the wakee, so that nobody has to be interrupted:
 * it slept soon after each of its last wake-ups, and this is the first one of this stint.
 */
static bool is_handoff(struct task_struct *p, const struct fp_cpu *here, u32 cpu)
{
	struct fp_settings *s = the_settings();

	return s && s->hand_off && !here->woke && here->handoffs >= FP_HANDOFF_TRUST &&
	       bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
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
