/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The contract between the fast path (fast_path.bpf.c) and the scheduler in user space.
 *
 * Both sides map the same arrays, so reading a fact costs no system call. Every field has one
 * writer, named here. All times are CLOCK_MONOTONIC in nanoseconds.
 */
#ifndef __FAST_PATH_H
#define __FAST_PATH_H

#ifndef __VMLINUX_H__
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef int s32;
#endif

enum fp_limits {
	/* Highest number of CPUs, as in the backend. */
	FP_CPUS = 1024,
	/*
	 * Task records. A record belongs to the pids that are equal modulo this, and describes the
	 * one that used it last; its owner is checked on every read.
	 */
	FP_TASKS = 65536,
	/* CPUs looked at in search of a victim, so that a wake-up has a bound. */
	FP_SCAN = 64,
	/* Tiers, and buckets of a wake-up latency histogram, the last one open. */
	FP_TIERS = 3,
	FP_BUCKETS = 12,
	/* Buckets of the histogram of sleep lengths, the last one open. */
	FP_SLEEP_BUCKETS = 4,
};

/* What a CPU runs, in the order of urgency. */
enum fp_occupant {
	FP_IDLE = 0,
	FP_BATCH = 1,
	FP_INTERACTIVE = 2,
	FP_LAT_CRITICAL = 3,
	/* The scheduler itself, or a task of another scheduling class: never a victim. */
	FP_FOREIGN = 4,
};

/* One per CPU, a cache line. Written by the fast path. */
struct fp_cpu {
	/* When the occupant began. */
	u64 since;
	/* When this CPU was last kicked. */
	u64 kicked;
	s32 pid;
	/* enum fp_occupant */
	u32 occupant;
	u64 unused[5];
};

/* One per task, two cache lines. Written by the fast path. */
struct fp_task {
	/* Odd while the record is being written. */
	u32 seq;
	/* The owner: a pid alone may have been used again. */
	s32 pid;
	u64 start_time;
	/* Counts since the record got this owner. */
	u64 wakeups;
	u64 voluntary;
	u64 involuntary;
	/* CPU time the task has used in its life. */
	u64 cpu_ns;
	/* When it woke last, began to run last, and stopped last. */
	u64 woken;
	u64 started;
	u64 stopped;
	/* Length of its last sleep, and of its last stint. */
	u64 slept_ns;
	u64 stint_ns;
	/* Allowed CPUs 0 to 63. */
	u64 allowed;
	/* PF_ flags. */
	u32 flags;
	/* The CPU that was kicked for its last wake-up; -1 for none. */
	s32 kicked_cpu;
	s32 tgid;
	s32 last_cpu;
	/* SCHED_ policy and nice value. */
	u16 policy;
	s8 nice;
	u8 unused0;
	/* Nonzero from wake-up until it runs. */
	u32 waiting;
};

/* What user space thinks of a task. Written by user space, read by the fast path. */
struct fp_hint {
	s32 pid;
	/* enum fp_occupant */
	u32 tier;
};

/* One row per CPU, summed by user space. Written by the fast path, each row on its own CPU. */
struct fp_counters {
	/* Wake-up to running, by tier; edges in fast_path.bpf.c. */
	u64 wake_latency[FP_TIERS][FP_BUCKETS];
	u64 sleep[FP_SLEEP_BUCKETS];
	/* Runs on the L2 cache the task ran on before, and on another, by tier. */
	u64 l2_hits[FP_TIERS];
	u64 l2_misses[FP_TIERS];
	/* Wake-ups that came to user space, and what was done about them. */
	u64 wakeups;
	u64 kicks;
	u64 no_victim;
	u64 rate_limited;
	/* Kicks that user space asked for. */
	u64 asked;
	/* Records in use by another writer: the update was dropped. */
	u64 contended;
};

/* Argument of the fp_kick program. */
struct fp_kick_arg {
	s32 cpu;
};

#endif
