/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Standing orders (orders.h): what the backend does by an order with a task that would be queued to
 * user space, or that goes on.
 */
#ifndef __PATCH_ORDER_EXECUTE_H
#define __PATCH_ORDER_EXECUTE_H

/* Since Linux 6.19: recheck.bpf.h has tasks enqueued again. libbpf leaves the last suffix out. */
void scx_bpf_reenqueue_local___v2___weak(void) __ksym __weak;

/* The rest of the running task's slice. */
static __always_inline u32 order_rest(const struct rq *rq, const struct task_struct *curr)
{
	u64 slice = curr->scx.slice;
	s64 ran = rq->clock_task - curr->se.exec_start;
	u64 rest;

	if (ran < 0)
		ran = 0;
	rest = slice > ran ? slice - ran : 0;
	return rest >> 32 ? (u32)-1 : rest;
}

/*
 * Preempts what the CPU runs, and runs `p`. Remembers the rest of a decided task's slice, unless a
 * task of its tier or a higher one waits for a decision: that one comes first. A Batch task is next
 * in its turn whatever waits.
 */
static __always_inline void order_preempt(struct task_struct *p, struct order_slot *slot,
					  const struct rq *rq, struct backend_cpu *c, u64 now,
					  u64 enq_flags)
{
	const struct task_struct *curr = rq->curr;
	u32 pid = curr->pid;
	struct order_slot *victim = order_slot_of(pid);

	if (pid && victim->pid == pid && victim->tier >= FP_BATCH &&
	    (victim->tier == FP_BATCH || order_bounds.waiting < victim->tier))
		victim->rest = order_rest(rq, curr);
	slot->victim = pid;
	note_kick(&c->kicks, now);
	scx_bpf_task_set_dsq_vtime(p, now + slot->key_offset);
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slot->slice, enq_flags | SCX_ENQ_PREEMPT);
}

/*
 * The key of a task that goes on with the rest of its slice. A Batch task is next in its turn. A
 * task of a higher tier gets a new place in its tier: by its old key it would come before a wakee.
 */
static __always_inline u64 order_key_of_rest(const struct task_struct *p,
					     const struct order_slot *slot, u64 now)
{
	return slot->tier == FP_BATCH ? p->scx.dsq_vtime : now + slot->key_offset;
}

/*
 * A real-time task keeps the CPU of `p`, which stopped at `stopped` and waited in its local DSQ
 * with a rest of its slice: goes on with that on a CPU that runs a lower tier. If there is none, it
 * waits for the end of the real-time task, which most often comes soon. A decision would put it
 * behind Batch tasks with older keys. Returns whether the task is in a DSQ now.
 */
__noinline u32 order_move(struct task_struct *p __arg_trusted, u64 enq_flags, u64 stopped)
{
	const struct order_slot *slot = order_slot_of(p->pid);
	u32 tier = order_tier(slot, p);
	u64 now = bpf_ktime_get_ns();
	s32 cpu;

	/* While its migration is disabled, p->cpus_mask still has all its CPUs. */
	if (tier <= FP_BATCH || p->scx.slice < ORDER_REST_MIN_NS || p->migration_disabled)
		return false;
	cpu = order_scan(p, scx_bpf_task_cpu(p), tier, now);
	if (cpu < 0) {
		if (scx_bpf_now() - stopped >= ORDER_STAY_NS)
			return false;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, p->scx.slice, enq_flags);
		return true;
	}
	order_count(ORDER_RESUMED);
	note_kick(&backend_cpu_of(cpu)->kicks, now);
	scx_bpf_task_set_dsq_vtime(p, now + slot->key_offset);
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | cpu, p->scx.slice, enq_flags | SCX_ENQ_PREEMPT);
	return true;
}

/* What became of a task that would be queued to user space. */
enum order_outcome {
	ORDER_NOT_DONE,
	/* It is in a DSQ. */
	ORDER_DONE,
	/* The same, and its order ends soon. */
	ORDER_ENDS,
};

/*
 * Executes the task's order, or lets it go on; the task last stopped at `stopped`. Returns enum
 * order_outcome.
 */
__noinline u32 order_execute(struct task_struct *p __arg_trusted, u64 enq_flags, u64 stopped)
{
	struct order_slot *slot = order_slot_of(p->pid);
	s32 cpu = scx_bpf_task_cpu(p);
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);
	u64 dsq = BACKEND_SHARED_DSQ;
	struct order_view v = {};
	u32 verdict;

	if (!rq || !order_bounds.enabled || !order_is_owner(slot, p))
		return ORDER_NOT_DONE;
	if (bpf_ksym_exists(scx_bpf_reenqueue_local___v2___weak) && (enq_flags & SCX_ENQ_REENQ))
		return order_move(p, enq_flags, stopped) ? ORDER_DONE : ORDER_NOT_DONE;
	order_look(&v, p, slot, rq, enq_flags);
	verdict = order_judge(&v);
	switch (verdict) {
	case ORDER_ASK:
		return ORDER_NOT_DONE;
	case ORDER_RESUME:
		order_count(ORDER_RESUMED);
		scx_bpf_dsq_insert_vtime(p, dsq, v.rest, order_key_of_rest(p, slot, v.now),
					 enq_flags);
		return ORDER_DONE;
	case ORDER_AGAIN:
		order_count(ORDER_CONTINUED);
		v.key = patch_key_in_crowd(FP_BATCH, v.now + slot->key_offset, slot->slice, v.now);
		scx_bpf_dsq_insert_vtime(p, dsq, slot->slice, v.key, enq_flags);
		break;
	case ORDER_PREEMPT:
		order_count(ORDER_PREEMPTED);
		order_preempt(p, slot, rq, backend_cpu_of(cpu), v.now, enq_flags);
		break;
	case ORDER_HAND_OVER:
		order_count(ORDER_QUEUED);
		slot->victim = 0;
		scx_bpf_task_set_dsq_vtime(p, v.key);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slot->slice, enq_flags);
		break;
	case ORDER_QUEUE_HERE:
		dsq = cpu;
	case ORDER_QUEUE:
		order_count(ORDER_QUEUED);
		slot->victim = 0;
		if (verdict == ORDER_QUEUE)
			v.key = patch_key_in_crowd(slot->tier, v.key, slot->slice, v.now);
		scx_bpf_dsq_insert_vtime(p, dsq, slot->slice, v.key, enq_flags);
		if (v.occupant == FP_IDLE)
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		break;
	}
	slot->executed++;
	slot->executed_at = v.now;
	if (v.batch_due != ORDER_NEVER)
		__sync_fetch_and_add(&order_deficit, 1);
	return !v.requeued && !slot->asked && order_is_ending(&v) ? ORDER_ENDS : ORDER_DONE;
}

/*
 * No other task wants the CPU of the running task: returns its next slice, and moves its key as a
 * decision would. With an old key it would count as the next task by the order of keys.
 */
static __always_inline u64 order_renew(struct task_struct *p, u64 slice)
{
	struct order_slot *slot = order_slot_of(p->pid);

	if (!order_bounds.enabled || slot->tier != FP_BATCH || !order_is_owner(slot, p))
		return slice;
	slot->noted = order_note_time();
	scx_bpf_task_set_dsq_vtime(p, bpf_ktime_get_ns() + slot->key_offset);
	return slot->slice;
}

/*
 * Whether the running task `p` outlasts a late kick of its CPU, which has ended its slice: a
 * LatCritical task that has run since `started` for less than the slice. It would be queued to user
 * space, and then wait behind Batch tasks with older keys. Gives it the rest of the slice.
 */
static __always_inline bool order_outlasts_kick(struct task_struct *p, u64 started)
{
	const struct order_slot *slot = order_slot_of(p->pid);
	u64 ran = scx_bpf_now() - started;

	if (order_tier(slot, p) != FP_LAT_CRITICAL || ran + ORDER_REST_MIN_NS > slot->slice ||
	    patch_holds_decisions())
		return false;
	order_count(ORDER_RESUMED);
	scx_bpf_task_set_slice(p, slot->slice - ran);
	return true;
}

#endif
