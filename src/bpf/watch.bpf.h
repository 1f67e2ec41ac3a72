/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A timer for each CPU, armed only while somebody waits.
 *
 * It notices what no event tells: a task that used up its slice between two ticks of the kernel,
 * and a task that woke up and still waits, for whatever reason. It is armed for the earliest of
 * these moments, never moved back when one of them turns out not to matter, and arms itself again
 * as long as there is something to look at. So a switch rarely has to touch it.
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
 * The kernel's tick. Slices of about one or more are left to it: a timer of our own for each slice
 * of each task that computes costs 0.5 % of their work.
 */
const volatile u64 tick_ns = 4 * 1000 * 1000;

struct waiter {
	u64 since;
	u64 due;
	s32 pid;
	u16 kicks;
	/* As in struct need. */
	bool lower_only;
};

struct watch {
	struct bpf_timer timer;
	/* When the timer fires; 0 if it is not armed. */
	u64 armed;
	/* A task's place follows from its pid: it has one wake-up at a time. */
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
 * Whether somebody waits who is at least as urgent as the occupant. Of the tasks in the queue of
 * this CPU user space has decided that they are; those in the queue for any CPU may be batch.
 */
static bool somebody_waits(const struct fp_cpu *c, u32 cpu)
{
	struct fp_settings *s = the_settings();

	return (s && s->waiting >= c->occupant) || scx_bpf_dsq_nr_queued(cpu) > 0 ||
	       (c->occupant == FP_BATCH && scx_bpf_dsq_nr_queued(SHARED_QUEUE) > 0);
}

/* Whether a timer sees to the end of the occupant's slice. */
static bool has_short_slice(const struct fp_cpu *c)
{
	return c->slice && c->slice < tick_ns / 4 * 3;
}

static void arm(struct watch *w, u64 at, u64 now)
{
	if (w->armed && w->armed <= at)
		return;
	w->armed = at;
	bpf_timer_start(&w->timer, at > now + FP_SOON_NS ? at - now : FP_SOON_NS, PIN_TO_THIS_CPU);
}

/* Looks at `due` whether the task that waits since then still does. */
static void watch_one(struct watch *w, s32 pid, u64 since, u64 due, bool lower_only, u64 now)
{
	struct waiter *one = &w->waiters[(u32)pid % FP_WATCHED];

	/* Who wanted more goes on wanting it. */
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
 * Keeps an eye on a task that went up to user space and for which nobody was interrupted. A kick
 * that comes to nothing is noticed by the switch (missed.bpf.h), which costs less than a timer.
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
 * Sees to it that the slice of the task that begins now ends in time. A task that has just slept
 * and last ran for a small part of its slice will most likely sleep again before: the tick is
 * good enough for it.
 */
static void watch_slice(struct task_struct *p, u32 cpu)
{
	struct fp_cpu *c = cpu_record(cpu);
	struct fp_task *t = task_record(p->pid);
	struct watch *w = watch_of(cpu);
	u64 now;

	if (!c || !w || !has_short_slice(c) || c->pid != p->pid)
		return;
	/* The clock was just read for it. */
	now = c->since;
	if (w->armed && w->armed <= now + c->slice)
		return;
	if (t && t->pid == p->pid && t->woken > t->stopped && t->stint_ns < c->slice / 4)
		return;
	if (somebody_waits(c, cpu))
		arm(w, now + c->slice, now);
}

/* The kernel's queue in which the task waits, by its number; NO_QUEUE if it is in none. */
static u64 queue_of(struct task_struct *p)
{
	struct scx_dispatch_q *queue = p->scx.dsq;

	return queue ? BPF_CORE_READ(queue, id) : NO_QUEUE;
}

/* The queue of a CPU in which the task waits, as that CPU's number; else -1. */
static s32 queued_on(struct task_struct *p)
{
	u64 id = queue_of(p);

	return id < FP_CPUS ? id : -1;
}

/* A CPU for a task that still waits: the one in whose queue it is, or any. */
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
		/* It has run and gone to sleep. */
	} else if (queue < 0 || !c || !s) {
		if (make_room(p, &n) >= 0)
			count(FP_AGAIN);
	} else if (gives_way(c, &n, s) && may_kick(c, now)) {
		kick(c, queue, now);
		count(FP_AGAIN);
	}
	bpf_task_release(p);
}

/* Looks after those whose wake-up this CPU saw; returns when to look again, or 0. */
static u64 look_after_waiters(struct watch *w, u32 cpu, u64 now)
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

/* Interrupts an occupant that has had its slice; returns when to look again, or 0. */
static u64 look_after_slice(u32 cpu, u64 now)
{
	struct fp_cpu *c = cpu_record(cpu);

	if (!c || !has_short_slice(c) || c->occupant == FP_FOREIGN || !somebody_waits(c, cpu) ||
	    is_ending(cpu))
		return 0;
	if (!is_outlived(c, now))
		return c->since + c->slice;
	if (!may_kick(c, now))
		return now + FP_KICK_INTERVAL_NS;
	count(FP_OUTLIVED);
	kick(c, cpu, now);
	return 0;
}

static int patrol(void *map, u32 *key, struct watch *w)
{
	u64 now = bpf_ktime_get_ns(), waiter, slice;
	u32 cpu = *key;

	w->armed = 0;
	if (!kicks_are_on())
		return 0;
	count(FP_PATROLS);
	waiter = look_after_waiters(w, cpu, now);
	slice = look_after_slice(cpu, now);
	if (waiter)
		arm(w, waiter, now);
	if (slice)
		arm(w, slice, now);
	return 0;
}

#endif
