/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A Batch task wakes an idle CPU although power is to be saved.
 *
 * Symptom: with --low-power beside one busy CPU, Batch tasks spread over all the others.
 *
 * Cause: the kernel gives a wakee an idle CPU without a message to user space, which alone knows
 * that power is to be saved.
 *
 * Fix: while a CPU is busy, the wakeup of a Batch task is queued to user space, which places it.
 * Every other task gets an idle CPU as before.
 *
 * How to see it: VM scenario `low-power`.
 *
 * Upstream: nothing is reported yet. The backend's only way is to switch its idle-CPU placement off
 * for all tasks, until it is loaded again.
 */
#ifndef __PATCH_LOW_POWER_H
#define __PATCH_LOW_POWER_H

/* Tasks that run, without the scheduler process. Set by the backend: main.bpf.c declares it. */
volatile u64 nr_running;

/* Whether power is to be saved. User space writes it. */
u32 patch_saves_power;

/*
 * Whether the task is Batch. One that has found an idle CPU at each wakeup for ORDER_BATCH_NS has
 * also slept before the end of each slice, so it runs briefly whatever user space said of it.
 */
static __always_inline bool patch_is_batch(const struct task_struct *p)
{
	const struct order_slot *slot = order_slot_of(p->pid);

	return slot->tier == FP_BATCH && order_is_owner(slot, p) &&
	       order_note_time() - slot->noted < ORDER_BATCH_NS >> 20;
}

/* Whether the task is given no idle CPU. One that is bound to a CPU has no choice. */
static __always_inline bool patch_wakes_none(const struct task_struct *p)
{
	return patch_saves_power && nr_running && p->nr_cpus_allowed > 1 && patch_is_batch(p);
}

#endif
