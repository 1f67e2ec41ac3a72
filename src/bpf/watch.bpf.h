/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A timer for each CPU, armed only while a task waits.
 *
 * It detects what no event reports: a running task that has used up its slice between two ticks of
 * the kernel, and a woken task that still waits, for whatever reason. It is armed for the earliest
 * time at which one of these may hold, and is not moved to a later time when that one no longer
 * matters. The callback arms it again as long as there is something to check. So a switch rarely
 * has to touch it.
 */
#ifndef __WATCH_BPF_H
#define __WATCH_BPF_H

struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;

#define NO_QUEUE ((u64)-1)
/* uapi/linux/time.h; uapi/linux/bpf.h has the flag since 6.7. */
#define MONOTONIC 1
#define PIN_TO_THIS_CPU 2

/*
 * The kernel's tick. Slices of about one tick or more end at ticks: a timer for each slice of each
 * computing task would cost 0.5 % of their work.
 */
const volatile u64 tick_ns = 4 * 1000 * 1000;

/* A waiting task that a timer watches. */
struct waiter {
	/* When it woke up or lost its CPU, and when to check it. */
	u64 since;
	u64 due;
	s32 pid;
	/* Kicks for it by the timer so far. */
	u16 kicks;
	/* As in struct need. */
	bool lower_only;
};

struct watch {
	struct bpf_timer timer;
	/* When the timer fires; 0 if it is not armed. */
	u64 armed;
	/* Indexed by pid modulo FP_WATCHED: a task has one wakeup at a time. */
	struct waiter waiters[FP_WATCHED];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FP_CPUS);
	__type(key, u32);
	__type(value, struct watch);
} watches SEC(".maps");

static struct watch *watch_of(u32 cpu)
{
	return bpf_map_lookup_elem(&watches, &cpu);
}

/*
 * Whether a task waits for which a timer ends the running task's slice: one that is at least as
 * urgent. Tasks in this CPU's DSQ count as such, because user space has placed them there. Between
 * Batch tasks a tick ends slices that were given as long ones: a timer for each rest of a slice
 * would cost more than the wakeup that preempted the task. A low-weight task was given a short one:
 * nice 19 gets 0.16 ms, and a tick would make 4 of it.
 */
static bool has_waiter(const struct fp_cpu *c, u32 cpu)
{
	struct fp_settings *s = the_settings();

	if (!s)
		return false;
	if (scx_bpf_dsq_nr_queued(cpu) > 0 || s->waiting > c->occupant)
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

/* Arms the timer for `at`, unless it fires sooner. */
static void arm(struct watch *w, u64 at, u64 now)
{
	if (w->armed && w->armed <= at)
		return;
	w->armed = at;
	bpf_timer_start(&w->timer, at > now + FP_SOON_NS ? at - now : FP_SOON_NS, PIN_TO_THIS_CPU);
}

/* Has the timer check at `due` whether the task still waits. */
static void watch_one(struct watch *w, s32 pid, u64 since, u64 due, bool lower_only, u64 now)
{
	struct waiter *one = &w->waiters[(u32)pid % FP_WATCHED];

	/* For one and the same wait, keeps the weaker restriction. */
	if (one->pid == pid && one->since == since)
		lower_only &= one->lower_only;
	one->pid = pid;
	one->since = since;
	one->due = due;
	one->kicks = 0;
	one->lower_only = lower_only;
	arm(w, due, now);
}

/*
 * Watches a woken task that was queued to user space and for which no CPU was kicked. A lost kick
 * is detected at a switch (lost_kick.bpf.h), which costs less than a timer.
 */
static void watch_waiter(struct task_struct *p)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct fp_task *t = task_record(p->pid);
	struct fp_cpu *here = cpu_record(cpu);
	struct watch *w = watch_of(cpu);
	u64 due;

	if (!w || !here || !t || t->pid != p->pid || !t->waiting ||
	    (t->kicked_cpu >= 0 && !t->handed_off))
		return;
	due = here->retry_at && t->kicked_cpu < 0 ? here->retry_at : t->woken + FP_AGAIN_NS;
	watch_one(w, p->pid, t->woken, due, false, t->woken);
}

/*
 * Arms the timer for the end of the slice of the task that begins to run. Not if it has just slept
 * and its last run interval was a small part of its slice: then it will most likely sleep before
 * its slice ends, and else a tick ends the slice.
 */
static void watch_slice(struct task_struct *p, u32 cpu)
{
	struct fp_cpu *c = cpu_record(cpu);
	struct fp_task *t = task_record(p->pid);
	struct watch *w = watch_of(cpu);
	u64 now;

	if (!c || !w || !has_short_slice(c) || c->pid != p->pid)
		return;
	/* fp_switch has just read the clock. */
	now = c->since;
	if (w->armed && w->armed <= now + c->slice)
		return;
	if (t && t->pid == p->pid && t->woken > t->stopped && t->run_interval_ns < c->slice / 4)
		return;
	if (has_waiter(c, cpu))
		arm(w, now + c->slice, now);
}

/* The number of the DSQ in which the task waits; NO_QUEUE if it is in none. */
static u64 queue_of(struct task_struct *p)
{
	struct scx_dispatch_q *queue = p->scx.dsq;

	return queue ? BPF_CORE_READ(queue, id) : NO_QUEUE;
}

/* The CPU in whose DSQ the task waits; -1 if it is in none of these. */
static s32 queued_on(struct task_struct *p)
{
	u64 id = queue_of(p);

	return id < FP_CPUS ? id : -1;
}

/* Kicks a CPU for a task that still waits: the one in whose DSQ it is, or any. */
static void kick_again(const struct waiter *one, u32 cpu, u64 now)
{
	struct need n = { .now = now, .here = cpu, .overdue = true };
	struct task_struct *p = bpf_task_from_pid(one->pid);
	struct fp_settings *s = the_settings();
	struct fp_cpu *c;
	s32 queue;

	if (!p)
		return;
	n.tier = tier_of(one->pid);
	n.never_preempts = never_preempts(p);
	n.lower_only = one->lower_only;
	queue = queued_on(p);
	c = cpu_record(queue);
	if (!(p->scx.flags & TASK_QUEUED_FLAG)) {
		/* It has run and sleeps. */
	} else if (queue < 0 || !c || !s) {
		if (kick_victim(p, &n) >= 0)
			count(FP_AGAIN);
	} else if (gives_way(c, &n, s) && may_kick(c, now)) {
		kick(c, queue, now);
		count(FP_AGAIN);
	}
	bpf_task_release(p);
}

/* Checks the waiting tasks that this timer watches; returns when to check again, or 0. */
static u64 check_waiters(struct watch *w, u32 cpu, u64 now)
{
	u64 next = 0;
	u32 i;

	for (i = 0; i < FP_WATCHED; i++) {
		struct waiter *one = &w->waiters[i];

		if (!one->pid)
			continue;
		if (!still_waits(one->pid, one->since) || one->kicks >= FP_AGAIN_MAX) {
			one->pid = 0;
			continue;
		}
		if (one->due <= now) {
			kick_again(one, cpu, now);
			one->kicks++;
			one->due = now + FP_AGAIN_NS;
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
	    is_ending(cpu))
		return 0;
	if (!is_outlived(c, now))
		return c->since + c->slice;
	if (!may_kick(c, now))
		return now + FP_KICK_INTERVAL_NS;
	count(FP_SLICE_KICKS);
	kick(c, cpu, now);
	return 0;
}

static int timer_callback(void *map, u32 *key, struct watch *w)
{
	u64 now = bpf_ktime_get_ns(), waiter, slice;
	u32 cpu = *key;

	w->armed = 0;
	if (!kicks_are_on())
		return 0;
	count(FP_TIMERS);
	waiter = check_waiters(w, cpu, now);
	slice = check_slice(cpu, now);
	if (waiter)
		arm(w, waiter, now);
	if (slice)
		arm(w, slice, now);
	return 0;
}

#endif
