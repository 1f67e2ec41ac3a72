/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When a timer that should be armed is not.
 *
 * bpf_timer_start() can fail. Since Linux 7.0 a start with interrupts off, which is where most of
 * ours are, is handed to an interrupt and needs memory for that: without memory it is refused. A
 * flag that says "armed" after such a start would never be cleared, because only the timer's
 * callback clears it, and nothing would start the timer again.
 *
 * So a refused start leaves the flag clear, and a flag whose callback does not come is not
 * believed.
 *
 * Pure functions, as in rules.h: crates/bpf_rules compiles them for the host.
 */
#ifndef __TIMER_RULES_H
#define __TIMER_RULES_H

#include "rules.h"

/*
 * Whether the timer that is armed for the time `armed`, or 0, fires soon enough for `at`. A timer
 * that is overdue for FP_OVERDUE_NS does not fire any more.
 */
static __always_inline bool timer_serves(u64 armed, u64 at, u64 now)
{
	return armed && armed <= at && now < armed + FP_OVERDUE_NS;
}

/* What `armed` is after a start for the time `at`. */
static __always_inline u64 timer_started(u64 at, bool refused)
{
	return refused ? 0 : at;
}

/* A timer that is armed again and again while there is something to watch. */
struct fp_watch {
	/* Nonzero if it is armed. */
	u32 armed;
	/* Its callbacks so far, and at the last look. */
	u32 calls;
	u32 calls_before;
};

/*
 * A look at the watch, more rarely than it fires. It is lost if it is armed, and no callback has
 * come since the last look: then it counts as not armed.
 */
static __always_inline void watch_look(struct fp_watch *w)
{
	if (w->calls == w->calls_before)
		w->armed = 0;
	w->calls_before = w->calls;
}

#endif
