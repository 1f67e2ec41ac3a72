/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Each message to user space wakes up a reader that does not exist.
 *
 * Symptom: one irq_work, an interrupt of the CPU by itself, for each task that is queued to user
 * space while the ring is empty.
 *
 * Cause: bpf_ringbuf_submit() with flags 0 notifies the ring's pollers when the reader has caught
 * up. User space reads the ring with consume_raw_n() in each round and polls nothing.
 *
 * Fix: submit with BPF_RB_NO_WAKEUP.
 *
 * How to see it: the count of "IRQ work interrupts" in /proc/interrupts beside a load of wakeups.
 *
 * Upstream: pass BPF_RB_NO_WAKEUP (docs/upstream.md, report 8).
 */
#ifndef __PATCH_RING_WAKEUP_H
#define __PATCH_RING_WAKEUP_H

static __always_inline void patch_ringbuf_submit(void *data)
{
	bpf_ringbuf_submit(data, BPF_RB_NO_WAKEUP);
}

#endif
