/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fast path: what has to happen in the kernel because a round trip to user space is too slow.
 *
 * It records what tasks and CPUs do, for the policy to read, and kicks a CPU for a task that would
 * otherwise wait for a tick. It never decides which task runs next.
 *
 *  1. Observe (records.bpf.h): fp_wakeup and fp_wakeup_new record the wakee and its waker.
 *     fp_switch records which task stopped, why, after how long, and which task runs now. User
 *     space gets news of tasks that exit (fp_switch), and that execute another program (fp_exec).
 *  2. Kick (kick.bpf.h): a woken task that is queued to user space needs a CPU on which the
 *     scheduler process can run and decide. fp_wakeup kicks one, unless the waker is trusted to
 *     hand over its own.
 *  3. Recheck (recheck.bpf.h): a timer detects a task that still waits, for whatever reason, and a
 *     running task that has used up its slice. fp_prepare sets the timers up.
 *  4. fp_kick: user space asks for a kick.
 *
 * The programs share no code with the backend, and are loaded as long as the backend is. Each works
 * without the others, as far as the records that it reads are still written.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "fast_path.h"
#include "rules.h"
#include "timer_rules.h"
#include "records.bpf.h"
#include "kick.bpf.h"
#include "recheck.bpf.h"

char _license[] SEC("license") = "GPL";

/* Kicks the CPU to which a kernel thread is bound: it waits in that CPU's DSQ. */
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

/*
 * Kicks a CPU for a woken task if it needs one, and has it checked later. Returns the CPU that
 * serves it, or -1.
 */
static s32 kick_for(struct task_struct *p, struct need *n, struct fp_cpu *here)
{
	s32 victim;

	if (!kicks_are_on() || !(p->scx.flags & TASK_QUEUED_FLAG))
		return -1;
	n->never_preempts = never_preempts(p);
	if (!is_queued_to_user(p)) {
		kick_bound(p, n);
		if (queue_of(p) == SHARED_QUEUE)
			check_later(p->pid, n->here, n->now, FP_TURN_NS);
		return -1;
	}
	count(FP_WAKEUPS);
	if (n->spare_here && is_handoff(p, here, n->here)) {
		count(FP_HANDED_OFF);
		check_later(p->pid, n->here, n->now, FP_TURN_NS);
		return n->here;
	}
	victim = kick_victim(p, n);
	count(victim < 0 ? FP_NO_VICTIM : FP_KICKS);
	check_later(p->pid, n->here, n->now, n->tier > FP_BATCH ? FP_RECHECK_NS : FP_TURN_NS);
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
	 * A task that wakes another one may be about to sleep and free this CPU; the task that an
	 * interrupt has interrupted goes on. The two cannot be told apart, because the bits that
	 * say so differ between kernels. So the running task counts as the waker if it has handed
	 * over its CPU before. A parent is the waker for sure.
	 */
	waker = bpf_get_current_task_btf()->pid;
	n.spare_here = waker && (is_new || here->handoffs);
	n.tier = is_new ? tier_of_new_task(waker) : tier_of_wakee(p->pid, n.now);
	cpu = kick_for(p, &n, here);
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

/* The task stops, asleep or not; `woke`: when it last woke a task in this run interval, or 0. */
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
	/* The start of a task of a higher class is not recorded. */
	t->waiting = 0;
	if (t->started)
		t->run_interval_ns = now - t->started;
	t->handoffs = count_handoff(t->handoffs, asleep, woke, now);
	close_record(t);
}

/*
 * The task has run for the last time. This is not done at sched_process_exit: the task may wait and
 * run once more after that, and user space would take it for a new task.
 */
static void ends(struct task_struct *prev)
{
	send_news(prev->pid, FP_EXIT);
	/* A wakeup and a switch at once may both have taken an empty record for it. */
	for_each_way(key, prev->pid) {
		struct fp_task *t = task_at(key);

		if (t && t->pid == prev->pid)
			t->pid = 0;
	}
}

/*
 * The task begins to run; `h` is the hint about it. Returns its record; NULL if another CPU writes
 * that.
 */
static struct fp_task *starts(struct task_struct *next, const struct fp_hint *h, u32 cpu, u64 now)
{
	struct fp_task *t = open_record(next);
	struct fp_counters *c = my_counters();
	u32 tier = tier_by(h);

	if (!t)
		return NULL;
	if (c) {
		count_cache(c, tier, t->last_cpu, cpu);
		if (t->waiting)
			count_wait(tier, now - t->woken);
		/* A decision that came while the task slept has renewed its order. */
		if (h && h->sent > t->stopped && h->sent > t->woken)
			count_start(c, now - h->sent);
	}
	t->started = now;
	t->last_cpu = cpu;
	t->waiting = 0;
	close_record(t);
	return t;
}

/*
 * The task `prev` lost its CPU at the end of its slice and was queued to user space. The backend
 * looks for the next task before it queues `prev`, so a task of a lower tier may follow without a
 * decision: it is preempted at once. A LatCritical task that gave way to its own tier looks for
 * another CPU. If the scheduler process follows, it decides at once, but a task that has waited for
 * long may come before `prev` by its key: only the recheck finds that.
 */
static void kick_for_requeue(struct task_struct *prev, struct fp_cpu *c, u32 cpu, u64 now)
{
	struct need n = { .now = now, .here = cpu, .spare_here = true };

	if (!is_queued_to_user(prev) || !kicks_are_on())
		return;
	n.tier = tier_of(prev->pid);
	if (n.tier == FP_BATCH)
		return;
	check_later(prev->pid, cpu, now, FP_RECHECK_NS);
	if (c->occupant == FP_FOREIGN)
		return;
	if (c->occupant < n.tier && may_kick(c, now)) {
		kick(c, cpu, now);
		count(FP_REQUEUED);
	} else if (n.tier == FP_LAT_CRITICAL && kick_victim(prev, &n) >= 0) {
		count(FP_REQUEUED);
	}
}

/* Shortens the slice of the running task if very many tasks wait. */
static void share_with_crowd(struct fp_cpu *c)
{
	u32 waiting = scx_bpf_dsq_nr_queued(SHARED_QUEUE);
	struct fp_settings *s = the_settings();
	u64 slice;

	if (!s)
		return;
	waiting += s->nr_waiting;
	slice = crowd_slice(c->slice, waiting, s->nr_online);
	c->crowded = slice < c->slice;
	c->slice = slice;
}

/* Records the task that runs on the CPU from now on. */
static void occupies(struct fp_cpu *c, u32 cpu, struct task_struct *next, u64 now)
{
	struct fp_hint *h;
	struct fp_task *t;

	c->since = now;
	c->woke = 0;
	c->handoffs = 0;
	c->slice = 0;
	c->low_weight = 0;
	c->crowded = 0;
	c->pid = next->pid;
	if (!is_higher_class(next->prio))
		c->reenqueued = 0;
	if (!next->pid) {
		c->occupant = c->offline ? FP_OFFLINE : FP_IDLE;
		return_to_domain(cpu, now);
	} else if (next->tgid == scheduler_tgid) {
		c->occupant = FP_FOREIGN;
	} else if (is_higher_class(next->prio)) {
		c->occupant = FP_FOREIGN;
		keeps_cpu(cpu, now);
	} else {
		h = hint_for(next->pid);
		c->occupant = tier_by(h);
		c->slice = next->scx.slice;
		c->low_weight = has_low_weight(next);
		if (c->occupant < FP_LAT_CRITICAL)
			share_with_crowd(c);
		t = starts(next, h, cpu, now);
		c->handoffs = t ? t->handoffs : 0;
		end_slice(c, t, cpu);
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
	if (prev->pid == scheduler_tgid)
		wake_idle_cpu(now);
	else
		kick_for_requeue(prev, c, cpu, now);
	return 0;
}

/* The task executes another program: its record describes the previous one. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(fp_exec, struct task_struct *p)
{
	struct fp_task *t = open_record(p);

	send_news(p->pid, FP_EXEC);
	if (!t)
		return 0;
	reset_behaviour(t);
	t->user = user_of(p);
	close_record(t);
	return 0;
}

/* Sets up the timers of all CPUs. */
SEC("syscall")
int fp_prepare(void *unused)
{
	u32 cpu;

	bpf_for(cpu, 0, nr_cpus) {
		struct recheck *r = recheck_of(cpu);

		if (!r)
			return -1;
		if (bpf_timer_init(&r->timer, &rechecks, MONOTONIC) ||
		    bpf_timer_set_callback(&r->timer, timer_callback))
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
