/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The patches of the backend, scx_rustland_core 2.4.15, applied without changing its source.
 *
 * build.rs has clang include this file ahead of the backend's main.bpf.c. Macros at its end replace
 * the names of the kernel functions that main.bpf.c calls with functions of the patches. Each file
 * in backend_patches/ treats one fault and says how to see it, but for the parts of orders.h
 * (order_*.h) and for what several patches need (common.h, backend_cpu.h, cpu_sets.h).
 * docs/upstream.md has the same faults as reports to the scx project. build.rs refuses another
 * version of main.bpf.c: whether a patch is still needed, and still does what it says, has to be
 * looked at then.
 *
 *  file                 fault                                               wraps
 *  offline_cpu.h        tasks are queued for a CPU that goes offline        select_cpu, pick_idle
 *  hotplug.h            each change of the CPUs unloads the scheduler       SCX_OPS_DEFINE,
 *                                                                           cpumask_weight
 *  crowd.h              an urgent task waits behind thousands of others     insert_vtime
 *  refused_insert.h     a decision about a task that ended takes another one insert_vtime, cancel
 *                       back
 *  drain_race.h         a CPU that finds the ring in use misses a decision  insert_vtime, drain
 *  drain_many.h         one dispatch call takes one decision                drain
 *  not_deciding.h       tasks are queued to a process that does not decide  ringbuf_reserve
 *  stalled.h            the process stops deciding, and tasks wait for ever ringbuf_submit, drain,
 *                                                                           timer_init, timer_start
 *  round_in_progress.h  a kick puts the process off in the middle of a round move_to_local
 *  domain_return.h      a lone task is never queued to user space again     task_set_slice
 *  exiting_task.h       a task loses its CPU as it ends                     move_to_local
 *  exiting_queue.h      tasks that exit come before all others              ringbuf_reserve,
 *                                                                           dsq_insert
 *  ring_wakeup.h        each message wakes up readers that do not exist     ringbuf_submit
 *  self_kick.h          a busy CPU kicks itself in case it idles            kick_cpu
 *  named_cpu.h          a CPU that was chosen for a task idles on           dispatch_nr_slots
 *  orders.h             every wakeup costs a run of the scheduler process   select_cpu, nr_queued,
 *                                                                           ringbuf_reserve, query
 *  own_queue.h          a task in the shared DSQ waits for ever             move_to_local
 *  low_power.h          a Batch task wakes an idle CPU, with low power      select_cpu, pick_idle,
 *                                                                           clear_cpu_idle
 *  urgent_cpus.h        an urgent task wakes up on a slow CPU               select_cpu
 *  process_domain.h     a process with a domain wakes up outside            select_cpu, pick_idle,
 *                                                                           clear_cpu_idle
 *  frequency.h          each CPU is asked for its highest frequency         task_cpu
 *
 * The order is part of the program. A patch calls the kernel's functions by their own names, so all
 * patches come before all macros. crowd.h and refused_insert.h come before drain_race.h, which
 * comes before drain_many.h and exiting_task.h, which comes before exiting_queue.h. self_kick.h
 * comes before named_cpu.h, backend_cpu.h before orders.h, which comes before the last ones, and
 * not_deciding.h and process_domain.h before domain_return.h, because the latter use the former.
 */
#ifndef __BACKEND_PATCHES_H
#define __BACKEND_PATCHES_H

#include "backend_limits.h"

/* The same flags serve bindgen, which reads the backend's intf.h without the BPF headers. */
#if __has_include(<bpf/bpf_helpers.h>)

#include <scx/common.bpf.h>

#include "backend_patches/common.h"
#include "backend_patches/backend_cpu.h"
#include "backend_patches/offline_cpu.h"
#include "backend_patches/crowd.h"
#include "backend_patches/refused_insert.h"
#include "backend_patches/drain_race.h"
#include "backend_patches/drain_many.h"
#include "backend_patches/not_deciding.h"
#include "backend_patches/round_in_progress.h"
#include "backend_patches/exiting_task.h"
#include "backend_patches/exiting_queue.h"
#include "backend_patches/ring_wakeup.h"
#include "backend_patches/self_kick.h"
#include "backend_patches/named_cpu.h"
#include "backend_patches/orders.h"
#include "backend_patches/own_queue.h"
#include "backend_patches/low_power.h"
#include "backend_patches/cpu_sets.h"
#include "backend_patches/urgent_cpus.h"
#include "backend_patches/process_domain.h"
#include "backend_patches/domain_return.h"
#include "backend_patches/frequency.h"
#include "backend_patches/stalled.h"
#include "backend_patches/hotplug.h"

/* ---- Calls that several patches change ---- */

/* Whether `prev` keeps its CPU, before any queue is looked at. */
static __always_inline bool patch_keep_running(struct task_struct *prev, bool is_scheduler)
{
	if (is_scheduler ? !patch_keeps_deciding() : !patch_keeps_exiting(prev))
		return false;
	if (is_scheduler)
		patch_flush_decisions();
	scx_bpf_task_set_slice(prev, is_scheduler ? SCX_SLICE_DFL : PATCH_EXIT_NS);
	return true;
}

/* Moves a task of the DSQ to this CPU, or one that comes before those. */
static __always_inline bool patch_move(u64 dsq, u64 enq_flags)
{
	bool moved;

	if (patch_not_deciding() && patch_move_scheduler(enq_flags, true))
		return true;
	if (dsq == BACKEND_SHARED_DSQ && patch_move_from_inactive(enq_flags))
		return true;
	if (patch_owes_shared(dsq) && scx_bpf_dsq_move_to_local(BACKEND_SHARED_DSQ, enq_flags))
		return true;
	/* In this call the kernel puts the decisions into their queues. */
	moved = dsq == BACKEND_SCHED_DSQ ? patch_move_scheduler(enq_flags, true) :
					   scx_bpf_dsq_move_to_local(dsq, enq_flags);
	/* No decided task may use this CPU: the process is needed after all. */
	if (!moved && dsq == BACKEND_SHARED_DSQ && order_bounds.pending) {
		backend_cpu_of(bpf_get_smp_processor_id())->unserved = 1;
		moved = patch_move_scheduler(enq_flags, false);
	}
	return moved;
}

static __always_inline bool patch_move_to_local(u64 dsq, u64 enq_flags)
{
	bool moved = patch_move(dsq, enq_flags);

	if (patch_holds_decisions())
		patch_kick_pending();
	return moved;
}

/* The backend's dispatch has found no other task for the CPU, or enables a task. */
static __always_inline void patch_set_slice(struct task_struct *p, u64 slice, bool is_scheduler,
					    bool is_unqueued)
{
	u32 here = bpf_get_smp_processor_id();

	if (is_scheduler) {
		patch_round_begins(0);
	} else if (is_unqueued || patch_may_return(p, here)) {
		scx_bpf_kick_cpu(here, 0);
		return;
	} else {
		slice = order_renew(p, slice);
	}
	scx_bpf_task_set_slice(p, slice);
}

/*
 * What a message needs of the backend's record of a task, which main.bpf.c declares. Pointers,
 * because values would take the stack over all calls.
 */
struct patch_record {
	/* The count of its messages: a higher one voids older decisions. */
	u64 *enq_cnt;
	/* When the task last began to run and last stopped. */
	const u64 *started;
	const u64 *stopped;
};

/* Counted by the backend; main.bpf.c declares these again. */
volatile u64 nr_kernel_dispatches;
static void sched_congested(struct task_struct *p);

/* Queues the task to the shared DSQ without user space: no message about it can be sent. */
static __always_inline void patch_queue_without_message(struct task_struct *p,
							const struct patch_record *record,
							u64 enq_flags)
{
	++*record->enq_cnt;
	patch_queue_by_time(p, *record->stopped - *record->started, enq_flags);
	patch_kick_idle(p);
	__sync_fetch_and_add(&nr_kernel_dispatches, 1);
}

/*
 * Room for a message about a task that is to be queued to user space. NULL if there is none: then
 * the task is in a DSQ. In a stall orders stay valid for as long as user space said.
 */
static __always_inline void *patch_reserve(struct task_struct *p, const struct patch_record *record,
					   u64 enq_flags, void *ring, u64 size, u64 flags)
{
	u32 outcome = ORDER_NOT_DONE;
	void *room = NULL;

	if (patch_queue_exiting(p, enq_flags)) {
		++*record->enq_cnt;
		return NULL;
	}
	if (patch_activity != PATCH_NOT_DECIDING)
		outcome = order_execute(p, enq_flags, *record->stopped);
	if (outcome != ORDER_NOT_DONE) {
		++*record->enq_cnt;
		if (outcome == ORDER_ENDS && !patch_not_deciding())
			room = bpf_ringbuf_reserve(ring, size, flags);
		if (!room)
			return NULL;
		order_note_renewal(p, *record->enq_cnt + 1);
		return room;
	}
	if (!patch_not_deciding()) {
		order_note_message(p, *record->enq_cnt + 1);
		room = bpf_ringbuf_reserve(ring, size, flags);
		if (room)
			return room;
		sched_congested(p);
	}
	patch_queue_without_message(p, record, enq_flags);
	return NULL;
}

/* ---- The names that main.bpf.c calls ---- */

/* A macro is not expanded within itself: an inner call by the same name reaches the kernel. */
#define scx_bpf_select_cpu_and(p, prev_cpu, wake_flags, ...)                                       \
	({                                                                                         \
		s32 idle = patch_idle_preferred(p, prev_cpu, wake_flags);                          \
		if (idle == -EBUSY)                                                                \
			idle = scx_bpf_select_cpu_and(p, prev_cpu, wake_flags, __VA_ARGS__);       \
		patch_steer(p, prev_cpu, wake_flags, patch_idle_cpu(idle));                        \
	})
#define scx_bpf_pick_idle_cpu(...) patch_idle_cpu(scx_bpf_pick_idle_cpu(__VA_ARGS__))
#define scx_bpf_pick_idle_cpu_node(...)                                                            \
	(patch_refuses_all(p) ? -EBUSY : patch_idle_cpu(scx_bpf_pick_idle_cpu_node(__VA_ARGS__)))
#define scx_bpf_test_and_clear_cpu_idle(cpu)                                                       \
	(!patch_refuses(p, cpu) && scx_bpf_test_and_clear_cpu_idle(cpu))
#define scx_bpf_select_cpu_dfl(...)                                                                \
	(patch_refuses_all(p) ? prev_cpu : patch_select_cpu_dfl(__VA_ARGS__))
/* The only call queues the scheduler process, which at its end is a task like any other. */
#define scx_bpf_dsq_insert(p, ...)                                                                 \
	({                                                                                         \
		if (!patch_queue_exiting(p, enq_flags))                                            \
			scx_bpf_dsq_insert(p, __VA_ARGS__);                                        \
	})
#define scx_bpf_dsq_insert_vtime patch_insert_vtime
/* The only call is after an insert on the same CPU. */
#define scx_bpf_dispatch_cancel patch_dispatch_cancel
/* Each call of the backend's dispatch begins with this. */
#define bpf_user_ringbuf_drain(...)                                                                \
	({                                                                                         \
		struct backend_cpu *here = backend_cpu_of(bpf_get_smp_processor_id());             \
		here->unserved = 0;                                                                \
		here->looked = scx_bpf_now();                                                      \
		patch_sweep();                                                                     \
		patch_drain(__VA_ARGS__);                                                          \
	})
#define scx_bpf_dsq_nr_queued patch_nr_queued
/*
 * The only call is in queue_task_to_userspace(p, prev_cpu, enq_flags), which returns nothing. The
 * backend's record of the task is `tctx`.
 */
#define bpf_ringbuf_reserve(...)                                                                   \
	({                                                                                         \
		struct patch_record record = { &tctx->enq_cnt, &tctx->start_ts, &tctx->stop_ts };  \
		void *room = patch_reserve(p, &record, enq_flags, __VA_ARGS__);                    \
		if (!room)                                                                         \
			return;                                                                    \
		room;                                                                              \
	})
/*
 * The backend asks whether messages are in the ring when it looks for work of the process. A
 * process that lost its CPU in a round, to a higher scheduling class, has work as well.
 */
#define bpf_ringbuf_query(...)                                                                     \
	(patch_activity == PATCH_DECIDING || order_is_pending() || bpf_ringbuf_query(__VA_ARGS__))
#define bpf_ringbuf_submit(data, flags)                                                            \
	({                                                                                         \
		patch_ringbuf_submit(data);                                                        \
		patch_note_asked();                                                                \
	})
/* The backend sets its own timer up, once, when it is loaded. */
#define bpf_timer_init(...)                                                                        \
	({                                                                                         \
		patch_init_stall_timer();                                                          \
		bpf_timer_init(__VA_ARGS__);                                                       \
	})
/* The only call counts the CPUs that are online, when the backend is loaded. */
#define bpf_cpumask_weight(online) (patch_note_offline(online), bpf_cpumask_weight(online))
/* It starts that timer once a second. */
#define bpf_timer_start(...) (patch_watch_over(), bpf_timer_start(__VA_ARGS__))
#define scx_bpf_kick_cpu patch_kick_cpu
/* The backend defines its callbacks with this, once. */
#undef SCX_OPS_DEFINE
#define SCX_OPS_DEFINE(ops, ...)                                                                   \
	SEC(".struct_ops.link")                                                                    \
	struct sched_ext_ops ops = {                                                               \
		__VA_ARGS__,                                                                       \
		.cpu_online = (void *)patch_cpu_online,                                            \
		.cpu_offline = (void *)patch_cpu_offline,                                          \
	};
/* The only call is after each decision, which is `task`. */
#define scx_bpf_dispatch_nr_slots()                                                                \
	(patch_kick_named(task->cpu), scx_bpf_dispatch_nr_slots())
/* The backend's .running begins with this. */
#define scx_bpf_task_cpu(p)                                                                        \
	({                                                                                         \
		s32 on = scx_bpf_task_cpu(p);                                                      \
		if (patch_is_running_op(__func__))                                                 \
			patch_runs(p, on);                                                         \
		on;                                                                                \
	})
/* is_usersched_task() and is_queued() are the backend's, declared only where a macro expands. */
#define scx_bpf_task_set_slice(p, slice)                                                           \
	patch_set_slice(p, slice, is_usersched_task(p), patch_is_unqueued(p))
/* When the task began to run, by the backend's record; 0 if it has none. */
#define patch_started(p)                                                                           \
	({                                                                                         \
		const struct task_ctx *tctx = try_lookup_task_ctx(p);                              \
		tctx ? tctx->start_ts : 0;                                                         \
	})
/* A compatibility macro of scx already; the patches above were compiled with the original. */
#undef scx_bpf_dsq_move_to_local
/* `prev` is the argument of the backend's dispatch, the only function that calls this. */
#define scx_bpf_dsq_move_to_local(dsq, enq_flags)                                                  \
	((prev && is_queued(prev) &&                                                               \
	  ((patch_is_late_kick() && order_outlasts_kick(prev, patch_started(prev))) ||             \
	   patch_keep_running(prev, is_usersched_task(prev)))) ||                                  \
	 patch_move_to_local(dsq, enq_flags))

#endif
#endif
