/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The contract between the fast path (fast_path.bpf.c) and the scheduler in user space.
 *
 * Both sides map the same arrays, so a read costs no system call. Every field has one writer, named
 * here. All times are CLOCK_MONOTONIC in nanoseconds.
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
typedef long long s64;
#endif

enum fp_limits {
	/* Highest number of CPUs, as in the backend. */
	FP_CPUS = 1024,
	/*
	 * Task records. Pids that are equal modulo FP_SETS share a set of FP_WAYS records, FP_SETS
	 * apart. A task that finds its set full takes the record of the task that has done nothing
	 * for longest. With 10,000 tasks one in 3,000 finds it full, with 32,768 one in 26.
	 */
	FP_TASKS = 65536,
	FP_WAYS = 4,
	FP_SETS = FP_TASKS / FP_WAYS,
	/* CPUs that a search for a victim looks at: the cost of a wakeup is bounded. */
	FP_SCAN = 64,
	/* CPUs in a group: a mask has a word for each. */
	FP_GROUP = 64,
	FP_GROUPS = FP_CPUS / FP_GROUP,
	/* The group of a task that may use all CPUs. */
	FP_ALL_GROUPS = 65535,
	/* Tiers, and buckets of a wakeup latency histogram; the last bucket has no upper edge. */
	FP_TIERS = 3,
	FP_BUCKETS = 12,
	/* Buckets of the histogram of sleep lengths; the last bucket has no upper edge. */
	FP_SLEEP_BUCKETS = 4,
	/* Buckets of the fine histograms, four to a doubling; crates/engine/src/fine.rs. */
	FP_FINE_BUCKETS = 90,
	/*
	 * A waker that slept soon after this many wakeups in a row is trusted to sleep soon again.
	 * Later versions of PANDEMONIUM use eight too.
	 */
	FP_HANDOFF_TRUST = 8,
	/* Waiting tasks that the timer of one CPU checks; a power of two. */
	FP_WAITERS = 8,
	/*
	 * A task that keeps a CPU from its tasks has them enqueued again so often at most, after
	 * FP_RECHECK_NS and then twice as late each time. Linux 7.1 and later eject a scheduler
	 * that does this 257 times to a task that does not run, and a task that is bound to the CPU
	 * may get it now and then and still wait.
	 */
	FP_REENQUEUES = 10,
	/* Checks of one wait: 2 ms for a decision, two short slices; 15 ms for a turn, some ticks. */
	FP_RECHECKS = 20,
	/*
	 * Kicks of one CPU in 2^20 ns, about a millisecond: at 10 us each, 10 % of it. With a limit
	 * for each second, a load of many wakeups would use it up in the first half of the second,
	 * and the wakeups of the second half would wait for the tick.
	 */
	FP_KICKS_PER_WINDOW = 10,
	FP_WINDOW_BITS = 20,
	/*
	 * A LatCritical task passes tasks of the shared DSQ that are due if there are more for
	 * each CPU.
	 */
	FP_CROWD = 8,
	/* Tasks that wait for their turn are checked together, at multiples of 2^19 ns. */
	FP_TURN_BITS = 19,
};

/* Times in nanoseconds. */
enum fp_times {
	/* The least time between two kicks of one CPU. */
	FP_KICK_INTERVAL_NS = 50 * 1000,
	/*
	 * A waker that sleeps within this time has handed its CPU over. A decision of user space
	 * after a kick takes about as long, so waiting for the waker's CPU costs no more.
	 */
	FP_HANDOFF_NS = 100 * 1000,
	/* The least time between two kicks of a CPU outside the domain for an idle CPU inside. */
	FP_RETURN_INTERVAL_NS = 1000 * 1000,
	/*
	 * A task that waits for a decision is checked so often. A decision of user space takes some
	 * 20 us, and a few of them come first.
	 */
	FP_RECHECK_NS = 100 * 1000,
	/*
	 * The same for a task that waits for its turn: behind a task of its tier, or for the CPU
	 * that its waker hands over.
	 */
	FP_TURN_NS = 500 * 1000,
	/* After a sleep of this length user space takes no wakee for Batch: SLEEP_LONG. */
	FP_SLEEP_LONG_NS = 128 * 1000 * 1000,
	/* So long a CPU that has begun to run a task that exits is not kicked. Chosen. */
	FP_ENDING_NS = 1000 * 1000,
	/* The shortest time for which a timer is armed. */
	FP_SOON_NS = 20 * 1000,
	/*
	 * Slices below LatCritical end early if a turn of all waiting tasks would take longer than
	 * this: the kernel ejects a scheduler that leaves a task waiting for 5 s.
	 */
	FP_CROWD_TURN_NS = 1000 * 1000 * 1000,
	/* But not before this: a switch costs some 10 us. */
	FP_CROWD_SLICE_MIN_NS = 200 * 1000,
	/*
	 * A LatCritical task passes them by so much for each task beyond FP_CROWD: the longest
	 * slice above Batch.
	 */
	FP_CROWD_LEAD_NS = 1000 * 1000,
	/* The slice while no decision comes: one tick at HZ=250, which is what ends it. */
	FP_DEFAULT_SLICE_NS = 4 * 1000 * 1000,
	/* The longest from one turn of a task of low weight to the next meanwhile. */
	FP_PERIOD_MAX_NS = 500 * 1000 * 1000,
	/* The least that counts as the mean length of a turn of all tasks. */
	FP_MEAN_TURN_MIN_NS = 500 * 1000,
	/*
	 * A timer that is overdue for so long is taken for one that could not be started. An
	 * interrupt is rarely late by a tick, and to start a timer twice does no harm.
	 */
	FP_OVERDUE_NS = 10 * 1000 * 1000,
};

/* What a CPU runs, the least urgent first. */
enum fp_occupant {
	FP_IDLE = 0,
	FP_BATCH = 1,
	FP_INTERACTIVE = 2,
	FP_LAT_CRITICAL = 3,
	/* The scheduler process, or a task of another scheduling class: never a victim. */
	FP_FOREIGN = 4,
	/* Nothing: the CPU is offline. */
	FP_OFFLINE = 5,
};

/* One per CPU, one cache line. Written by the fast path, but for two fields. */
struct fp_cpu {
	/* When the running task began to run, and its slice. */
	u64 since;
	u64 slice;
	/* When the running task last woke a task in this run interval; 0 if it did not. */
	u64 woke;
	s32 pid;
	/* enum fp_occupant */
	u32 occupant;
	/* Wakeups in a row after which the running task slept soon, up to FP_HANDOFF_TRUST. */
	u16 handoffs;
	/* Its second-level cache. Written by user space, again when CPUs have come or gone. */
	u16 l2;
	/* Kicks of this CPU in the window of time whose number is `window`. */
	u32 kicks;
	u64 window;
	/* When this CPU was last kicked. */
	u64 kicked;
	/* Nonzero if the running task is a low-weight task: SCHED_IDLE, or nice above 0. */
	u16 low_weight;
	/* Nonzero if the CPU is offline. Written by user space. */
	u16 offline;
	/* Nonzero if `slice` is less than the task was given: crowd_slice() of rules.h. */
	u16 crowded;
	/* How often its tasks were enqueued again since it last ran none of a higher class. */
	u16 reenqueued;
};

/* One per task, two cache lines. Written by the fast path. */
struct fp_task {
	/* Odd while the record is being written. */
	u32 seq;
	/* The owner. The start time tells whether the kernel has reused the pid. */
	s32 pid;
	u64 start_time;
	/* Counts since the record got this owner. */
	u64 wakeups;
	u64 voluntary;
	u64 involuntary;
	/* CPU time since the task was forked. */
	u64 cpu_ns;
	/* When it woke last, began to run last, and stopped last. */
	u64 woken;
	u64 started;
	u64 stopped;
	/* Length of its last sleep, and of its last run interval. */
	u64 slept_ns;
	u64 run_interval_ns;
	/* Allowed CPUs of the group `allowed_group`. */
	u64 allowed;
	/* PF_ flags. */
	u32 flags;
	/* The CPU that was kicked for its last wakeup, or that its waker hands over; or -1. */
	s32 kicked_cpu;
	s32 tgid;
	s32 last_cpu;
	/* Its last waker: the task that ran where it was woken, perhaps by an interrupt. */
	s32 waker;
	/* SCHED_ policy and nice value. */
	u16 policy;
	s8 nice;
	/* Its wakeups of other tasks in a row after which it slept soon, up to FP_HANDOFF_TRUST. */
	u8 handoffs;
	/* Nonzero from its wakeup until it runs. */
	u8 waiting;
	/* Nonzero if its last waker was trusted to hand over its CPU. */
	u8 handed_off;
	/* The first group of 64 CPUs with an allowed one, or FP_ALL_GROUPS. */
	u16 allowed_group;
	/* Its real user, as of its first record or its last exec. */
	u32 user;
};

/* How user space classifies a task. Written by user space, read by the fast path. */
struct fp_hint {
	s32 pid;
	/* enum fp_occupant */
	u32 tier;
	/* When user space last received a message about it, and last sent a decision. */
	u64 received;
	u64 sent;
	u64 unused;
};

/* One cache line. Written by user space when something changes. */
struct fp_settings {
	/* A Batch task that has run for less than this is not preempted by another Batch task. */
	u64 preempt_thresh_ns;
	/* Nonzero during a burst of wakeups: the threshold counts as zero. */
	u32 burst;
	/* Zero switches all kicks off. */
	u32 preempt;
	/* Nonzero to trust wakers to hand over their CPU: FP_HANDOFF_TRUST. */
	u32 hand_off;
	/* The highest tier that waits for a decision: enum fp_occupant, FP_IDLE for none. */
	u32 waiting;
	/* The longest slice of a Batch task. */
	u64 batch_slice_ns;
	/* Nonzero to wake an idle CPU when the scheduler process leaves while tasks wait. */
	u32 wakes_idle;
	/* Tasks that user space holds, in whole steps of 64: they are in no DSQ. */
	u32 nr_waiting;
	/* CPUs that are online. */
	u32 nr_online;
	u32 unused[5];
};

/* Counted events; src/fast_path_counters.rs has the same order. */
enum fp_event {
	/* Wakeups of tasks that were queued to user space. */
	FP_WAKEUPS,
	/* Of these: a CPU was kicked, */
	FP_KICKS,
	/* none was, because the waker is trusted to hand over its CPU, */
	FP_HANDED_OFF,
	/* none was, because every CPU runs a task that does not give way. */
	FP_NO_VICTIM,
	/* CPUs passed over because they were kicked too recently or too often. */
	FP_LIMITED,
	/* Idle CPUs woken because tasks wait when the scheduler process leaves its CPU. */
	FP_WOKEN_IDLE,
	/* Kicks by a timer for a task that still waits. */
	FP_RECHECKED,
	/* Kicks by a timer of a task that has used up its slice while another task waits. */
	FP_SLICE_KICKS,
	/* Kicks for a kernel thread that is bound to the CPU. */
	FP_BOUND,
	/* Kicks for a task above Batch that lost its CPU. */
	FP_REQUEUED,
	/* Kicks that user space asked for. */
	FP_ASKED,
	/* How often the tasks of a CPU that a higher scheduling class keeps were enqueued again. */
	FP_REENQUEUED,
	/* Calls of the timer callback. */
	FP_TIMERS,
	/* Updates dropped because another CPU was writing the same record. */
	FP_CONTENDED,
	/* Records taken from a task that still lives. */
	FP_STOLEN,
	/* News dropped because the ring was full. */
	FP_NEWS_DROPPED,
	FP_EVENTS,
};

/* One row per CPU, written by the fast path on that CPU. User space adds them up. */
struct fp_counters {
	/* From wakeup to running, by tier; edges in records.bpf.h. */
	u64 wake_latency[FP_TIERS][FP_BUCKETS];
	u64 sleep[FP_SLEEP_BUCKETS];
	/* Run intervals on the L2 cache of the previous one, and on another, by tier. */
	u64 l2_hits[FP_TIERS];
	u64 l2_misses[FP_TIERS];
	/* From wakeup to running, and from decision to running, in fine buckets. */
	u64 wait[FP_TIERS][FP_FINE_BUCKETS];
	u64 start[FP_FINE_BUCKETS];
	u64 events[FP_EVENTS];
};

/* What happened to a task. */
enum fp_news_kind {
	/* It has executed another program. */
	FP_EXEC,
	/* It has exited. */
	FP_EXIT,
};

/* A message to user space that needs no decision. */
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
