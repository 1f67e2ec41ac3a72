/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One dispatch call takes one decision.
 *
 * Symptom: user space sends several decisions, and urgent tasks wait in the ring behind hogs for up
 * to a tick: p90 of wakeups 2.3 ms instead of 0.2 ms on four CPUs.
 *
 * Cause: bpf_user_ringbuf_drain() goes on as long as the callback returns 0. The backend's callback
 * returns !!scx_bpf_dispatch_nr_slots(), which is 1 while there is room.
 *
 * Fix: the helper is called until it takes nothing, at most PATCH_DRAIN + 2 times. `Limits::KERNEL`
 * of crates/engine/src/round.rs sends no more than PATCH_DRAIN decisions a round. The loop is also
 * where drain_race.h learns that a CPU was turned away.
 *
 * How to see it: every return value of the helper is 0, 1 or -16. VM scenario `bars`, p99 of `wake`
 * and `mixed`.
 *
 * Upstream: return !scx_bpf_dispatch_nr_slots() (docs/upstream.md, report 2).
 */
#ifndef __PATCH_DRAIN_MANY_H
#define __PATCH_DRAIN_MANY_H

/* The helper and its callback are named once: the verifier follows the callback from each call. */
static __always_inline long patch_drain(void *ring, void *callback, void *context, u64 flags)
{
	struct patch_kicks *mine = patch_my_kicks();
	bool marked = false;
	long taken = 0;
	int call;

	patch_drain_begins();
	bpf_for(call, 0, 2 * (PATCH_DRAIN + 2)) {
		taken = bpf_user_ringbuf_drain(ring, callback, context, flags);
		if (taken == -EBUSY && !marked) {
			patch_mark_pending();
			/* The other CPU may have finished before it could see the mark. */
			marked = true;
			continue;
		}
		if (taken <= 0 && (marked || !patch_take_pending()))
			break;
		marked = false;
		mine->any = 1;
	}
	return taken;
}

#endif
