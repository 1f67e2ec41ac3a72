/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What several patches need. No fault of its own.
 */
#ifndef __PATCH_COMMON_H
#define __PATCH_COMMON_H

/* The patches keep one bit for each of the first 64 CPUs. */
#define PATCH_CPUS 64

/* What the scheduler process does: enum patch_activity. User space writes it. */
u32 patch_activity;

/* The bit of this CPU; 0 beyond the first 64. */
static __always_inline u64 patch_this_cpu(void)
{
	u32 here = bpf_get_smp_processor_id();

	return here < PATCH_CPUS ? 1ULL << here : 0;
}

#endif
