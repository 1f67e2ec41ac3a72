/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task in the shared DSQ waits for ever.
 *
 * Symptom: with --low-power on two CPUs, four tasks that compute are bound to one of them, and the
 * kernel ejects the scheduler: "runnable task stall".
 *
 * Cause: a CPU serves its own DSQ before the shared one. If decisions keep its own filled, a task
 * in the shared one that may run on no other CPU has no turn.
 *
 * Fix: a CPU that has served PATCH_OWN_TASKS tasks of its own DSQ, for PATCH_OWN_NS at least, then
 * serves the shared one once. The time alone would delay the first wakee after a pause.
 *
 * How to see it: VM scenario `low-power-bound`.
 *
 * Upstream: nothing is reported yet. User space names the CPUs, so it is at fault too.
 */
#ifndef __PATCH_OWN_QUEUE_H
#define __PATCH_OWN_QUEUE_H

/* Whether the shared DSQ comes first, now that this CPU is about to serve `dsq`. */
static __always_inline bool patch_owes_shared(u64 dsq)
{
	struct backend_cpu *c = backend_cpu_of(bpf_get_smp_processor_id());
	bool owes = false;

	if (dsq < PATCH_CPUS)
		owes = ++c->looked_own > PATCH_OWN_TASKS &&
		       c->looked - c->looked_shared > PATCH_OWN_NS;
	if (owes || dsq == BACKEND_SHARED_DSQ) {
		c->looked_shared = c->looked;
		c->looked_own = 0;
	}
	return owes;
}

#endif
