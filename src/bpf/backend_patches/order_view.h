/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Standing orders (orders.h): what user space publishes, and the view on which the verdict depends.
 */
#ifndef __PATCH_ORDER_VIEW_H
#define __PATCH_ORDER_VIEW_H

/* What user space publishes after each round. */
struct order_bounds {
	u64 batch_due;
	u32 epoch;
	u32 waiting;
	/* The value of order_deficit at which orders no longer pass Batch work that is due. */
	u32 deficit_max;
	/* Zero switches orders off. */
	u32 enabled;
	/* Tasks that wait for a decision: enum order_pending. */
	u32 pending;
	u32 nr_cpus;
};

struct order_bounds order_bounds;
/* The deficit that orders made so far: those executed while Batch work waited in user space. */
u32 order_deficit;

/* What the verdict depends on, while the runqueue of the task's CPU is locked. */
static __always_inline void order_look(struct order_view *v, struct task_struct *p,
				       struct order_slot *slot, const struct rq *rq, u64 enq_flags)
{
	const struct task_struct *curr = rq->curr;
	s32 cpu = scx_bpf_task_cpu(p);
	struct backend_cpu *c = backend_cpu_of(cpu);

	v->requeued = !(enq_flags & SCX_ENQ_WAKEUP);
	v->rest = slot->rest;
	slot->rest = 0;
	v->now = bpf_ktime_get_ns();
	v->tier = order_tier(slot, p);
	v->until = slot->until;
	v->left = slot->executed_max - slot->executed;
	v->epoch = slot->epoch;
	v->epoch_now = order_bounds.epoch;
	v->batch_due = order_bounds.batch_due;
	v->waiting = order_bounds.waiting;
	v->deficit_left = order_bounds.deficit_max - order_deficit;
	if ((s32)v->left < 0)
		v->left = 0;
	if ((s32)v->deficit_left < 0)
		v->deficit_left = 0;
	/* A task that lost no CPU was moved to this one, which has to look for it. */
	if (v->requeued) {
		if (curr != p)
			v->tier = FP_IDLE;
		return;
	}
	v->key = v->now + slot->key_offset;
	v->occupant = order_occupant(curr);
	v->occupant_key = curr->scx.dsq_vtime;
	v->occupied = rq->scx.local_dsq.nr > 0 ||
		      (v->occupant == FP_IDLE && scx_bpf_dsq_nr_queued(cpu) > 0);
	v->limited = !may_kick(&c->kicks, v->now);
	v->decides = curr->pid == usersched_pid;
	v->waker_sleeps = c->handed_to == p->pid;
	v->looked = scx_bpf_now() - c->looked < ORDER_LOOK_NS && !patch_is_unanswered();
	c->handed_to = 0;
}

/* A function of its own: else the verifier follows each way of the view through the verdict. */
__noinline u32 order_judge(struct order_view *v __arg_nonnull)
{
	return order_verdict(v);
}

#endif
