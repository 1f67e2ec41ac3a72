/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task on a CPU without other work is never queued to user space again.
 *
 * Symptom: with --primary-domain a task that was placed outside the domain, because the domain was
 * full, stays there for good. With --domain-strict so does one that ran outside at the start. So
 * do tasks of a process for which a rule demands a domain.
 *
 * Cause: if no other task wants the CPU, the backend's dispatch replenishes the slice of `prev`.
 * User space gets no message about the task, and so cannot move it.
 *
 * Fix: a running task gets no new slice if it runs outside its domain while an allowed CPU inside
 * idles, or if it has never been queued to user space. SCX_OPS_ENQ_LAST then has the kernel enqueue
 * it. A kick makes the CPU dispatch again, and find the scheduler process.
 *
 * How to see it: VM scenarios `domain-strict` and `domain-preferred`.
 *
 * Upstream: an option that makes dispatch leave the slice alone, so that SCX_OPS_ENQ_LAST applies
 * (docs/upstream.md, report 5).
 */
#ifndef __PATCH_DOMAIN_RETURN_H
#define __PATCH_DOMAIN_RETURN_H

/* Whether there is a domain for all tasks: PATCH_SET_PRIMARY. User space writes both. */
u32 patch_has_domain;

/* Whether the task runs here. A new task gets its first slice where its parent runs. */
static __always_inline bool patch_runs_here(const struct task_struct *p)
{
	return bpf_get_current_task_btf()->pid == p->pid;
}

/* Whether the task runs outside its domain while a CPU inside that it may use idles. */
static __always_inline bool patch_may_return(const struct task_struct *p, u32 here)
{
	u32 set = patch_domain_of(p).set;
	const struct rq *rq;
	s32 cpu;

	if ((set == PATCH_SET_PRIMARY && !patch_has_domain) || patch_is_in_set(set, here) ||
	    !patch_runs_here(p))
		return false;
	bpf_for(cpu, 0, scx_bpf_nr_cpu_ids()) {
		if (!patch_is_in_set(set, cpu) || patch_is_offline(cpu) ||
		    !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		rq = bpf_per_cpu_ptr(&runqueues, cpu);
		/* The idle task has pid 0. A task that waits in user space is in its CPU's count. */
		if (rq && !BPF_CORE_READ(rq, curr, pid))
			return true;
	}
	return false;
}

/* Whether the task runs here while user space decides: if it was never queued, it is to be. */
static __always_inline bool patch_may_be_unqueued(const struct task_struct *p)
{
	return !patch_not_deciding() && patch_runs_here(p);
}

/*
 * Whether the task has never been queued to user space. The backend counts that in its own record
 * of the task, which is declared only after this file, so this is a macro.
 */
#define patch_is_unqueued(p)                                                                       \
	({                                                                                         \
		struct task_ctx *ctx = patch_may_be_unqueued(p) ? try_lookup_task_ctx(p) : NULL;   \
		ctx && !ctx->enq_cnt;                                                              \
	})

#endif
