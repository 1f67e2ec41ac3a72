/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Keeps the backend from queueing tasks on a CPU that is on its way offline.
 *
 * build.rs has clang include this file ahead of the backend's source, which stays as it is: what
 * follows wraps kernel functions that the backend calls.
 *
 * The fault: when a CPU goes offline the kernel first takes it out of the active CPUs, pushes its
 * tasks to others and waits for an RCU grace period. The CPU idles meanwhile, so it is found by
 * whoever looks for an idle CPU, and the backend queues tasks for it alone. It may not run them:
 * they wait until the CPU is gone and the scheduler is restarted. If one of them is the thread
 * that ends the grace period, that never happens, and the kernel's watchdog ends us after 5 s.
 */
#ifndef __BACKEND_GUARD_H
#define __BACKEND_GUARD_H

/* The same flags serve bindgen, which reads the backend's intf.h without the BPF headers. */
#if __has_include(<bpf/bpf_helpers.h>)

#include <scx/common.bpf.h>

/* The backend's queue for any CPU; MAX_CPUS of its intf.h. */
#define GUARD_SHARED_DSQ 1024

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

static __always_inline bool guard_move_to_local(u64 dsq, u64 enq_flags)
{
	s32 leaving = guard_leaving_cpu;

	if (dsq == GUARD_SHARED_DSQ && leaving >= 0) {
		if (!guard_is_leaving(leaving))
			guard_leaving_cpu = -1;
		else if (scx_bpf_dsq_move_to_local(leaving, enq_flags))
			return true;
	}
	return scx_bpf_dsq_move_to_local(dsq, enq_flags);
}

#define scx_bpf_select_cpu_and(...) guard_idle(scx_bpf_select_cpu_and(__VA_ARGS__))
#define scx_bpf_pick_idle_cpu(...) guard_idle(scx_bpf_pick_idle_cpu(__VA_ARGS__))
#define scx_bpf_pick_idle_cpu_node(...) guard_idle(scx_bpf_pick_idle_cpu_node(__VA_ARGS__))
#define scx_bpf_select_cpu_dfl guard_select_cpu_dfl
/* A macro already: the function above was compiled with the original. */
#undef scx_bpf_dsq_move_to_local
#define scx_bpf_dsq_move_to_local guard_move_to_local

#endif
#endif
