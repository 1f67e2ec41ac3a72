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
	/* Buckets of the fine histograms, four to a doubling; src/control/fine.rs. */
	FP_FINE_BUCKETS = 90,
	/*
	 * Wake-ups in a row after which a task that went to sleep at once is trusted to do so again.
	 * Eight is what the later versions of the parent project ask for too.
	 */
	FP_HANDOFF_TRUST = 8,
	/* Urgent decisions that are looked after when the scheduler process leaves, a power of two. */
	FP_ROUND = 8,
	/* Wake-ups that one CPU keeps an eye on until the task runs, a power of two. */
	FP_WATCHED = 8,
	/* Times a CPU is interrupted again for one wake-up. */
	FP_AGAIN_MAX = 3,
	/*
	 * Kicks of one CPU in 2^20 ns, about a millisecond: at 10 us each, 10 % of it. A limit for a
	 * second would be spent by a quick load in the first half of it and leave wake-ups to the
	 * tick in the second.
	 */
	FP_KICKS_PER_WINDOW = 10,
	FP_WINDOW_BITS = 20,
};

/* Times in nanoseconds. */
enum fp_times {
	/* A CPU is not kicked twice within this. */
	FP_KICK_INTERVAL_NS = 50 * 1000,
	/*
	 * A waker that sleeps within this handed its CPU over. The way through user space takes about
	 * as long when a CPU is interrupted for it, so waiting for the waker's CPU costs no more.
	 */
	FP_HANDOFF_NS = 100 * 1000,
	/* A CPU outside the domain is not kicked twice within this for a CPU inside. */
	FP_RETURN_INTERVAL_NS = 1000 * 1000,
	/*
	 * A task that woke up and waits longer than this gets a second kick: several times what the
	 * way through user space takes, a small part of the 4 ms to the next tick.
	 */
	FP_AGAIN_NS = 500 * 1000,
	/* The same for a task that is stranded when a round ends: most have run by then. */
	FP_STRANDED_NS = 100 * 1000,
	/* The timer is not armed for less. */
	FP_SOON_NS = 20 * 1000,
};

/* What a CPU runs, in the order of urgency. */
enum fp_occupant {
	FP_IDLE = 0,
	FP_BATCH = 1,
	FP_INTERACTIVE = 2,
	FP_LAT_CRITICAL = 3,
	/* The scheduler itself, or a task of another scheduling class: never a victim. */
	FP_FOREIGN = 4,
	/* Nothing: the CPU is offline. User space marks it before the programs attach; a CPU that comes
	 * or goes later makes the kernel restart the scheduler. */
	FP_OFFLINE = 5,
};

/* One per CPU, two cache lines. Written by the fast path. */
struct fp_cpu {
	/* When the occupant began, and for how long it may run. */
	u64 since;
	u64 slice;
	/* When the occupant woke somebody last, in this stint; 0 if it did not. */
	u64 woke;
	s32 pid;
	/* enum fp_occupant */
	u32 occupant;
	/* How often the occupant slept soon after it woke somebody, up to FP_HANDOFF_TRUST. */
	u32 handoffs;
	/* How often this CPU was kicked in the window of time that `window` counts. */
	u32 kicks;
	u64 window;
	/* When this CPU was last kicked. */
	u64 kicked;
	/* Since when the task waits that the next switch of this CPU should serve; 0 for none. */
	u64 wanted_since;
	s32 wanted;
	/* Nonzero if the occupant is of low weight: SCHED_IDLE, or nice. */
	u32 light;
	/* When a wake-up that this CPU saw, and that found no CPU, is worth another try. */
	u64 retry_at;
	/* The task that was wanted when the scheduler process began here, and since when it waits. */
	u64 decided_since;
	s32 decided_for;
	u32 unused0;
	u64 unused[4];
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
	/* The CPU that was kicked for its last wake-up, or that its waker gives up; -1 for none. */
	s32 kicked_cpu;
	s32 tgid;
	s32 last_cpu;
	/* Who woke it last, or ran where an interrupt did. */
	s32 waker;
	/* SCHED_ policy and nice value. */
	u16 policy;
	s8 nice;
	/* As a waker: how often it slept soon afterwards, up to FP_HANDOFF_TRUST. */
	u8 handoffs;
	/* Nonzero from wake-up until it runs. */
	u8 waiting;
	/* Nonzero if its last waker was trusted to hand its CPU over. */
	u8 handed_off;
	u16 unused0;
	u32 unused1;
};

/* What user space thinks of a task. Written by user space, read by the fast path. */
struct fp_hint {
	s32 pid;
	/* enum fp_occupant */
	u32 tier;
	/* When user space last received it, and sent its decision. */
	u64 received;
	u64 sent;
	u64 unused;
};

/* One cache line. Written by user space when something changes. */
struct fp_settings {
	/* A batch task that has run less is not interrupted for another one. */
	u64 preempt_thresh_ns;
	/* Nonzero during a burst of wake-ups: the threshold counts as zero. */
	u32 burst;
	/* Nonzero to kick at all. */
	u32 preempt;
	/* Nonzero to trust wakers that have always slept soon afterwards. */
	u32 hand_off;
	/* The most urgent task that waits for a decision: enum fp_occupant, FP_IDLE for none. */
	u32 waiting;
	u64 unused[5];
};

/* For whom user space decided last, of those above batch. Written by user space. */
struct fp_round {
	/* How many there have been; number n is at n modulo FP_ROUND. */
	u32 decided;
	s32 pids[FP_ROUND];
};

/* What is counted one by one. */
enum fp_event {
	/* Wake-ups that came to user space, and what was done about them: a CPU was interrupted, */
	FP_WAKEUPS,
	FP_KICKS,
	/* nobody was because the waker is trusted to sleep, or because all run something better. */
	FP_HANDED_OFF,
	FP_NO_VICTIM,
	/* CPUs passed over because they were interrupted a moment ago, or too often. */
	FP_LIMITED,
	/* Kicks because a switch served somebody less urgent than the one it was made for. */
	FP_MISSED,
	/* Kicks because a task that woke up still waited after a while. */
	FP_AGAIN,
	/* Kicks because a task outlived its slice while somebody waited. */
	FP_OUTLIVED,
	/* Kicks for a kernel thread that is bound to the CPU. */
	FP_BOUND,
	/* Kicks for a task of the highest tier that lost its CPU. */
	FP_REQUEUED,
	/* Kicks that user space asked for. */
	FP_ASKED,
	/* Times a timer fired. */
	FP_PATROLS,
	/* Records in use by another writer: the update was dropped. */
	FP_CONTENDED,
	/* News that user space was not told, because it had not read the earlier ones. */
	FP_UNTOLD,
	FP_EVENTS,
};

/* One row per CPU, summed by user space. Written by the fast path, each row on its own CPU. */
struct fp_counters {
	/* Wake-up to running, by tier; edges in records.bpf.h. */
	u64 wake_latency[FP_TIERS][FP_BUCKETS];
	u64 sleep[FP_SLEEP_BUCKETS];
	/* Runs on the L2 cache the task ran on before, and on another, by tier. */
	u64 l2_hits[FP_TIERS];
	u64 l2_misses[FP_TIERS];
	/* Wake-up to running once more, and from decision to running, in fine buckets. */
	u64 wait[FP_TIERS][FP_FINE_BUCKETS];
	u64 start[FP_FINE_BUCKETS];
	u64 events[FP_EVENTS];
};

/* What became of a task. */
enum fp_news_kind {
	/* It runs another program now. */
	FP_EXEC,
	/* It is gone. */
	FP_EXIT,
};

struct fp_news {
	s32 pid;
	/* enum fp_news_kind */
	u32 kind;
};

/* Argument of the fp_kick program. */
struct fp_kick_arg {
	s32 cpu;
};

#endif
