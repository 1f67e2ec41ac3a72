/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fast path: what has to happen in the kernel because a round trip would come too late.
 *
 * It observes tasks and CPUs, so that the policy decides on facts, and it interrupts a CPU when a
 * task waits that nobody else would make room for. Which task runs next is never decided here.
 *
 *  1. Observe (records.bpf.h): fp_wakeup and fp_wakeup_new note who woke whom, fp_switch who
 *     stopped, why and after how long, and who runs now. User space is told of tasks that end, and
 *     by fp_exec of those that run another program.
 *  2. Kick (kick.bpf.h): a task that wakes up and goes up to user space needs a CPU on which the
 *     scheduler process can decide about it. fp_wakeup interrupts one, unless the waker is known
 *     to give up its own. fp_switch notices when such a CPU served somebody else (missed.bpf.h).
 *  3. Watch (watch.bpf.h): a timer notices a task that outlives its slice, and one that waits in
 *     spite of all this. fp_prepare sets the timers up, the fp_watch programs arm them.
 *  4. fp_kick: user space asks for a kick.
 *
 * The programs run beside any scheduler; they only have to be loaded while the backend is. Each
 * works without the others, as far as there is something left to do for it.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "fast_path.h"
#include "rules.h"
#include "records.bpf.h"
#include "kick.bpf.h"
#include "missed.bpf.h"
#include "watch.bpf.h"
#include "leftover.bpf.h"

char _license[] SEC("license") = "GPL";

/* In the backend's hands, and in user space's, only while it is in no queue of the kernel. */
static bool went_up(struct task_struct *p)
{
	return (p->scx.flags & TASK_QUEUED_FLAG) && !p->scx.dsq;
}

/* A kernel thread that is bound to a CPU waits in that CPU's queue, which nobody else serves. */
static void kick_bound(struct task_struct *p, struct need *n)
{
	s32 cpu = queued_on(p);
	struct fp_settings *s = the_settings();
	struct fp_cpu *c = cpu_record(cpu);

	if (cpu < 0 || !c || !s || c->occupant == FP_IDLE || !gives_way(c, n, s) ||
	    !may_kick(c, n->now))
		return;
	count(FP_BOUND);
	kick(c, cpu, n->now);
}

/* Finds the task a CPU if it needs one; returns which, or -1. */
static s32 kick_for(struct task_struct *p, struct need *n, struct fp_cpu *here)
{
	s32 victim;

	if (!kicks_are_on() || !(p->scx.flags & TASK_QUEUED_FLAG))
		return -1;
	n->never_preempts = never_preempts(p);
	if (!went_up(p)) {
		kick_bound(p, n);
		return -1;
	}
	count(FP_WAKEUPS);
	note_up(p->pid, n->now);
	if (n->spare_here && is_handoff(p, here, n->here)) {
		count(FP_HANDED_OFF);
		want(here, p->pid, n->now);
		return n->here;
	}
	victim = make_room(p, n);
	if (victim < 0) {
		count(FP_NO_VICTIM);
		want_from_others(p->pid, n->now);
		return -1;
	}
	count(FP_KICKS);
	expect(victim, p->pid, n->now);
	return victim;
}

static int woken(struct task_struct *p, bool is_new)
{
	struct need n = { .now = bpf_ktime_get_ns(), .here = bpf_get_smp_processor_id() };
	struct fp_cpu *here = cpu_record(n.here);
	struct fp_counters *counts;
	struct fp_task *t;
	s32 waker, cpu;

	if (!here || p->tgid == scheduler_tgid)
		return 0;
	/*
	 * An interrupt leaves the CPU to whom it interrupted, a task may be about to sleep, and which
	 * of the two wakes up cannot be told: the bits that say so differ between kernels. Whoever
	 * runs here is taken for a waker if he has handed over before. A parent is a waker for sure.
	 */
	waker = bpf_get_current_task_btf()->pid;
	n.spare_here = waker && (is_new || here->handoffs);
	n.tier = is_new ? tier_of_newborn(waker) : tier_of(p->pid);
	cpu = kick_for(p, &n, here);
	here->retry_at = cpu < 0 ? n.retry_at : 0;
	if (waker)
		here->woke = n.now;
	t = open_record(p);
	if (!t)
		return 0;
	describe(t, p);
	t->wakeups++;
	t->woken = n.now;
	t->waiting = 1;
	t->waker = waker;
	t->kicked_cpu = cpu;
	t->handed_off = n.spare_here && cpu == n.here;
	if (t->stopped) {
		t->slept_ns = n.now - t->stopped;
		counts = my_counters();
		if (counts)
			count_sleep(counts, t->slept_ns);
	}
	close_record(t);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(fp_wakeup, struct task_struct *p)
{
	return woken(p, false);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(fp_wakeup_new, struct task_struct *p)
{
	return woken(p, true);
}

static void stops(struct task_struct *prev, bool asleep, u64 woke, u64 now)
{
	struct fp_task *t = open_record(prev);

	if (!t)
		return;
	describe(t, prev);
	if (asleep)
		t->voluntary++;
	else
		t->involuntary++;
	t->stopped = now;
	if (t->started)
		t->stint_ns = now - t->started;
	t->handoffs = count_handoff(t->handoffs, asleep, woke, now);
	close_record(t);
}

/*
 * The task has run for the last time. It may have waited and run after sched_process_exit, where
 * it would have been told as a new one.
 */
static void ends(struct task_struct *prev)
{
	struct fp_task *t = open_record(prev);

	tell(prev->pid, FP_EXIT);
	if (!t)
		return;
	t->pid = 0;
	close_record(t);
}

/* Returns how often the task has handed over its CPU, as far as that is counted. */
static u32 starts(struct task_struct *next, u32 cpu, u32 tier, u64 now)
{
	struct fp_task *t = open_record(next);
	struct fp_counters *c = my_counters();
	struct fp_hint *h = hint_for(next->pid);
	u32 handoffs;

	if (!t)
		return 0;
	if (c) {
		count_cache(c, tier, t->last_cpu, cpu);
		if (t->waiting)
			count_wait(c, tier, now - t->woken);
		if (h && h->pid == next->pid && h->sent > t->stopped)
			count_start(c, now - h->sent);
	}
	t->started = now;
	t->last_cpu = cpu;
	t->waiting = 0;
	handoffs = t->handoffs;
	close_record(t);
	return handoffs;
}

/*
 * At the end of a slice the backend looks for the next task before it sends up the one that stops,
 * so that a lower tier may follow without anybody having decided that: it is interrupted at once.
 * A task of the highest tier that gave way to its own looks for another CPU. Whoever finds none
 * gave way to somebody as urgent as itself, most often a thread of the kernel for a moment: who
 * follows that one shall not be less urgent.
 */
static void kick_for_requeue(struct task_struct *prev, struct fp_cpu *c, u32 cpu, u64 now)
{
	struct need n = { .now = now, .here = cpu, .spare_here = true };
	s32 victim = -1;

	n.tier = tier_of(prev->pid);
	if (!kicks_are_on() || !went_up(prev))
		return;
	note_up(prev->pid, now);
	if (n.tier == FP_BATCH)
		return;
	if (c->occupant < n.tier && may_kick(c, now)) {
		kick(c, cpu, now);
		victim = cpu;
	} else if (n.tier == FP_LAT_CRITICAL) {
		victim = make_room(prev, &n);
	}
	if (victim < 0) {
		if (!c->wanted)
			want(c, prev->pid, now);
		return;
	}
	count(FP_REQUEUED);
	expect(victim, prev->pid, now);
}

/* Who has the CPU from now on. */
static void occupies(struct fp_cpu *c, u32 cpu, struct task_struct *next, u64 now)
{
	c->since = now;
	c->woke = 0;
	c->handoffs = 0;
	c->slice = 0;
	c->light = 0;
	c->pid = next->pid;
	if (!next->pid) {
		c->occupant = FP_IDLE;
		call_home(cpu, now);
	} else if (next->tgid == scheduler_tgid || next->prio < 100) {
		c->occupant = FP_FOREIGN;
	} else {
		c->occupant = tier_of(next->pid);
		c->slice = next->scx.slice;
		c->light = is_light(next);
		c->handoffs = starts(next, cpu, c->occupant, now);
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(fp_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct fp_cpu *c = cpu_record(cpu);
	u64 now = bpf_ktime_get_ns();

	if (!c)
		return 0;
	if (prev_state & TASK_DEAD_STATE)
		ends(prev);
	else if (prev->pid && prev->tgid != scheduler_tgid)
		stops(prev, !preempt && prev_state, c->woke, now);
	occupies(c, cpu, next, now);
	if (next->pid == scheduler_tgid)
		scheduler_begins(c, cpu);
	else
		check_missed(c, cpu, now);
	if (c->occupant != FP_FOREIGN && prev->tgid != scheduler_tgid)
		kick_for_requeue(prev, c, cpu, now);
	if (prev->pid == scheduler_tgid)
		scheduler_leaves(c, cpu, now);
	return 0;
}

/* The task runs another program: what was learned of it describes the one before. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(fp_exec, struct task_struct *p)
{
	struct fp_task *t = open_record(p);

	tell(p->pid, FP_EXEC);
	if (!t)
		return 0;
	begin_afresh(t);
	close_record(t);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(fp_watch_wakeup, struct task_struct *p)
{
	if (went_up(p) && p->tgid != scheduler_tgid)
		watch_waiter(p);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(fp_watch_wakeup_new, struct task_struct *p)
{
	if (went_up(p))
		watch_waiter(p);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(fp_watch_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 cpu = bpf_get_smp_processor_id();

	if (next->pid && next->tgid != scheduler_tgid)
		watch_slice(next, cpu);
	if (prev->pid == scheduler_tgid)
		watch_left_overs(cpu, bpf_ktime_get_ns());
	return 0;
}

/* Sets up the timers of all CPUs. */
SEC("syscall")
int fp_prepare(void *unused)
{
	u32 cpu;

	bpf_for(cpu, 0, nr_cpus) {
		struct watch *w = watch_of(cpu);

		if (!w)
			return -1;
		if (bpf_timer_init(&w->timer, &watches, MONOTONIC) ||
		    bpf_timer_set_callback(&w->timer, patrol))
			return -2;
	}
	return 0;
}

SEC("syscall")
int fp_kick(struct fp_kick_arg *arg)
{
	struct fp_cpu *c = cpu_record(arg->cpu);

	if (!c || arg->cpu < 0 || !kicks_are_on())
		return -1;
	count(FP_ASKED);
	kick(c, arg->cpu, bpf_ktime_get_ns());
	return 0;
}
