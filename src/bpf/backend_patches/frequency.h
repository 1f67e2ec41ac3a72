/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every CPU runs at its highest frequency, whatever it runs.
 *
 * Symptom: with the governor schedutil a laptop on battery does background work at full speed.
 *
 * Cause: the kernel asks for the highest performance of each CPU while a sched_ext scheduler is
 * loaded that asks for nothing itself.
 *
 * Fix: user space says how much less is enough for each tier, and a CPU is asked for that when a
 * task of the tier begins to run. The scheduler process and bound kernel threads change nothing:
 * they run for microseconds between other tasks. The governor decides what comes of it.
 *
 * How to see it: VM scenario `frequency`.
 *
 * Upstream: an option of the backend; nothing is reported yet.
 */
#ifndef __PATCH_FREQUENCY_H
#define __PATCH_FREQUENCY_H

/*
 * How much less than the highest performance is asked for, by tier: enum fp_occupant. Of
 * SCX_CPUPERF_ONE, which is 1024. User space writes it. Zero everywhere costs nothing.
 */
u32 patch_lowered[FP_LAT_CRITICAL + 1];
/* Whether any of these is not zero. */
u32 patch_lowers;

/* Asks for the performance that the task needs which begins to run on the CPU. */
__noinline u32 patch_ask_performance(struct task_struct *p __arg_trusted, s32 cpu)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);
	u32 tier = order_occupant(p), performance;

	if (!rq || tier < FP_BATCH || tier > FP_LAT_CRITICAL ||
	    !bpf_ksym_exists(scx_bpf_cpuperf_set))
		return 0;
	performance = SCX_CPUPERF_ONE - patch_lowered[tier];
	if (performance > SCX_CPUPERF_ONE || performance == rq->scx.cpuperf_target)
		return 0;
	backend_cpu_of(cpu)->asked++;
	scx_bpf_cpuperf_set(cpu, performance);
	return 1;
}

static __always_inline void patch_runs(struct task_struct *p, s32 cpu)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	if (rq && (patch_lowers || rq->scx.cpuperf_target != SCX_CPUPERF_ONE))
		patch_ask_performance(p, cpu);
}

/* Whether the function is the backend's .running: it is compiled under this name. */
#define patch_is_running_op(function) (!__builtin_strcmp(function, "____rustland_running"))

#endif
