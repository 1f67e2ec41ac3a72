/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A busy CPU kicks itself in case it idles.
 *
 * Symptom: one more irq_work for each decision that a CPU takes for itself.
 *
 * Cause: the backend ends enqueue and each decision with scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE). If
 * that is the CPU that executes the call, and it runs a task, the kick has no effect except its
 * interrupt.
 *
 * Fix: such a kick is left out. On an idle CPU, in an interrupt, it is needed and stays.
 *
 * How to see it: as in ring_wakeup.h.
 *
 * Upstream: the same test before the kick (docs/upstream.md, report 9).
 */
#ifndef __PATCH_SELF_KICK_H
#define __PATCH_SELF_KICK_H

static __always_inline void patch_kick_cpu(s32 cpu, u64 flags)
{
	/* The idle task has pid 0. */
	if (flags == SCX_KICK_IDLE && cpu == bpf_get_smp_processor_id() &&
	    bpf_get_current_task_btf()->pid)
		return;
	scx_bpf_kick_cpu(cpu, flags);
}

#endif
