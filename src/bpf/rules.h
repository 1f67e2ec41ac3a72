/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The rules of the fast path: which CPU gives way to which task, and which waker hands its CPU
 * over.
 *
 * Pure functions: each takes what it needs and calls no BPF helper. The BPF programs include this
 * file, and crates/bpf_rules compiles it for the host, where a test compares it with what the
 * simulator does (crates/sim/src/machine/rules.rs).
 */
#ifndef __RULES_H
#define __RULES_H

#include "fast_path.h"

#ifndef __VMLINUX_H__
#include <stdbool.h>
#endif
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* kernel/sched: a lower number is a priority of the real-time or the deadline class. */
#define MAX_RT_PRIO 100

/* Whether a task of this priority is real-time or deadline: its class comes before SCHED_EXT. */
static __always_inline bool is_higher_class(int prio)
{
	return prio < MAX_RT_PRIO;
}

/* A task that needs a CPU. */
struct need {
	u64 now;
	/* The CPU that executes this. */
	u32 here;
	/* Whether that CPU must be left alone. */
	bool spare_here;
	/* Whether the task never preempts: SCHED_IDLE, or nice 19. */
	bool never_preempts;
	/* Whether the task also wants a CPU whose occupant has used up its slice. */
	bool overdue;
	/* enum fp_occupant */
	u32 tier;
};

/* The best CPU to kick so far. */
struct victim {
	u32 rank;
	s32 cpu;
	u64 ran;
};

#define NO_VICTIM { .rank = (u32)-1, .cpu = -1, .ran = 0 }

/*
 * Where a search for a CPU begins: here, or at the last CPU of a task that may not use all CPUs.
 * A search looks at FP_SCAN CPUs, and the CPUs of such a task are near its last one.
 */
static __always_inline u32 search_from(u32 here, u32 last_cpu, bool is_bound, u32 nr_cpus)
{
	return nr_cpus > FP_SCAN && is_bound ? last_cpu : here;
}

/* Whether the limits on kicks allow one: the least interval, and the most in a window of time. */
static __always_inline bool may_kick(const struct fp_cpu *c, u64 now)
{
	return now - c->kicked >= FP_KICK_INTERVAL_NS &&
	       (c->window != now >> FP_WINDOW_BITS || c->kicks < FP_KICKS_PER_WINDOW);
}

static __always_inline void note_kick(struct fp_cpu *c, u64 now)
{
	if (c->window != now >> FP_WINDOW_BITS) {
		c->window = now >> FP_WINDOW_BITS;
		c->kicks = 0;
	}
	c->kicks++;
	c->kicked = now;
}

/* Whether the occupant has used up its slice. */
static __always_inline bool is_outlived(const struct fp_cpu *c, u64 now)
{
	return c->slice && now - c->since >= c->slice;
}

/*
 * Whether the occupant gives way: to a higher tier; to its own tier when it has used up its slice;
 * Batch to Batch at once, since the wakee has slept and the occupant has not. A Batch task that has
 * begun to run does not give way to another Batch task before preempt_thresh_ns, unless there is a
 * burst.
 * SCHED_IDLE and nice 19 never preempt.
 */
static inline bool gives_way(const struct fp_cpu *c, const struct need *n,
			     const struct fp_settings *s)
{
	if (c->occupant == FP_IDLE)
		return true;
	if (c->occupant >= FP_FOREIGN)
		return false;
	if (n->overdue && is_outlived(c, n->now))
		return true;
	if (n->never_preempts || c->occupant > n->tier)
		return false;
	if (c->occupant < n->tier)
		return true;
	if (n->tier != FP_BATCH)
		return is_outlived(c, n->now);
	return s->burst || n->now - c->since >= s->preempt_thresh_ns;
}

/*
 * The slice of a task that begins to run while `waiting` tasks wait for one of `cpus` CPUs:
 * `slice`, or so much less that a turn takes FP_CROWD_TURN_NS.
 */
static __always_inline u64 crowd_slice(u64 slice, u32 waiting, u32 cpus)
{
	u64 fair;

	if (slice <= FP_CROWD_SLICE_MIN_NS || slice / cpus * waiting <= FP_CROWD_TURN_NS)
		return slice;
	fair = (u64)FP_CROWD_TURN_NS * cpus / waiting;
	return fair > FP_CROWD_SLICE_MIN_NS ? fair : FP_CROWD_SLICE_MIN_NS;
}

/*
 * The key in the shared DSQ of a Batch task that is queued with this slice and key while `queued`
 * tasks wait there. It is at least the time at which the task is due if each of these runs once
 * before it. So an urgent task passes the Batch tasks that are not due yet.
 */
static __always_inline u64 crowd_key(u64 key, u64 now, u64 slice, u32 queued, u32 cpus)
{
	u64 turn = crowd_slice(slice, queued, cpus) / cpus * queued;

	if (turn > FP_CROWD_TURN_NS)
		turn = FP_CROWD_TURN_NS;
	return key > now + turn ? key : now + turn;
}

/*
 * The key in the shared DSQ of a LatCritical task that is queued with this key while `queued` tasks
 * wait there: earlier by FP_CROWD_LEAD_NS for each task beyond the first FP_CROWD of a CPU, at most
 * by FP_CROWD_TURN_NS, so that it passes Batch tasks that are due. It grows with the crowd: with
 * all of it at once, tasks that were queued shortly before would wait until it has passed.
 */
static __always_inline u64 crowd_passing_key(u64 key, u32 queued, u32 cpus)
{
	u64 each = queued / cpus, lead;

	if (each <= FP_CROWD)
		return key;
	lead = (each - FP_CROWD) * FP_CROWD_LEAD_NS;
	return key - (lead < FP_CROWD_TURN_NS ? lead : FP_CROWD_TURN_NS);
}

/*
 * The key in the shared DSQ that gives its share by weight to a task that has lost its CPU at `now`
 * after `ran` nanoseconds, and had the key `last`. Slices end at ticks, so shares come from how
 * often a task has a turn: one of half the weight waits for two turns of all tasks. In the mean a
 * key is `turn` behind the time, as long as a turn of all takes. A task that gets less than its
 * share, because it has a CPU for itself, would be behind for ever, and counts for less.
 */
static __always_inline u64 key_by_weight(u64 *turn, u64 last, u64 now, u64 ran, u32 weight)
{
	s64 mean = *turn, behind = now - last, more = behind - mean;
	u64 period;

	/* It was not in the queue lately: it gets a place in the middle. */
	if (behind > FP_PERIOD_MAX_NS || behind < -(s64)FP_PERIOD_MAX_NS)
		return now - mean;
	if (more > mean)
		more = mean;
	if (more < -2 * mean)
		more = -2 * mean;
	mean += more >> 4;
	if (mean < FP_MEAN_TURN_MIN_NS)
		mean = FP_MEAN_TURN_MIN_NS;
	*turn = mean;
	if (behind > 4 * mean)
		behind = 4 * mean;
	if (ran > 2 * FP_DEFAULT_SLICE_NS)
		ran = 2 * FP_DEFAULT_SLICE_NS;
	period = (u64)mean * (100 * ran / weight) / FP_DEFAULT_SLICE_NS;
	return now + (period < FP_PERIOD_MAX_NS ? period : FP_PERIOD_MAX_NS) - behind;
}

/* The lower, the better: the lowest tier first, and within a tier a low-weight task. */
static __always_inline u32 victim_rank(const struct fp_cpu *c)
{
	return 2 * c->occupant + !c->low_weight;
}

/*
 * Of equal rank this CPU, which needs no interrupt of another CPU; else the longest-running task.
 */
static __always_inline u64 victim_ran(const struct fp_cpu *c, bool is_here, u64 now)
{
	return is_here ? (u64)-1 : now - c->since;
}

/* Whether the CPU is a better victim than the best so far. */
static __always_inline bool beats(const struct fp_cpu *c, bool is_here, u64 now,
				  const struct victim *best)
{
	u32 rank = victim_rank(c);

	return rank < best->rank ||
	       (rank == best->rank && victim_ran(c, is_here, now) > best->ran);
}

static __always_inline void take_victim(struct victim *best, const struct fp_cpu *c, u32 cpu,
					bool is_here, u64 now)
{
	best->rank = victim_rank(c);
	best->ran = victim_ran(c, is_here, now);
	best->cpu = cpu;
}

/*
 * How often in a row a task has handed over its CPU, counted when it stops. A task that has woken
 * another one in this run interval hands over its CPU if it sleeps soon, and does not otherwise.
 */
static __always_inline u8 count_handoff(u8 before, bool asleep, u64 woke, u64 now)
{
	if (!woke)
		return before;
	if (!asleep || now - woke > FP_HANDOFF_NS)
		return 0;
	return before < FP_HANDOFF_TRUST ? before + 1 : before;
}

/*
 * Whether the occupant is trusted to hand its CPU over to the task that it wakes: it slept soon
 * after each of its last wakeups, and this is the first one of this run interval.
 */
static __always_inline bool hands_over(const struct fp_cpu *c, const struct fp_settings *s)
{
	return s->hand_off && !c->woke && c->handoffs >= FP_HANDOFF_TRUST;
}

#endif
