/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Mends seven faults of the backend from outside, and spares two things that nobody needs.
 *
 * build.rs has clang include this file ahead of the backend's source, which stays as it is: what
 * follows wraps kernel functions that the backend calls.
 *
 * The first fault: when a CPU goes offline the kernel first takes it out of the active CPUs,
 * pushes its tasks to others and waits for an RCU grace period. The CPU idles meanwhile, so it is
 * found by whoever looks for an idle CPU, and the backend queues tasks for it alone. It may not
 * run them: they wait until the CPU is gone and the scheduler is restarted. If one of them is the
 * thread that ends the grace period, that never happens, and the kernel's watchdog ends us after
 * 5 s.
 *
 * The second: to go on draining the ring, a callback has to return 0; the backend's returns the
 * opposite, so one dispatch call takes one decision, and what was sent beyond it waits for the
 * next call, up to a tick.
 *
 * The third: two CPUs that take decisions exclude one another, and nobody tells the one that was
 * turned away what the other found for it.
 *
 * The fourth: a scheduler process that is interrupted in the middle of a round goes behind all who
 * wait, and they wait for its decisions.
 *
 * The fifth: a task beside which nobody waits on its CPU gets slice after slice and never comes
 * up. One that overflowed from a domain would stay outside for good, and so would one that ran
 * there when we began.
 *
 * The sixth: tasks are sent to the scheduler process before it begins to decide, and after it has
 * ended, while the kernel still has it wait for others.
 *
 * The seventh: a task that is about to end loses its CPU if its slice is used up, and whoever
 * waits for its end waits for whoever gets the CPU.
 *
 * Spared: waking up readers of the ring, of which there are none, since user space looks by itself;
 * and a CPU's message to itself that it should look for work if it is idle, which it is not. Each
 * is an interrupt.
 */
#ifndef __BACKEND_GUARD_H
#define __BACKEND_GUARD_H

/* The same flags serve bindgen, which reads the backend's intf.h without the BPF headers. */
#if __has_include(<bpf/bpf_helpers.h>)

#include <scx/common.bpf.h>

/* The backend's queue for any CPU; MAX_CPUS of its intf.h. */
#define GUARD_SHARED_DSQ 1024
/* Its queue for the user-space scheduler alone. */
#define GUARD_SCHED_DSQ (GUARD_SHARED_DSQ + 1)
/* PF_EXITING of the kernel's include/linux/sched.h. */
#define GUARD_PF_EXITING 4
/* The slice in which a task ends. */
#define GUARD_ENDING_NS (1000 * 1000)

/* A CPU that was found on its way offline, or -1. Whatever is queued for it, others run. */
static s32 guard_leaving_cpu = -1;

/*
 * While a CPU may not run ordinary tasks, its runqueue has a balance callback installed for good:
 * the one that pushes them away. At other times the field is set for moments only, and taking a
 * CPU for a leaving one then costs nothing but a less than perfect choice.
 */
static __always_inline bool guard_is_leaving(s32 cpu)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && rq->balance_callback;
}

/* An idle CPU as found, or -EBUSY if it is leaving. */
static __always_inline s32 guard_idle(s32 cpu)
{
	if (cpu < 0 || !guard_is_leaving(cpu))
		return cpu;
	guard_leaving_cpu = cpu;
	return -EBUSY;
}

static __always_inline s32 guard_select_cpu_dfl(struct task_struct *p, s32 prev_cpu,
						u64 wake_flags, bool *is_idle)
{
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, is_idle);

	if (*is_idle && guard_idle(cpu) < 0)
		*is_idle = false;
	return cpu;
}

/*
 * The CPUs, of the first 64, that came for decisions while another CPU looked for them. The kernel
 * turns them away (EBUSY), and they run whoever else there is: what was decided for them would wait
 * for a tick. So whoever looks does so until nobody has been turned away meanwhile, and interrupts
 * those for whom there is something. That is known when the kernel puts what was taken into its
 * queues, which is not before it looks for a task to run.
 */
static u64 guard_turned_away;
/* By CPU: those that it is to come back to then, and itself if it has taken something. */
static u64 guard_taken_for[64];

static __always_inline u64 guard_this_cpu(void)
{
	u32 here = bpf_get_smp_processor_id();

	return here < 64 ? 1ULL << here : 0;
}

/* Leaves word for whoever looks now: this CPU was here, and those that it was to come back to. */
static __always_inline void guard_leave_word(u64 cpus)
{
	__sync_fetch_and_or(&guard_turned_away, cpus | guard_this_cpu());
}

/* Called when the ring is free again; a full barrier. */
static __always_inline u64 guard_who_was_here(void)
{
	return __sync_lock_test_and_set(&guard_turned_away, 0) & ~guard_this_cpu();
}

static __always_inline void guard_begin_taking(void)
{
	u32 here = bpf_get_smp_processor_id();

	/* What was queued here for others when they woke up is not a decision. */
	if (here < 64)
		guard_taken_for[here] = 0;
}

static __always_inline void guard_has_taken(u64 cpus)
{
	u32 here = bpf_get_smp_processor_id();

	if (here < 64)
		guard_taken_for[here] |= cpus | guard_this_cpu();
}

/*
 * A decision for another CPU is taken here, and is in its queue only when this CPU looks for a task
 * itself. Meanwhile the other one may find the ring empty, and nobody in its queue.
 */
static __always_inline bool guard_insert_vtime(struct task_struct *p, u64 dsq, u64 slice, u64 vtime,
					       u64 enq_flags)
{
	if (dsq < 64)
		guard_has_taken(1ULL << dsq);
	return scx_bpf_dsq_insert_vtime(p, dsq, slice, vtime, enq_flags);
}

static __always_inline void guard_come_back(void)
{
	u32 here = bpf_get_smp_processor_id();
	u64 cpus;

	if (here >= 64 || !guard_taken_for[here])
		return;
	/* Some may have come since. Whoever looks next finds their word too, and nothing for them. */
	cpus = (guard_taken_for[here] | guard_turned_away) & ~guard_this_cpu();
	guard_taken_for[here] = 0;
	for (u32 cpu = 0; cpu < 64 && cpus; cpu++, cpus >>= 1)
		if (cpus & 1 && scx_bpf_dsq_nr_queued(cpu) > 0)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* Most decisions that one dispatch call takes; `Limits::KERNEL` in src/engine.rs sends no more. */
#define GUARD_DRAIN 8

/* A macro is not expanded within itself: the inner name is the helper's. */
#define bpf_user_ringbuf_drain(...)                                                                \
	({                                                                                         \
		u64 waiting = 0, more = 0;                                                         \
		long taken = 0;                                                                    \
		bool any = false;                                                                  \
		guard_begin_taking();                                                              \
		for (int call = 0; call < GUARD_DRAIN + 2; call++) {                               \
			taken = bpf_user_ringbuf_drain(__VA_ARGS__);                               \
			if (taken == -EBUSY) {                                                     \
				guard_leave_word(waiting);                                         \
				waiting = 0;                                                       \
				/* The other one may have finished before it could see that. */    \
				taken = bpf_user_ringbuf_drain(__VA_ARGS__);                       \
				if (taken <= 0)                                                    \
					break;                                                     \
			}                                                                          \
			if (taken > 0) {                                                           \
				any = true;                                                        \
				continue;                                                          \
			}                                                                          \
			more = guard_who_was_here();                                               \
			if (!more)                                                                 \
				break;                                                             \
			waiting |= more;                                                           \
		}                                                                                  \
		if (any || waiting)                                                                \
			guard_has_taken(waiting);                                                  \
		taken;                                                                             \
	})

/*
 * What user space is doing; it says so itself. In the middle of a round it goes on: if it is
 * interrupted there, it is in no queue when its CPU looks for the next task, and what it has in its
 * hands would wait until another CPU looks, up to a tick. It happens: a kick that was meant for
 * whoever ran before it comes late.
 *
 * It is away before its first round, while the kernel makes it the scheduler and it locks its
 * memory, and after its last one. Then it goes on too. The backend lets it run when a task wants a
 * decision, so on a quiet machine it would get a slice a second, and whoever comes up first would
 * wait for all of them. And nobody is sent to it: the kernel may have it wait for a lock or a grace
 * period, whose owner or thread would wait for its decision, until the watchdog ends us.
 */
enum guard_activity { GUARD_AWAY, GUARD_DECIDING, GUARD_RESTING };
u32 guard_activity;

/* A ring that has no room: the backend then queues the task for any CPU, by itself. */
#define bpf_ringbuf_reserve(...)                                                                   \
	(guard_activity == GUARD_AWAY ? NULL : bpf_ringbuf_reserve(__VA_ARGS__))

/*
 * Whoever gets a CPU while it rests has a round to do, and says so only when it is back in user
 * space. A kick that comes before that shall not put it off either.
 */
static __always_inline void guard_rests_no_more(void)
{
	if (guard_activity == GUARD_RESTING)
		guard_activity = GUARD_DECIDING;
}

static __always_inline bool guard_move_scheduler(u64 enq_flags)
{
	if (!scx_bpf_dsq_move_to_local(GUARD_SCHED_DSQ, enq_flags))
		return false;
	guard_rests_no_more();
	return true;
}

static __always_inline bool guard_move_to_local(u64 dsq, u64 enq_flags)
{
	s32 leaving = guard_leaving_cpu;
	bool moved;

	if (guard_activity == GUARD_AWAY && guard_move_scheduler(enq_flags))
		return true;
	if (dsq == GUARD_SHARED_DSQ && leaving >= 0) {
		if (!guard_is_leaving(leaving))
			guard_leaving_cpu = -1;
		else if (scx_bpf_dsq_move_to_local(leaving, enq_flags))
			return true;
	}
	/* It is here that the kernel puts the decisions into their queues. */
	moved = dsq == GUARD_SCHED_DSQ ? guard_move_scheduler(enq_flags) :
					 scx_bpf_dsq_move_to_local(dsq, enq_flags);
	guard_come_back();
	return moved;
}

/* The last task on each CPU, of the first 64, that went on to end. */
static s32 guard_ended[64];

/*
 * Whether the task has given up its memory and is about to end; it needs its CPU for some 10 to
 * 600 us more. The kernel takes it out of its group then, as if it had begun anew, and so finds out
 * that it has used up its slice, if it has. It would wait in the CPU's own queue until whoever
 * comes next has had a slice, and with it those who wait for its end. It goes on once, which is
 * noted here: a task that has a million files to close gives way like any other.
 */
static __always_inline bool guard_may_end(const struct task_struct *p)
{
	u32 here = bpf_get_smp_processor_id();

	if (!(p->flags & GUARD_PF_EXITING) || p->mm || here >= 64 || guard_ended[here] == p->pid)
		return false;
	/* What was taken for others has to get into its queues first. */
	if (guard_taken_for[here])
		return false;
	guard_ended[here] = p->pid;
	return true;
}

static __always_inline bool guard_go_on(struct task_struct *p, bool is_scheduler)
{
	if (is_scheduler ? guard_activity == GUARD_RESTING : !guard_may_end(p))
		return false;
	scx_bpf_task_set_slice(p, is_scheduler ? SCX_SLICE_DFL : GUARD_ENDING_NS);
	return true;
}

/* The CPUs that tasks prefer, of the first 64; 0 if there is no domain. Set by user space. */
u64 guard_domain;

/* Whether the task runs outside of the domain while a CPU inside that it may use has nothing. */
static __always_inline bool guard_may_go_home(const struct task_struct *p, u32 here)
{
	const struct rq *rq;

	if (!guard_domain || here >= 64 || guard_domain >> here & 1)
		return false;
	for (u32 cpu = 0; cpu < 64; cpu++) {
		if (!(guard_domain >> cpu & 1) || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		rq = bpf_per_cpu_ptr(&runqueues, cpu);
		/* The idle task has pid 0. What waits in user space is on its last CPU's count. */
		if (rq && !BPF_CORE_READ(rq, curr, pid))
			return true;
	}
	return false;
}

/* Whether the task runs here while user space decides; if it was never sent up, it is to be. */
static __always_inline bool guard_could_be_stranger(const struct task_struct *p)
{
	return guard_activity != GUARD_AWAY && bpf_get_current_task_btf()->pid == p->pid;
}

/*
 * A task that is not given a new slice comes up as if it had lost its CPU, which then idles: the
 * kick makes it look again, and find the scheduler process.
 */
static __always_inline void guard_set_slice(struct task_struct *p, u64 slice, bool is_scheduler,
					    bool is_stranger)
{
	u32 here = bpf_get_smp_processor_id();

	if (is_scheduler) {
		guard_rests_no_more();
	} else if (is_stranger || guard_may_go_home(p, here)) {
		scx_bpf_kick_cpu(here, 0);
		return;
	}
	scx_bpf_task_set_slice(p, slice);
}

static __always_inline void guard_kick_cpu(s32 cpu, u64 flags)
{
	/* The idle task has pid 0. */
	if (flags == SCX_KICK_IDLE && cpu == bpf_get_smp_processor_id() &&
	    bpf_get_current_task_btf()->pid)
		return;
	scx_bpf_kick_cpu(cpu, flags);
}

static __always_inline void guard_ringbuf_submit(void *data)
{
	bpf_ringbuf_submit(data, BPF_RB_NO_WAKEUP);
}

#define bpf_ringbuf_submit(data, flags) guard_ringbuf_submit(data)
#define scx_bpf_dsq_insert_vtime guard_insert_vtime
#define scx_bpf_kick_cpu guard_kick_cpu
/* The backend counts how often it has sent the task up. */
#define guard_is_stranger(p)                                                                       \
	({                                                                                         \
		struct task_ctx *ctx = guard_could_be_stranger(p) ? try_lookup_task_ctx(p) : NULL; \
		ctx && !ctx->enq_cnt;                                                              \
	})
#define scx_bpf_task_set_slice(p, slice)                                                           \
	guard_set_slice(p, slice, is_usersched_task(p), guard_is_stranger(p))
#define scx_bpf_select_cpu_and(...) guard_idle(scx_bpf_select_cpu_and(__VA_ARGS__))
#define scx_bpf_pick_idle_cpu(...) guard_idle(scx_bpf_pick_idle_cpu(__VA_ARGS__))
#define scx_bpf_pick_idle_cpu_node(...) guard_idle(scx_bpf_pick_idle_cpu_node(__VA_ARGS__))
#define scx_bpf_select_cpu_dfl guard_select_cpu_dfl
/* A macro already: the function above was compiled with the original. */
#undef scx_bpf_dsq_move_to_local
/* `prev` is the argument of the backend's dispatch, the only one that calls this. */
#define scx_bpf_dsq_move_to_local(dsq, enq_flags)                                                  \
	((prev && is_queued(prev) && guard_go_on(prev, is_usersched_task(prev))) ||                \
	 guard_move_to_local(dsq, enq_flags))

#endif
#endif
