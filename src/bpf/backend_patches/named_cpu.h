/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An idle CPU that was chosen for a decision idles on beside waiting tasks.
 *
 * Symptom: without the fast path a CPU idles for a second and more while tasks that compute wait
 * for their turn.
 *
 * Cause: user space has the backend choose an idle CPU for a decision, and that CPU loses its idle
 * mark until it calls .dispatch. If the decision is cancelled, if its task has exited, or if the
 * task may not use that CPU any more, nothing kicks it. Without its mark no wakeup finds it.
 *
 * Fix: each CPU that a decision names is kicked, whatever becomes of the decision.
 *
 * How to see it: pandemonium_lab swarm 1 --seed 15844, in a model without this kick.
 *
 * Upstream: the kick before each return of dispatch_task() (docs/upstream.md, report 16).
 */
#ifndef __PATCH_NAMED_CPU_H
#define __PATCH_NAMED_CPU_H

static __always_inline void patch_kick_named(s32 cpu)
{
	if (cpu >= 0 && cpu < PATCH_CPUS)
		patch_kick_cpu(cpu, SCX_KICK_IDLE);
}

#endif
