/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What several patches need. No fault of its own.
 */
#ifndef __PATCH_COMMON_H
#define __PATCH_COMMON_H

/* Masks of CPUs have a word for each group of 64. The numbers are powers of two. */
#define PATCH_CPUS BACKEND_SHARED_DSQ
#define PATCH_GROUP 64
#define PATCH_GROUPS (PATCH_CPUS / PATCH_GROUP)

/* What the scheduler process does: enum patch_activity. User space writes it. */
u32 patch_activity;

static __always_inline u32 patch_group(u32 cpu)
{
	return cpu / PATCH_GROUP & (PATCH_GROUPS - 1);
}

static __always_inline u64 patch_bit(u32 cpu)
{
	return 1ULL << cpu % PATCH_GROUP;
}

/* The number of groups of this machine. User space writes it. */
u32 patch_nr_groups;

#define patch_for_each_group(group)                                                                \
	for (u32 group = 0; group < PATCH_GROUPS && group < patch_nr_groups; group++)

#endif
