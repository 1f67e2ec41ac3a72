/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every wakeup on a busy machine costs a run of the scheduler process.
 *
 * Symptom: 22 us of CPU time for each wakeup that finds no idle CPU, 45 us at the median until the
 * task runs, and the same again for the task that it interrupts.
 *
 * Cause: the backend queues each task to user space, and nothing happens until the process has run.
 *
 * Fix: standing orders. With a decision user space may order what happens at the next wakeups of
 * the task: for how long it runs, by which key it waits, which tiers it preempts, how often, until
 * when. The backend's enqueue executes the order with the runqueue locked (order_rules.h). A task
 * that was preempted so goes on with the rest of its slice without a message, and a Batch task that
 * used up its slice gets some further ones in its turn. Everything else is queued to user space as
 * before.
 *
 * How to see it: VM scenarios `orders` and `bars`, and the statistics `nr_orders`.
 *
 * Upstream: nothing is reported yet. It would be an option of the backend.
 */
#ifndef __PATCH_ORDERS_H
#define __PATCH_ORDERS_H

#include "../order_rules.h"

/* Since Linux 6.19: recheck.bpf.h has tasks enqueued again. libbpf leaves the last suffix out. */
void scx_bpf_reenqueue_local___v2___weak(void) __ksym __weak;

/* Set by the backend's user space; main.bpf.c declares it again. */
const volatile u32 usersched_pid;

/* One per task; backend_limits.h tells which. */
struct order_slot {
	/*
	 * The owner, noted with each message to user space. The start time and the count of execs
	 * tell whether the pid or the program is another one.
	 */
	u64 start_time;
	u64 ticket;
	u32 pid;
	u32 execs;
	u32 weight;
	/* Orders executed for the owner; the backend counts. */
	u32 executed;
	/* The order, written by user space. `answers` is the ticket of its decision, written last. */
	u64 answers;
	u64 until;
	u32 slice;
	u32 key_offset;
	/* The count of `executed` at which the credit is used up. */
	u32 executed_max;
	u32 epoch;
	u32 tier;
	/* The rest of the owner's slice when an order preempted it; 0 if none did. */
	u32 rest;
	/* The last execution: when, and the pid that was preempted for it. */
	u64 executed_at;
	u32 victim;
	/* When the owner queued its last message or used up a slice: order_note_time(). */
	u32 noted;
	/* Whether another order has been asked for. User space clears it. */
	u32 asked;
	u32 unused;
};

/* What user space publishes after each round. */
struct order_bounds {
	u64 batch_due;
	u32 epoch;
	u32 waiting;
	/* The sum of `passed` at which orders no longer pass Batch work that is due. */
	u32 passed_max;
	/* Zero switches orders off. */
	u32 enabled;
	/* Tasks that wait for a decision: enum order_pending. */
	u32 pending;
	u32 nr_cpus;
};

/* The backend's record of a CPU. */
struct order_cpu {
	struct fp_cpu kicks;
	u64 events[ORDER_EVENTS];
	/* Whether select_cpu has just chosen a busy CPU. */
	u32 steered;
	/* Whether this call of dispatch has found no decided task that may use the CPU. */
	u32 unserved;
	/* The wakee of the running task, which is about to sleep; 0 if there is none. */
	u32 handed_to;
	/* Looks into its own DSQ since it last looked into the shared one: own_queue.h. */
	u32 looked_own;
	/* When the CPU last called ops.dispatch, by the clock of scx_bpf_now(). */
	u64 looked;
	/* The same when it last looked into the shared DSQ: own_queue.h. */
	u64 looked_shared;
	/* How often another performance was asked for: frequency.h. */
	u64 asked;
};

struct order_slot order_slots[ORDER_SLOTS];
struct order_bounds order_bounds;
struct order_cpu order_cpus[BACKEND_SHARED_DSQ];
/* Orders executed while Batch work waited in user space. */
u32 order_passed;

static __always_inline struct order_cpu *order_cpu_of(s32 cpu)
{
	return &order_cpus[(u32)cpu & (BACKEND_SHARED_DSQ - 1)];
}

static __always_inline void order_count(enum order_event event)
{
	order_cpu_of(bpf_get_smp_processor_id())->events[event]++;
}

static __always_inline struct order_slot *order_slot_at(u32 pid, u32 way)
{
	u32 first = pid & (ORDER_SETS - 1);

	return &order_slots[(first + way * ORDER_SETS) & (ORDER_SLOTS - 1)];
}

/* The slot of the pid, or another one's: callers check the owner. */
static __always_inline struct order_slot *order_slot_of(u32 pid)
{
	for (u32 way = 0; way < ORDER_WAYS; way++)
		if (order_slot_at(pid, way)->pid == pid)
			return order_slot_at(pid, way);
	return order_slot_at(pid, 0);
}

/* The time in units of 2^20 ns. Wraps. */
static __always_inline u32 order_note_time(void)
{
	return bpf_ktime_get_ns() >> 20;
}

/*
 * The slot for a pid that has none: an empty one of its set, or the one that was noted longest ago.
 * Returns its way. Not static: few messages need it.
 */
__noinline u32 order_choose_way(u32 pid, u32 noted)
{
	u32 best = 0, oldest = 0;

	for (u32 way = 0; way < ORDER_WAYS; way++) {
		const struct order_slot *slot = order_slot_at(pid, way);

		if (!slot->pid)
			return way;
		if (noted - slot->noted < oldest)
			continue;
		oldest = noted - slot->noted;
		best = way;
	}
	return best;
}

static __always_inline bool order_is_owner(const struct order_slot *slot,
					   const struct task_struct *p)
{
	return slot->pid == p->pid && slot->start_time == p->start_time &&
	       slot->execs == (u32)p->self_exec_id && slot->weight == p->scx.weight;
}

/* The tier of the task's order; FP_IDLE if it has none that answers its last message. */
static __always_inline u32 order_tier(const struct order_slot *slot, const struct task_struct *p)
{
	return order_is_owner(slot, p) && slot->answers == slot->ticket ? slot->tier : FP_IDLE;
}

/* Notes the owner of the slot, with its message number `ticket` to user space. */
static __always_inline void order_note_message(const struct task_struct *p, u64 ticket)
{
	struct order_slot *slot = order_slot_of(p->pid);
	u32 noted = order_note_time();

	if (slot->pid != p->pid)
		slot = order_slot_at(p->pid, order_choose_way(p->pid, noted));
	if (!order_is_owner(slot, p))
		slot->executed = slot->tier = 0;
	slot->noted = noted;
	slot->answers = 0;
	slot->pid = p->pid;
	slot->start_time = p->start_time;
	slot->execs = p->self_exec_id;
	slot->weight = p->scx.weight;
	slot->ticket = ticket;
	slot->rest = 0;
	slot->asked = 0;
}

/*
 * A message with this number asks for another order of the task, which runs by its present one. The
 * kernel ignores the decision that answers it.
 */
static __always_inline void order_note_renewal(const struct task_struct *p, u64 ticket)
{
	struct order_slot *slot = order_slot_of(p->pid);

	order_count(ORDER_RENEWED);
	slot->noted = order_note_time();
	slot->asked = 1;
	slot->ticket = ticket;
	slot->answers = ticket;
}

/*
 * What the task `curr` of a CPU counts as. A kernel thread that is bound to its CPU is no victim:
 * it is in no slot, and others wait for it.
 */
static __always_inline u32 order_occupant(const struct task_struct *curr)
{
	const struct order_slot *slot;
	u32 pid = curr->pid;

	if (!pid)
		return FP_IDLE;
	if (pid == usersched_pid || is_higher_class(curr->prio))
		return FP_FOREIGN;
	slot = order_slot_of(pid);
	if (slot->pid == pid && slot->tier >= FP_BATCH && slot->tier <= FP_LAT_CRITICAL &&
	    slot->start_time == curr->start_time)
		return slot->tier;
	return curr->flags & PF_KTHREAD ? FP_FOREIGN : FP_INTERACTIVE;
}

/* How a CPU suits a wakee with an order. */
enum order_fit {
	ORDER_UNFIT,
	/* It runs a task of the wakee's tier that has a later key. */
	ORDER_LATER_KEY,
	ORDER_LOWER_TIER,
};

/*
 * How the CPU suits a wakee of this tier and key. A CPU in whose local DSQ a task waits is about to
 * be preempted, one that idles here was just chosen for another wakee, and one that was preempted
 * too often is not preempted now. Exact while the runqueue is locked. Not static, like others
 * below: the verifier then checks it once.
 */
__noinline u32 order_fit_of(s32 cpu, u32 tier, u64 key, u64 now)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);
	u32 occupant;

	if (!rq || rq->scx.local_dsq.nr || rq->balance_callback ||
	    !may_kick(&order_cpu_of(cpu)->kicks, now))
		return ORDER_UNFIT;
	occupant = order_occupant(rq->curr);
	if (occupant == FP_IDLE || occupant > tier)
		return ORDER_UNFIT;
	if (occupant < tier)
		return ORDER_LOWER_TIER;
	return rq->curr->scx.dsq_vtime > key ? ORDER_LATER_KEY : ORDER_UNFIT;
}

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
					  const struct rq *rq, struct order_cpu *c, u64 now,
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

/* What the verdict depends on, while the runqueue of the task's CPU is locked. */
static __always_inline void order_look(struct order_view *v, struct task_struct *p,
				       struct order_slot *slot, const struct rq *rq, u64 enq_flags)
{
	const struct task_struct *curr = rq->curr;
	s32 cpu = scx_bpf_task_cpu(p);
	struct order_cpu *c = order_cpu_of(cpu);

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
	v->passes = order_bounds.passed_max - order_passed;
	if ((s32)v->left < 0)
		v->left = 0;
	if ((s32)v->passes < 0)
		v->passes = 0;
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
	note_kick(&order_cpu_of(cpu)->kicks, now);
	scx_bpf_task_set_dsq_vtime(p, now + slot->key_offset);
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | cpu, p->scx.slice, enq_flags | SCX_ENQ_PREEMPT);
	return true;
}

/* A function of its own: else the verifier follows each way of the view through the verdict. */
__noinline u32 order_judge(struct order_view *v __arg_nonnull)
{
	return order_verdict(v);
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
		order_preempt(p, slot, rq, order_cpu_of(cpu), v.now, enq_flags);
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
		__sync_fetch_and_add(&order_passed, 1);
	return !v.requeued && !slot->asked && order_is_ending(&v) ? ORDER_ENDS : ORDER_DONE;
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
			order_cpu_of(here)->handed_to = p->pid;
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
		order_cpu_of(bpf_get_smp_processor_id())->steered = 1;
	return cpu;
}

/* A busy CPU that select_cpu has chosen counts as one with a queue: nothing is dispatched there. */
static __always_inline s32 patch_nr_queued(u64 dsq)
{
	struct order_cpu *c = order_cpu_of(bpf_get_smp_processor_id());

	if (c->steered) {
		c->steered = 0;
		return 1;
	}
	return scx_bpf_dsq_nr_queued(dsq);
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

/*
 * Whether tasks that user space has received need a round now. While only Batch tasks wait for a
 * decision, and a decided task is in the shared DSQ, the CPU runs that one first.
 */
static __always_inline bool order_needs_round(void)
{
	const struct order_bounds *bounds = &order_bounds;

	if (bounds->pending != ORDER_BATCH_PENDING)
		return bounds->pending != ORDER_NOTHING_PENDING;
	return !bounds->enabled || !scx_bpf_dsq_nr_queued(BACKEND_SHARED_DSQ) ||
	       bpf_ktime_get_ns() >= bounds->batch_due;
}

/* Whether the scheduler process has work: also if this CPU has found no decided task. */
static __always_inline bool order_is_pending(void)
{
	const struct order_cpu *c = order_cpu_of(bpf_get_smp_processor_id());

	return (c->unserved && order_bounds.pending) || order_needs_round();
}

#endif
