/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fast path's memory: records of tasks and CPUs, and counters.
 */
#ifndef __RECORDS_BPF_H
#define __RECORDS_BPF_H

/* Kernel ABI: enum scx_ent_flags, include/linux/sched/ext.h. */
#define TASK_QUEUED_FLAG (1 << 0)
/* kernel/sched: nice 0 as static priority. */
#define NICE_0_PRIO 120
/* The same for nice 19, the lowest weight. */
#define NICE_19_PRIO 139
/* uapi/linux/sched.h */
#define SCHED_IDLE_CLASS 5
/* include/linux/sched.h, TASK_DEAD: the state of a task that does not run again. */
#define TASK_DEAD_STATE 0x80
/* The same file, PF_EXITING: the flag of a task that exits. */
#define TASK_EXITING_FLAG 0x4

/* User space sets these before it loads the programs. */
const volatile u32 scheduler_tgid;
const volatile u32 nr_cpus = 1;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FP_CPUS);
	__type(key, u32);
	__type(value, struct fp_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FP_TASKS);
	__type(key, u32);
	__type(value, struct fp_task);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FP_TASKS);
	__type(key, u32);
	__type(value, struct fp_hint);
} hints SEC(".maps");

/* One row per CPU. Not a per-CPU map, because user space cannot map one into its memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FP_CPUS);
	__type(key, u32);
	__type(value, struct fp_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct fp_settings);
} settings SEC(".maps");

/* Room for 16384 news: five seconds of a fork loop on a small machine. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} news SEC(".maps");

/* Upper edges of the latency buckets in microseconds; PANDEMONIUM 5.4.13. */
static const u32 latency_edges_us[FP_BUCKETS - 1] = {
	10, 25, 50, 100, 250, 500, 1000, 2000, 5000, 10000, 20000,
};

static struct fp_counters *my_counters(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&counters, &cpu);
}

static void count(enum fp_event event)
{
	struct fp_counters *c = my_counters();

	if (c)
		c->events[event]++;
}

static struct fp_cpu *cpu_record(u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

static struct fp_task *task_at(u32 key)
{
	return bpf_map_lookup_elem(&tasks, &key);
}

static struct fp_hint *hint_at(u32 key)
{
	return bpf_map_lookup_elem(&hints, &key);
}

#define for_each_way(key, pid)                                                                     \
	for (u32 key = (u32)(pid) % FP_SETS; key < FP_TASKS; key += FP_SETS)

/* The task's record; NULL if it has none. */
static struct fp_task *task_record(s32 pid)
{
	for_each_way(key, pid) {
		struct fp_task *t = task_at(key);

		if (t && t->pid == pid)
			return t;
	}
	return NULL;
}

/* The hint about the task; NULL if there is none. */
static struct fp_hint *hint_for(s32 pid)
{
	for_each_way(key, pid) {
		struct fp_hint *h = hint_at(key);

		if (h && h->pid == pid)
			return h;
	}
	return NULL;
}

static struct fp_settings *the_settings(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&settings, &key);
}

/* The tier by the hint about a task; Interactive if there is none. */
static u32 tier_by(const struct fp_hint *h)
{
	return h && h->tier >= FP_BATCH && h->tier <= FP_LAT_CRITICAL ? h->tier : FP_INTERACTIVE;
}

/*
 * The tier that user space has given the task; Interactive if it has not received the task yet.
 *
 * Not static, like others below: the verifier then checks the function once. It would check a
 * static function on each path that calls it, and the number of paths would multiply.
 */
__noinline u32 tier_of(s32 pid)
{
	return tier_by(hint_for(pid));
}

/*
 * The tier of a wakee. User space has not seen yet how long it slept, and will take it for
 * Interactive at least after a long sleep.
 */
static u32 tier_of_wakee(s32 pid, u64 now)
{
	const struct fp_task *t;
	u32 tier = tier_of(pid);

	if (tier != FP_BATCH)
		return tier;
	t = task_record(pid);
	return t && t->stopped && now - t->stopped >= FP_SLEEP_LONG_NS ? FP_INTERACTIVE : tier;
}

/* A new task is Interactive, but no more urgent than its parent. */
static u32 tier_of_new_task(s32 parent)
{
	u32 tier = tier_of(parent);

	return tier < FP_INTERACTIVE ? tier : FP_INTERACTIVE;
}

/* Whether it is a low-weight task: SCHED_IDLE, or nice above zero. */
static bool has_low_weight(const struct task_struct *p)
{
	return p->policy == SCHED_IDLE_CLASS || p->static_prio > NICE_0_PRIO;
}

/* Whether no running task is preempted for the task. */
static bool never_preempts(const struct task_struct *p)
{
	return p->policy == SCHED_IDLE_CLASS || p->static_prio >= NICE_19_PRIO;
}

/* Whether a task that woke up or lost its CPU at `since` has not run since. */
static bool still_waits(s32 pid, u64 since)
{
	struct fp_task *t = task_record(pid);

	if (!t)
		return false;
	return t->waiting ? t->woken == since : t->stopped == since && t->started < since;
}

/* Forgets how the task has behaved. */
static void reset_behaviour(struct fp_task *t)
{
	t->wakeups = t->voluntary = t->involuntary = 0;
	t->slept_ns = t->run_interval_ns = 0;
	t->handoffs = 0;
}

/*
 * The real user, in the numbers of the first user namespace. The effective one would be root's for
 * each setuid program, whose name the caller chooses by a link.
 */
static u32 user_of(struct task_struct *p)
{
	return p->real_cred->uid.val;
}

/* When the record's owner last woke up, began to run or stopped. */
static u64 last_seen(const struct fp_task *t)
{
	u64 ran = t->started > t->stopped ? t->started : t->stopped;

	return t->woken > ran ? t->woken : ran;
}

/*
 * The record for a task that has none: an empty one of its set, or that of the task that has done
 * nothing for longest. Returns its key. Not static: few tasks need it.
 */
__noinline u32 choose_record(s32 pid)
{
	u32 best = (u32)pid % FP_SETS;
	u64 oldest = -1ULL;

	for_each_way(key, pid) {
		struct fp_task *t = task_at(key);

		if (!t)
			continue;
		if (!t->pid)
			return key;
		if (last_seen(t) >= oldest)
			continue;
		oldest = last_seen(t);
		best = key;
	}
	return best;
}

/* Empties the record for its new owner. */
static void claim(struct fp_task *t, struct task_struct *p)
{
	if (t->pid && t->pid != p->pid)
		count(FP_STOLEN);
	t->pid = p->pid;
	t->start_time = p->start_time;
	t->woken = t->started = t->stopped = 0;
	t->waiting = t->handed_off = 0;
	t->waker = 0;
	t->kicked_cpu = -1;
	t->last_cpu = -1;
	t->user = user_of(p);
	reset_behaviour(t);
}

/*
 * Begins to write the task's record. A task can be written about on two CPUs at once: the second
 * writer drops its update and counts that; the policy does without it.
 */
static struct fp_task *open_record(struct task_struct *p)
{
	struct fp_task *t = task_record(p->pid);
	u32 seq;

	if (!t)
		t = task_at(choose_record(p->pid));
	if (!t)
		return NULL;
	seq = t->seq;
	if ((seq & 1) || __sync_val_compare_and_swap(&t->seq, seq, seq + 1) != seq) {
		count(FP_CONTENDED);
		return NULL;
	}
	if (t->pid != p->pid || t->start_time != p->start_time)
		claim(t, p);
	return t;
}

static void close_record(struct fp_task *t)
{
	__sync_fetch_and_add(&t->seq, 1);
}

/* Sends news to user space without waking it up: it reads them at the start of a round. */
static void send_news(s32 pid, enum fp_news_kind kind)
{
	struct fp_news *one = bpf_ringbuf_reserve(&news, sizeof(*one), 0);

	if (!one) {
		count(FP_NEWS_DROPPED);
		return;
	}
	one->pid = pid;
	one->kind = kind;
	bpf_ringbuf_submit(one, BPF_RB_NO_WAKEUP);
}

/* The allowed CPUs on a machine with more than one group of CPUs. */
__noinline u32 describe_allowed(struct fp_task *t __arg_nonnull,
				struct task_struct *p __arg_trusted)
{
	u64 word = 0, mask = 0;
	s32 group;

	t->allowed = ~0ULL;
	t->allowed_group = FP_ALL_GROUPS;
	if (p->nr_cpus_allowed >= nr_cpus)
		return 0;
	/* As a number: the verifier admits no variable offset from a pointer to a structure. */
	if (bpf_probe_read_kernel(&mask, sizeof(mask), &p->cpus_ptr))
		return 0;
	bpf_for(group, 0, (nr_cpus + FP_GROUP - 1) / FP_GROUP) {
		const void *at = (const void *)(mask + group * sizeof(word));

		if (bpf_probe_read_kernel(&word, sizeof(word), at) || !word)
			continue;
		t->allowed = word;
		t->allowed_group = group;
		break;
	}
	return 0;
}

/* Copies what belongs to the task rather than to the event. */
static void describe(struct fp_task *t, struct task_struct *p)
{
	t->flags = p->flags;
	t->tgid = p->tgid;
	t->policy = p->policy;
	t->nice = p->static_prio - NICE_0_PRIO;
	t->cpu_ns = p->se.sum_exec_runtime;
	if (nr_cpus > FP_GROUP)
		describe_allowed(t, p);
	else
		t->allowed = p->cpus_mask.bits[0];
}

/* The bucket of a fine histogram; crates/engine/src/fine.rs states the rule. */
__noinline u32 fine_bucket(u64 ns)
{
	u32 octave = 0, v = ns;

	if (ns < 1 << 10)
		return 0;
	if (ns >> 32)
		return FP_FINE_BUCKETS - 1;
	if (v >> 16) {
		octave += 16;
		v >>= 16;
	}
	if (v >> 8) {
		octave += 8;
		v >>= 8;
	}
	if (v >> 4) {
		octave += 4;
		v >>= 4;
	}
	if (v >> 2) {
		octave += 2;
		v >>= 2;
	}
	octave += v >> 1;
	return 1 + (octave - 10) * 4 + (ns >> (octave - 2) & 3);
}

/* The bucket of a latency histogram. */
__noinline u32 coarse_bucket(u64 ns)
{
	u32 us = ns / 1000, bucket = 0, i;

	for (i = 0; i < FP_BUCKETS - 1; i++)
		if (us > latency_edges_us[i])
			bucket = i + 1;
	return bucket;
}

/* Counts how long a task has waited that begins to run. */
__noinline u32 count_wait(u32 tier, u64 ns)
{
	u32 bucket = coarse_bucket(ns), fine = fine_bucket(ns);
	struct fp_counters *c = my_counters();

	tier -= FP_BATCH;
	if (!c || tier >= FP_TIERS || bucket >= FP_BUCKETS || fine >= FP_FINE_BUCKETS)
		return 0;
	c->wake_latency[tier][bucket]++;
	c->wait[tier][fine]++;
	return 0;
}

/* Counts the time from a decision until its task runs. */
static void count_start(struct fp_counters *c, u64 ns)
{
	u32 fine = fine_bucket(ns);

	if (fine < FP_FINE_BUCKETS)
		c->start[fine]++;
}

/* Counts whether the task runs on the L2 cache of its previous run interval. */
static void count_cache(struct fp_counters *c, u32 tier, u32 last, u32 cpu)
{
	const struct fp_cpu *before = cpu_record(last), *here = cpu_record(cpu);

	tier -= FP_BATCH;
	if (!before || !here || tier >= FP_TIERS)
		return;
	if (before->l2 == here->l2)
		c->l2_hits[tier]++;
	else
		c->l2_misses[tier]++;
}

static void count_sleep(struct fp_counters *c, u64 ns)
{
	u32 bucket = 0;

	if (ns > 1000 * 1000)
		bucket = 1;
	if (ns > 10 * 1000 * 1000)
		bucket = 2;
	if (ns > 100 * 1000 * 1000)
		bucket = 3;
	c->sleep[bucket]++;
}

#endif
