/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A decision about a task that has just ended takes another decision back.
 *
 * Symptom: rarely, the kernel ejects the scheduler with "dispatch buffer underflow".
 *
 * Cause: since Linux 7.1 scx_bpf_dsq_insert_vtime() ignores a task that does not belong to the
 * scheduler any more, and returns false. The backend then finds no record of the task and calls
 * scx_bpf_dispatch_cancel(), which takes back the last insert, of another task. If there is none,
 * that is an error.
 *
 * Fix: nothing is taken back after an insert that the kernel has refused.
 *
 * How to see it: seen once, in VM scenario `fast-path-parts` on Linux 7.2.13, in fast mode beside a
 * build. The backtrace of the ejection goes from dispatch_task() to scx_bpf_dispatch_cancel().
 *
 * Upstream: look at what the insert returns. Nothing is reported yet.
 */
#ifndef __PATCH_REFUSED_INSERT_H
#define __PATCH_REFUSED_INSERT_H

/* By CPU: whether the kernel refused the last insert there. */
static u8 patch_refused[PATCH_CPUS];

static __always_inline u8 *patch_refused_here(void)
{
	return &patch_refused[bpf_get_smp_processor_id() & (PATCH_CPUS - 1)];
}

/* Remembers what the insert has returned. */
static __always_inline bool patch_note_insert(bool inserted)
{
	*patch_refused_here() = !inserted;
	return inserted;
}

static __always_inline void patch_dispatch_cancel(void)
{
	if (!*patch_refused_here())
		scx_bpf_dispatch_cancel();
}

#endif
