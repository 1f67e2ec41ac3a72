/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Standing orders (orders.h): the search for a busy CPU that suits a wakee with an order.
 */
#ifndef __PATCH_ORDER_SEARCH_H
#define __PATCH_ORDER_SEARCH_H

/* How a CPU suits a wakee with an order. */
enum order_fit {
	ORDER_UNFIT,
	/* It runs a task of the wakee's tier that has a later key. */
	ORDER_LATER_KEY,
	ORDER_LOWER_TIER,
};

/*
 * How the CPU suits a wakee of this tier and key. A CPU with a task in its local DSQ is about to be
 * preempted, one that idles here was just chosen for another wakee, and one that was preempted too
 * often is not preempted now. Exact while the runqueue is locked. Not static, like others
 * below: the verifier then checks it once.
 */
__noinline u32 order_fit_of(s32 cpu, u32 tier, u64 key, u64 now)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);
	u32 occupant;

	if (!rq || rq->scx.local_dsq.nr || rq->balance_callback ||
	    !may_kick(&backend_cpu_of(cpu)->kicks, now))
		return ORDER_UNFIT;
	occupant = order_occupant(rq->curr);
	if (occupant == FP_IDLE || occupant > tier)
		return ORDER_UNFIT;
	if (occupant < tier)
		return ORDER_LOWER_TIER;
	return rq->curr->scx.dsq_vtime > key ? ORDER_LATER_KEY : ORDER_UNFIT;
}

/*
 * This CPU or one of the next ones: the first that runs a lower tier, else the first that runs a
 * later key; -EBUSY if there is none.
 *
 * It reads p->cpus_mask, not p->cpus_ptr: Linux 7.2 verifies it for sleepable programs too, and
 * there p->cpus_ptr is not trusted.
 */
__noinline s32 order_scan(struct task_struct *p __arg_trusted, s32 first, u32 tier, u64 now)
{
	u64 key = now + order_slot_of(p->pid)->key_offset;
	s32 cpu = first, later = -EBUSY;
	u32 i, fit;

	bpf_for(i, 0, ORDER_SCAN) {
		if (bpf_cpumask_test_cpu(cpu, &p->cpus_mask)) {
			fit = order_fit_of(cpu, tier, key, now);
			if (fit == ORDER_LOWER_TIER)
				return cpu;
			if (fit == ORDER_LATER_KEY && later < 0)
				later = cpu;
		}
		if (++cpu >= order_bounds.nr_cpus)
			cpu = 0;
		if (cpu == first)
			break;
	}
	return later;
}

/*
 * Whether a task waits in the CPU's local DSQ, and is next there. A real-time waker has interrupted
 * it.
 */
static __always_inline bool order_is_occupied(s32 cpu)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && rq->scx.local_dsq.nr;
}

/*
 * The busy CPU on which the task is to be enqueued: the waker's if it is about to sleep and leaves
 * the CPU to no other task, or runs a lower tier, else the previous one or one of the next ones if
 * they run a lower tier, else one of these that runs a later key; -EBUSY if there is none, or no
 * order.
 */
__noinline s32 order_steer(struct task_struct *p __arg_trusted, s32 prev_cpu, u64 wake_flags)
{
	struct order_slot *slot = order_slot_of(p->pid);
	s32 here = bpf_get_smp_processor_id();
	u64 now = bpf_ktime_get_ns();
	u32 tier = order_tier(slot, p);

	if (!order_bounds.enabled || tier <= FP_BATCH ||
	    bpf_get_current_task_btf()->pid == usersched_pid)
		return -EBUSY;
	if (bpf_cpumask_test_cpu(here, &p->cpus_mask)) {
		if ((wake_flags & SCX_WAKE_SYNC) && !order_is_occupied(here)) {
			backend_cpu_of(here)->handed_to = p->pid;
			return here;
		}
		if (order_fit_of(here, tier, now + slot->key_offset, now) == ORDER_LOWER_TIER)
			return here;
	}
	return order_scan(p, prev_cpu, tier, now);
}

/* select_cpu has found no idle CPU: chooses a busy one, on which enqueue executes the order. */
static __always_inline s32 patch_steer(struct task_struct *p, s32 prev_cpu, u64 wake_flags,
				       s32 idle_cpu)
{
	s32 cpu;

	if (idle_cpu >= 0 || !(wake_flags & SCX_WAKE_TTWU))
		return idle_cpu;
	cpu = order_steer(p, prev_cpu, wake_flags);
	if (cpu >= 0)
		backend_cpu_of(bpf_get_smp_processor_id())->steered = 1;
	return cpu;
}

/* A busy CPU that select_cpu has chosen counts as one with a queue: nothing is dispatched there. */
static __always_inline s32 patch_nr_queued(u64 dsq)
{
	struct backend_cpu *c = backend_cpu_of(bpf_get_smp_processor_id());

	if (c->steered) {
		c->steered = 0;
		return 1;
	}
	return scx_bpf_dsq_nr_queued(dsq);
}

#endif
