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
 * CPU is pending, and preempts those for which something is in the queues, once it is there. Such a
 * kick takes effect only after this CPU has left dispatch. If the other CPU runs the decided task
 * by then, that task goes on.
 *
 * How to see it: in a trace of exact time, a drain that returns -16 on a CPU, then sched_switch to
 * a Batch task there, while the decision for it is in the DSQ. VM scenario `bars`, p99.9 of `long`.
 *
 * Upstream: remember the CPUs that got -EBUSY, and kick them with SCX_KICK_PREEMPT after the drain
 * (docs/upstream.md, report 3).
 */
#ifndef __PATCH_DRAIN_RACE_H
#define __PATCH_DRAIN_RACE_H

/* Chosen: a kick that was sent takes effect within this time. It waits for interrupts to be on. */
#define PATCH_KICK_NS (200 * 1000)

/* The CPUs whose drain returned -EBUSY since a drain last looked. */
static u64 patch_pending_cpus[PATCH_GROUPS];

/* By draining CPU. */
static struct patch_kicks {
	/* The CPUs that its decisions name: to be kicked when these are in the queues. */
	u64 named[PATCH_GROUPS];
	/* The pending CPUs that it has found: to be kicked too. */
	u64 found[PATCH_GROUPS];
	/* Whether it has taken a decision, or found a pending CPU. */
	u32 any;
	u32 unused;
} patch_kicks[PATCH_CPUS];

/* By CPU: when it was last kicked for a decision, by the clock of scx_bpf_now(). */
static u64 patch_kicked_at[PATCH_CPUS];

static __always_inline struct patch_kicks *patch_my_kicks(void)
{
	return &patch_kicks[bpf_get_smp_processor_id() & (PATCH_CPUS - 1)];
}

/*
 * Marks this CPU as pending, and those that it was to kick itself. Not static, like others below:
 * the verifier then checks it once.
 */
__noinline u32 patch_mark_pending(void)
{
	u32 here = bpf_get_smp_processor_id();
	struct patch_kicks *mine = patch_my_kicks();

	__sync_fetch_and_or(&patch_pending_cpus[patch_group(here)], patch_bit(here));
	patch_for_each_group(g) {
		if (!mine->found[g])
			continue;
		__sync_fetch_and_or(&patch_pending_cpus[g], mine->found[g]);
		mine->found[g] = 0;
	}
	return 0;
}

/*
 * Takes the pending CPUs over; returns whether there is one besides this one. A full barrier;
 * called after a drain, when the ring is free.
 */
__noinline u32 patch_take_pending(void)
{
	u32 here = bpf_get_smp_processor_id();
	struct patch_kicks *mine = patch_my_kicks();
	bool any = false;

	patch_for_each_group(g) {
		u64 cpus = __sync_lock_test_and_set(&patch_pending_cpus[g], 0);

		if (g == patch_group(here))
			cpus &= ~patch_bit(here);
		mine->found[g] |= cpus;
		any |= cpus != 0;
	}
	return any;
}

/* Forgets what select_cpu and enqueue have inserted on this CPU: that is no decision. */
static __always_inline void patch_drain_begins(void)
{
	struct patch_kicks *mine = patch_my_kicks();

	mine->any = 0;
	patch_for_each_group(g)
		mine->named[g] = mine->found[g] = 0;
}

/* Remembers the CPU that a decision names. The low bits of the key are the tier. */
static __always_inline bool patch_insert_vtime(struct task_struct *p, u64 dsq, u64 slice, u64 vtime,
					       u64 enq_flags)
{
	struct patch_kicks *mine = patch_my_kicks();

	dsq = patch_active_dsq(dsq);
	if (dsq < PATCH_CPUS) {
		mine->named[patch_group(dsq)] |= patch_bit(dsq);
		mine->any = 1;
	} else if (dsq == BACKEND_SHARED_DSQ) {
		vtime = patch_key_in_crowd(vtime & PATCH_KEY_TIER, vtime, slice,
					   bpf_ktime_get_ns());
	}
	return patch_note_insert(scx_bpf_dsq_insert_vtime(p, dsq, slice, vtime, enq_flags));
}

/* Preempts the CPUs of a group that have something in their queues. */
static __always_inline void patch_kick_group(u32 group, u64 cpus)
{
	u32 i, cpu;

	if (!cpus)
		return;
	bpf_for(i, 0, PATCH_GROUP) {
		if (!(cpus >> i))
			break;
		cpu = group * PATCH_GROUP + i;
		if (!(cpus >> i & 1) || scx_bpf_dsq_nr_queued(cpu) <= 0)
			continue;
		patch_kicked_at[cpu & (PATCH_CPUS - 1)] = scx_bpf_now();
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
}

/*
 * Whether this CPU has taken decisions that are not in their queues yet: they get there when it
 * moves a task to its local DSQ.
 */
static __always_inline bool patch_holds_decisions(void)
{
	return patch_my_kicks()->any;
}

/* Whether this CPU was kicked just now for a decision that is no longer in its DSQ. */
static __always_inline bool patch_is_late_kick(void)
{
	u32 here = bpf_get_smp_processor_id() & (PATCH_CPUS - 1);

	return scx_bpf_now() - patch_kicked_at[here] < PATCH_KICK_NS &&
	       !scx_bpf_dsq_nr_queued(here);
}

/* Called when the kernel has put the decisions into their queues. */
__noinline u32 patch_kick_pending(void)
{
	u32 here = bpf_get_smp_processor_id();
	struct patch_kicks *mine = patch_my_kicks();

	mine->any = 0;
	patch_for_each_group(g) {
		/* Further CPUs may be pending by now. They stay marked: a second kick is harmless. */
		u64 cpus = mine->named[g] | mine->found[g] | patch_pending_cpus[g];

		if (g == patch_group(here))
			cpus &= ~patch_bit(here);
		patch_kick_group(g, cpus);
	}
	return 0;
}

/*
 * The scheduler process keeps this CPU, which has taken decisions of its round: puts these into
 * their queues. The kernel does so before it looks into a DSQ, and in this one it finds nothing,
 * because the process runs.
 */
static __always_inline void patch_flush_decisions(void)
{
	if (!patch_holds_decisions())
		return;
	scx_bpf_dsq_move_to_local(BACKEND_SCHED_DSQ, 0);
	patch_kick_pending();
}

#endif
