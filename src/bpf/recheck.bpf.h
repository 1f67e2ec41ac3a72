/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The recheck: what no event reports.
 *
 * Goal: no CPU runs a task of a lower tier than a waiting task that it could run, for longer than
 * FP_RECHECK_NS while that task waits for a decision, and 2 * FP_TURN_NS while it waits for its
 * turn. No CPU idles beside a waiting task for longer than a round.
 *
 * The goal is missed beyond these limits:
 * - A CPU is not kicked more often than the limits on kicks allow.
 * - A timer checks at most FP_WAITERS tasks. Tasks with equal pids modulo FP_WAITERS share an
 *   entry: the later one takes it, and the earlier one is checked no more.
 * - A search for a CPU looks at FP_SCAN CPUs.
 * - A task is checked FP_RECHECKS times for each wait.
 *
 * A kick may be lost: it lands while the scheduler process is leaving another CPU and is in no DSQ,
 * or in the middle of a switch, when its CPU has looked for work already. A decided task may be
 * stranded: only the CPU that the process leaves is certain to look for a task afterwards. A waker
 * that was trusted to hand over its CPU may go on. None of these is told from the others, or looked
 * for at each switch. A timer of the CPU on which the task was queued looks whether the task still
 * waits, and kicks a CPU for it by the same rules as its wakeup did.
 *
 * The same timer ends slices that are shorter than a tick, and has the tasks of a CPU queued anew
 * that a task of a higher scheduling class keeps. It is armed for the earliest time at which there
 * may be something to do, and is not moved to a later one.
 */
#ifndef __RECHECK_BPF_H
#define __RECHECK_BPF_H

struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;
/* Since Linux 7.1: each task in the DSQ is enqueued again. */
void scx_bpf_dsq_reenq(u64 dsq_id, u64 flags) __ksym __weak;
/* Since Linux 6.19, for the local DSQ only. libbpf leaves the last suffix out. */
void scx_bpf_reenqueue_local___v2___weak(void) __ksym __weak;

#define NO_QUEUE ((u64)-1)
/* uapi/linux/time.h; uapi/linux/bpf.h has the flag since 6.7. */
#define MONOTONIC 1
#define PIN_TO_THIS_CPU 2

/*
 * The kernel's tick. Slices of about one tick or more end at ticks: a timer for each slice of each
 * computing task would cost 0.5 % of their work.
 */
const volatile u64 tick_ns = 4 * 1000 * 1000;
/* Whether the kernel accepted the timers. */
const volatile bool has_timers = true;

/* A waiting task. */
struct waiter {
	/* When it woke up or lost its CPU, and when to check it. */
	u64 since;
	u64 due;
	s32 pid;
	/* Time between two checks while it waits for a decision, and checks in all. */
	u32 interval;
	u32 checks;
	u32 unused;
};

struct recheck {
	struct bpf_timer timer;
	/* When the timer fires; 0 if it is not armed. timer_rules.h tells when that is believed. */
	u64 armed;
	/* Indexed by pid modulo FP_WAITERS: a task replaces another one of an equal index. */
	struct waiter waiters[FP_WAITERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FP_CPUS);
	__type(key, u32);
	__type(value, struct recheck);
} rechecks SEC(".maps");

static struct recheck *recheck_of(u32 cpu)
{
	return bpf_map_lookup_elem(&rechecks, &cpu);
}

/* Arms the timer for `at`, unless it fires sooner. */
static void arm(struct recheck *r, u64 at, u64 now)
{
	u64 delay = at > now + FP_SOON_NS ? at - now : FP_SOON_NS;

	if (!timer_serves(r->armed, at, now))
		r->armed = timer_started(at, bpf_timer_start(&r->timer, delay, PIN_TO_THIS_CPU));
}

/* Checks after `interval` whether the task, which waits from now on, still does. */
static void check_later(s32 pid, u32 cpu, u64 now, u32 interval)
{
	struct recheck *r = recheck_of(cpu);
	struct waiter *one;

	if (!has_timers || !r)
		return;
	one = &r->waiters[(u32)pid % FP_WAITERS];
	one->pid = pid;
	one->since = now;
	one->due = now + interval;
	one->interval = interval;
	one->checks = 0;
	arm(r, one->due, now);
}

/*
 * Whether a task waits for which a timer ends the running task's slice: one that is at least as
 * urgent. Tasks in this CPU's DSQ count as such, because user space has placed them there. Between
 * Batch tasks a tick ends slices that were given as long ones: a timer for each rest of a slice
 * would cost more than the wakeup that preempted the task. A low-weight task was given a short one:
 * nice 19 gets 0.16 ms, and a tick would make 4 of it. Among very many tasks, ticks would make a
 * turn too long.
 */
static bool has_waiter(const struct fp_cpu *c, u32 cpu)
{
	struct fp_settings *s = the_settings();

	if (!s)
		return false;
	if (c->crowded || s->waiting > c->occupant || scx_bpf_dsq_nr_queued(cpu) > 0)
		return true;
	if (c->occupant != FP_BATCH)
		return s->waiting == c->occupant;
	return (c->low_weight || s->batch_slice_ns < tick_ns / 4 * 3) &&
	       (s->waiting == FP_BATCH || scx_bpf_dsq_nr_queued(SHARED_QUEUE) > 0);
}

/* Whether a timer, not a tick, ends the running task's slice. */
static bool has_short_slice(const struct fp_cpu *c)
{
	return c->slice && c->slice < tick_ns / 4 * 3;
}

/*
 * Arms the timer for the end of the slice of the task that begins to run. Not if it has just slept
 * and its last run interval was a small part of its slice: then it will most likely sleep before
 * its slice ends, and else a tick ends the slice.
 */
static void end_slice(const struct fp_cpu *c, const struct fp_task *t, u32 cpu)
{
	struct recheck *r;

	if (!has_timers || !has_short_slice(c) ||
	    (t && t->pid == c->pid && t->woken > t->stopped && t->run_interval_ns < c->slice / 4))
		return;
	r = recheck_of(cpu);
	if (r && !timer_serves(r->armed, c->since + c->slice, c->since) && has_waiter(c, cpu))
		arm(r, c->since + c->slice, c->since);
}

/* Whether the task is queued to user space: the backend has it, and it is in no DSQ. */
static bool is_queued_to_user(struct task_struct *p)
{
	return (p->scx.flags & TASK_QUEUED_FLAG) && !p->scx.dsq;
}

/* The number of the DSQ in which the task waits; NO_QUEUE if it is in none. */
static u64 queue_of(struct task_struct *p)
{
	struct scx_dispatch_q *queue = p->scx.dsq;

	return queue ? queue->id : NO_QUEUE;
}

/* The CPU in whose DSQ the task waits; -1 if it is in none of these. */
static s32 queued_on(struct task_struct *p)
{
	u64 id = queue_of(p);

	return id < FP_CPUS ? id : -1;
}

/*
 * Kicks a CPU for a task that still waits: that of its DSQ, or any. Returns whether the task waits
 * for a decision.
 */
static bool kick_for_waiter(s32 pid, u32 cpu, u64 now)
{
	struct need n = { .now = now, .here = cpu, .overdue = true, .tier = tier_of(pid) };
	struct task_struct *p = bpf_task_from_pid(pid);
	struct fp_settings *s = the_settings();
	struct fp_cpu *c;
	bool undecided;
	s32 queue;

	if (!p)
		return false;
	undecided = is_queued_to_user(p);
	n.never_preempts = never_preempts(p);
	queue = queued_on(p);
	c = cpu_record(queue);
	if (!(p->scx.flags & TASK_QUEUED_FLAG)) {
		/* It has run and sleeps. */
	} else if (queue < 0 || !c || !s) {
		if (kick_victim(p, &n) >= 0)
			count(FP_RECHECKED);
	} else if (gives_way(c, &n, s) && may_kick(c, now)) {
		kick(c, queue, now);
		count(FP_RECHECKED);
	}
	bpf_task_release(p);
	return undecided;
}

/* When to check a decided task next. One call of the timer checks all of a CPU. */
static u64 next_turn(u64 now)
{
	return (now + 2 * FP_TURN_NS) >> FP_TURN_BITS << FP_TURN_BITS;
}

/* Checks the waiting tasks of this timer; returns when to check again, or 0. */
static u64 check_waiters(struct recheck *r, u32 cpu, u64 now)
{
	u64 next = 0;
	u32 i;

	bpf_for(i, 0, FP_WAITERS) {
		struct waiter *one = &r->waiters[i & (FP_WAITERS - 1)];

		if (!one->pid)
			continue;
		if (one->checks >= FP_RECHECKS || !still_waits(one->pid, one->since)) {
			one->pid = 0;
			continue;
		}
		if (one->due <= now) {
			one->due = kick_for_waiter(one->pid, cpu, now) ? now + one->interval :
									 next_turn(now);
			one->checks++;
		}
		if (!next || one->due < next)
			next = one->due;
	}
	return next;
}

/* Kicks the CPU if its running task has used up its slice; returns when to check again, or 0. */
static u64 check_slice(u32 cpu, u64 now)
{
	struct fp_cpu *c = cpu_record(cpu);

	if (!c || !has_short_slice(c) || c->occupant == FP_FOREIGN || !has_waiter(c, cpu) ||
	    is_ending(c, cpu, now))
		return 0;
	if (!is_outlived(c, now))
		return c->since + c->slice;
	if (!may_kick(c, now))
		return now + FP_KICK_INTERVAL_NS;
	count(FP_SLICE_KICKS);
	kick(c, cpu, now);
	/*
	 * If the scheduler process is deciding on another CPU, the CPU may find no other task: the
	 * same one goes on, without a switch, until a tick.
	 */
	return c->crowded ? now + c->slice + FP_KICK_INTERVAL_NS : 0;
}

/* Whether tasks wait that only this CPU would run: those in its own DSQ and in its local DSQ. */
static bool keeps_tasks(const struct rq *rq, u32 cpu)
{
	return rq->scx.local_dsq.nr || scx_bpf_dsq_nr_queued(cpu) > 0;
}

/*
 * A task of a higher scheduling class begins to run: looks later whether it keeps the CPU. Most of
 * them leave it soon, and then the interrupted task goes on at once.
 */
static void keeps_cpu(u32 cpu, u64 now)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);
	struct recheck *r = recheck_of(cpu);

	if (rq && r && has_timers && keeps_tasks(rq, cpu))
		arm(r, now + FP_RECHECK_NS, now);
}

/* Kicks a CPU for tasks that were enqueued again: an idle one, else one that runs a Batch task. */
static void kick_for_reenqueued(struct need *n)
{
	struct victim best = NO_VICTIM;
	s32 i;

	bpf_for(i, 0, scanned())
		consider_victim(wrapped(n->here + i), n, &best);
	kick_found(best.cpu, n->now);
}

/*
 * When a task of a higher scheduling class has kept this CPU from its tasks for long enough; 0 if
 * it does not.
 */
static u64 kept_until(const struct rq *rq, const struct fp_cpu *c, u32 cpu)
{
	if (!is_higher_class(rq->curr->prio) || c->reenqueued >= FP_REENQUEUES ||
	    !keeps_tasks(rq, cpu))
		return 0;
	return c->since + ((u64)FP_RECHECK_NS << c->reenqueued);
}

/*
 * If a task of a higher scheduling class keeps this CPU, the tasks that only this CPU would run are
 * enqueued again, the scheduler process among them, and another CPU looks for them. Before Linux
 * 6.19 they wait, and so do tasks that are bound to this CPU. Returns when to check again, or 0: a
 * timer that was armed for something else may fire too early for this.
 */
static u64 check_higher_class(u32 cpu, u64 now)
{
	struct need n = { .now = now, .here = cpu, .spare_here = true, .tier = FP_INTERACTIVE };
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);
	struct fp_cpu *c = cpu_record(cpu);
	u64 due;

	if (!rq || !c)
		return 0;
	due = kept_until(rq, c, cpu);
	if (!due || now < due)
		return due;
	if (bpf_ksym_exists(scx_bpf_dsq_reenq)) {
		scx_bpf_dsq_reenq(SCX_DSQ_LOCAL, 0);
		scx_bpf_dsq_reenq(cpu, 0);
	} else if (bpf_ksym_exists(scx_bpf_reenqueue_local___v2___weak)) {
		scx_bpf_reenqueue_local___v2___weak();
	} else {
		return 0;
	}
	count(FP_REENQUEUED);
	c->reenqueued++;
	/* The kernel enqueues them in an interrupt of this CPU that comes before that of the kick. */
	if (kicks_are_on())
		kick_for_reenqueued(&n);
	return 0;
}

static int timer_callback(void *map, u32 *key, struct recheck *r)
{
	u64 now = bpf_ktime_get_ns(), higher, waiter, slice;
	u32 cpu = *key;

	r->armed = 0;
	higher = check_higher_class(cpu, now);
	if (higher)
		arm(r, higher, now);
	if (!kicks_are_on())
		return 0;
	count(FP_TIMERS);
	waiter = check_waiters(r, cpu, now);
	slice = check_slice(cpu, now);
	if (waiter)
		arm(r, waiter, now);
	if (slice)
		arm(r, slice, now);
	return 0;
}

/* The idle CPU that was woken last, or the last CPU of a search that found none. */
static u32 woken_idle_cpu;

/*
 * The scheduler process leaves its CPU while tasks wait: wakes an idle CPU, if there is one. It
 * went idle while the process was in no DSQ. The idle CPUs take turns, because the tasks may be
 * bound to some of them.
 */
static void wake_idle_cpu(u64 now)
{
	struct fp_settings *s = the_settings();
	u32 last = woken_idle_cpu;
	s32 i;

	if (!s || !s->wakes_idle || (s->waiting == FP_IDLE && !scx_bpf_dsq_nr_queued(SHARED_QUEUE)))
		return;
	bpf_for(i, 0, scanned()) {
		/* Counted from `i`: the verifier follows each value of a number that the loop changes. */
		u32 cpu = wrapped(last + 1 + i);
		struct fp_cpu *c = cpu_record(cpu);

		if (!c || c->occupant != FP_IDLE || !kicks_are_on())
			continue;
		count(FP_WOKEN_IDLE);
		woken_idle_cpu = cpu;
		kick(c, cpu, now);
		return;
	}
	woken_idle_cpu = wrapped(last + scanned());
}

#endif
