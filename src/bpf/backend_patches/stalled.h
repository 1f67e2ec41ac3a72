/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduler process stops deciding while the backend is loaded.
 *
 * Symptom: the process is stopped beside hogs: the longest wakeup takes 4.5 s, then the kernel
 * ejects the scheduler with "runnable task stall".
 *
 * Cause: a task that is queued to user space is in no DSQ, and only a decision puts it into one.
 *
 * Fix: a timer runs while tasks wait for decisions. If the process ends no round between several
 * checks, it is stalled. Until it has ended a round again, the backend decides by itself
 * (not_deciding.h). The tasks that wait in user space are found among all tasks of the machine: a
 * list would cost each message, and stalls are rare. The kernel ignores an insert of a task that is
 * not queued to user space. The kernel may refuse to start the timer (timer_rules.h), and no
 * further message need come: the backend's heartbeat, once a second, looks whether the timer still
 * runs.
 *
 * How to see it: VM scenario `stalled`.
 *
 * Upstream: a watchdog for the process in the backend (docs/upstream.md, report 15).
 */
#ifndef __PATCH_STALLED_H
#define __PATCH_STALLED_H

#include "../timer_rules.h"

/* uapi/linux/time.h; uapi/linux/bpf.h has the flag since 6.7. */
#define PATCH_CLOCK_MONOTONIC 1
#define PATCH_TIMER_CPU_PIN 2
/* include/linux/sched.h: __TASK_STOPPED, __TASK_TRACED and TASK_FROZEN. */
#define PATCH_TASK_STOPPED (0x4 | 0x8 | 0x8000)
/* kernel/bpf/task_iter.c: all threads of the machine. */
#define PATCH_ALL_THREADS 1

/*
 * Sweeps at the begin of a stall. A task that is queued to user space just then is found by the
 * next one.
 */
#define PATCH_SWEEPS 3
/* Entries of the dispatch buffer that a sweep leaves to decisions. */
#define PATCH_SPARE_SLOTS 32

extern int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task,
			     unsigned int flags) __weak __ksym;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it) __weak __ksym;
extern void bpf_iter_task_destroy(struct bpf_iter_task *it) __weak __ksym;

struct patch_stall_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct patch_stall_timer);
} patch_stall_timers SEC(".maps");

/* The timer. */
static struct fp_watch patch_watch;
/* `rounds` at the last check. */
static u64 patch_checked_at;
/* Checks since then. */
static u32 patch_missed;
/* Sweeps still to be asked for, and whether one is asked for now. */
static u32 patch_sweeps;
static u32 patch_sweep_asked;

/* Arms the timer unless it is armed. */
static __always_inline void patch_arm(void)
{
	struct patch_stall_timer *one;
	u32 key = 0;

	if (patch_watch.armed || __sync_lock_test_and_set(&patch_watch.armed, 1))
		return;
	one = bpf_map_lookup_elem(&patch_stall_timers, &key);
	if (!one || bpf_timer_start(&one->timer, PATCH_CHECK_NS, PATCH_TIMER_CPU_PIN))
		patch_watch.armed = 0;
}

/* A message has been queued to user space. */
static __always_inline void patch_note_asked(void)
{
	__sync_fetch_and_add(&patch_stall.asked, 1);
	patch_arm();
}

static __always_inline u32 patch_stall_cause(void)
{
	struct task_struct *p = bpf_task_from_pid(usersched_pid);
	u32 state, cause;

	if (!p)
		return PATCH_STALL_BLOCKED;
	state = BPF_CORE_READ(p, __state);
	if (state & PATCH_TASK_STOPPED)
		cause = PATCH_STALL_STOPPED;
	else if (state)
		cause = PATCH_STALL_BLOCKED;
	else
		cause = scx_bpf_task_running(p) ? PATCH_STALL_RUNNING : PATCH_STALL_NO_CPU;
	bpf_task_release(p);
	return cause;
}

static __always_inline void patch_kick_all(u64 flags)
{
	s32 cpu;

	bpf_for(cpu, 0, scx_bpf_nr_cpu_ids())
		scx_bpf_kick_cpu(cpu, flags);
}

/* Checks without a round that make a stall: one more for a process that may wait for slices. */
static __always_inline u32 patch_checks(void)
{
	bool waits_for_slices = scx_bpf_dsq_nr_queued(BACKEND_SCHED_DSQ) &&
				PATCH_SLICES * patch_stall.slice_ns >= PATCH_CHECK_NS;

	return PATCH_CHECKS + waits_for_slices;
}

/* Detects the begin of a stall: tasks wait, and no round has ended. */
static __always_inline void patch_check(u64 rounds)
{
	if (rounds != patch_checked_at || !(patch_is_unanswered() || order_needs_round())) {
		patch_checked_at = rounds;
		patch_missed = 0;
		return;
	}
	if (++patch_missed < patch_checks() || patch_not_deciding())
		return;
	patch_sweeps = PATCH_SWEEPS;
	/* It did not decide since the first of them either. */
	patch_stall.since = bpf_ktime_get_ns() - patch_missed * PATCH_CHECK_NS;
}

static __always_inline void patch_check_in_stall(void)
{
	u32 cause = patch_stall_cause();

	/* The verifier does not know what the function above may return. */
	if (cause < PATCH_STALL_CAUSES)
		patch_stall.causes[cause]++;
	if (!patch_sweeps)
		return;
	patch_sweeps--;
	patch_sweep_asked = 1;
	patch_kick_all(SCX_KICK_PREEMPT);
}

/* Whether the timer has something to watch: a stall, or tasks that wait for a decision. */
static __always_inline bool patch_has_to_watch(void)
{
	return patch_stall.since || patch_is_unanswered() || order_bounds.pending;
}

static int patch_check_stall(void *map, u32 *key, struct patch_stall_timer *one)
{
	/* First: a message that is queued from here on arms the timer itself. */
	__sync_lock_test_and_set(&patch_watch.armed, 0);
	patch_watch.calls++;
	patch_check(patch_stall.rounds);
	if (patch_stall.since)
		patch_check_in_stall();
	if (patch_has_to_watch())
		patch_arm();
	return 0;
}

/* The backend's heartbeat: arms the timer if it should be armed and is not. */
static __always_inline void patch_watch_over(void)
{
	watch_look(&patch_watch);
	if (patch_has_to_watch())
		patch_arm();
}

/* Sets the timer up. */
static __always_inline void patch_init_stall_timer(void)
{
	struct patch_stall_timer *one;
	u32 key = 0;

	one = bpf_map_lookup_elem(&patch_stall_timers, &key);
	if (!one)
		return;
	bpf_timer_init(&one->timer, &patch_stall_timers, PATCH_CLOCK_MONOTONIC);
	bpf_timer_set_callback(&one->timer, patch_check_stall);
}

/* Whether the task is runnable, in no DSQ, and not running: it may wait in user space. */
static __always_inline bool patch_may_wait(const struct task_struct *p)
{
	return (p->scx.flags & SCX_TASK_QUEUED) && !p->scx.dsq && !scx_bpf_task_running(p) &&
	       p->pid != usersched_pid;
}

/*
 * Queues all tasks that wait in user space to the shared DSQ, if that is asked for. Called at the
 * begin of dispatch, which is where the kernel allows it.
 */
static __always_inline void patch_sweep(void)
{
	struct task_struct *p;
	bool any = false;

	if (!patch_stall.since || !patch_sweep_asked ||
	    !__sync_lock_test_and_set(&patch_sweep_asked, 0))
		return;
	bpf_for_each(task, p, NULL, PATCH_ALL_THREADS) {
		if (!patch_may_wait(p))
			continue;
		if (scx_bpf_dispatch_nr_slots() <= PATCH_SPARE_SLOTS) {
			patch_sweep_asked = 1;
			break;
		}
		patch_queue_by_time(p, 0, 0);
		any = true;
	}
	/* The other CPUs look when the tasks are in the queue. */
	if (any)
		patch_kick_all(SCX_KICK_IDLE);
}

#endif
