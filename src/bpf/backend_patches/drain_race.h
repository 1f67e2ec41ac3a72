/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A CPU that finds the ring of decisions in use misses its decision.
 *
 * Symptom: a wakeup is decided at once and waits for a tick, 4 ms at HZ=250, while its CPU runs a
 * Batch task: most of wakeup p99.9 on two and on four CPUs.
 *
 * Cause: bpf_user_ringbuf_drain() admits one CPU at a time and returns -EBUSY to any other. The
 * backend ignores that and runs the next queued task. The CPU that drains then finds a decision for
 * the one that was turned away, and kicks it only if it is idle. A CPU that was not turned away can
 * miss its decision too: scx_bpf_dsq_insert_vtime() from .dispatch takes effect only when this CPU
 * moves a task to its local DSQ, after the ring is empty.
 *
 * Fix: a CPU that is turned away marks itself as pending. The CPU that drains looks again until no
 * CPU is pending, and preempts those for which something is in the queues, once it is there.
 *
 * How to see it: in a trace of exact time, a drain that returns -16 on a CPU, then sched_switch to
 * a Batch task there, while the decision for it is in the DSQ. VM scenario `bars`, p99.9 of `long`.
 *
 * Upstream: remember the CPUs that got -EBUSY, and kick them with SCX_KICK_PREEMPT after the drain
 * (docs/upstream.md, report 3).
 */
#ifndef __PATCH_DRAIN_RACE_H
#define __PATCH_DRAIN_RACE_H

/* The CPUs, of the first 64, whose drain returned -EBUSY since a drain last looked. */
static u64 patch_pending_cpus;
/* By draining CPU: the CPUs to kick, and its own bit if it has taken a decision. */
static u64 patch_to_kick[PATCH_CPUS];

/* Marks this CPU as pending, and those that it was to kick itself. */
static __always_inline void patch_mark_pending(u64 cpus)
{
	__sync_fetch_and_or(&patch_pending_cpus, cpus | patch_this_cpu());
}

/* The pending CPUs except this one. A full barrier; called after a drain, when the ring is free. */
static __always_inline u64 patch_take_pending(void)
{
	return __sync_lock_test_and_set(&patch_pending_cpus, 0) & ~patch_this_cpu();
}

/* Forgets what select_cpu and enqueue have inserted on this CPU: that is no decision. */
static __always_inline void patch_drain_begins(void)
{
	u32 here = bpf_get_smp_processor_id();

	if (here < PATCH_CPUS)
		patch_to_kick[here] = 0;
}

/* This CPU has taken decisions; `cpus` are to be kicked when they are in the queues. */
static __always_inline void patch_kick_later(u64 cpus)
{
	u32 here = bpf_get_smp_processor_id();

	if (here < PATCH_CPUS)
		patch_to_kick[here] |= cpus | patch_this_cpu();
}

/* Remembers the CPU that a decision names. */
static __always_inline bool patch_insert_vtime(struct task_struct *p, u64 dsq, u64 slice, u64 vtime,
					       u64 enq_flags)
{
	if (dsq < PATCH_CPUS)
		patch_kick_later(1ULL << dsq);
	return scx_bpf_dsq_insert_vtime(p, dsq, slice, vtime, enq_flags);
}

/* Called when the kernel has put the decisions into their queues. */
static __always_inline void patch_kick_pending(void)
{
	u32 here = bpf_get_smp_processor_id();
	u64 cpus;

	if (here >= PATCH_CPUS || !patch_to_kick[here])
		return;
	/* Further CPUs may be pending by now. They stay marked: a second kick is harmless. */
	cpus = (patch_to_kick[here] | patch_pending_cpus) & ~patch_this_cpu();
	patch_to_kick[here] = 0;
	for (u32 cpu = 0; cpu < PATCH_CPUS && cpus; cpu++, cpus >>= 1)
		if (cpus & 1 && scx_bpf_dsq_nr_queued(cpu) > 0)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

#endif
