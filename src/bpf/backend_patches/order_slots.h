/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Standing orders (orders.h): the slots that keep the order of each task, and what they say of a
 * task.
 */
#ifndef __PATCH_ORDER_SLOTS_H
#define __PATCH_ORDER_SLOTS_H

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

struct order_slot order_slots[ORDER_SLOTS];

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

	if (slot->pid != p->pid) {
		slot = order_slot_at(p->pid, order_choose_way(p->pid, noted));
		if (slot->pid && slot->answers == slot->ticket && slot->until > bpf_ktime_get_ns())
			order_count(ORDER_DISPLACED);
	}
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

#endif
