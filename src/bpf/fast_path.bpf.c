/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fast path: what has to happen in the kernel because a round trip would come too late.
 *
 * It observes tasks and CPUs, so that the policy decides on facts, and it interrupts a CPU when a
 * task wakes up that nobody else would make room for. Which task runs next is never decided here.
 *
 *  1. sched_wakeup, sched_wakeup_new: note the wake-up; if the task went up to user space, look
 *     for a victim and kick it.
 *  2. sched_switch: note who stopped, why and after how long, and who runs now.
 *  3. fp_kick: user space asks for a kick.
 *
 * The programs run beside any scheduler; they only have to be loaded while the backend is.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "fast_path.h"

char _license[] SEC("license") = "GPL";

void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;

/* Kernel ABI: enum scx_ent_flags, include/linux/sched/ext.h. */
#define TASK_QUEUED_FLAG (1 << 0)
/* kernel/sched: nice 0 as static priority. */
#define NICE_0_PRIO 120

/* Filled in before loading. */
const volatile u32 scheduler_tgid;
const volatile u32 nr_cpus = 1;
/* SCX_KICK_PREEMPT of the running kernel; 0 makes no kicks. */
const volatile u64 kick_flags;
/* A CPU is not kicked twice within this. */
const volatile u64 kick_interval_ns = 50 * 1000;
/* L2 cache of each CPU. */
const volatile u16 l2_of[FP_CPUS];

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

/* One row a CPU. No per-CPU map: user space maps this one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FP_CPUS);
	__type(key, u32);
	__type(value, struct fp_counters);
} counters SEC(".maps");

/* Upper edges of the latency buckets in microseconds; PANDEMONIUM 5.4.13. */
static const u32 latency_edges_us[FP_BUCKETS - 1] = {
	10, 25, 50, 100, 250, 500, 1000, 2000, 5000, 10000, 20000,
};

static struct fp_counters *my_counters(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&counters, &cpu);
}

static struct fp_cpu *cpu_record(u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

/* What user space thinks of the task; a task it has not met yet counts as interactive. */
static u32 tier_of(s32 pid)
{
	u32 key = (u32)pid % FP_TASKS;
	struct fp_hint *h = bpf_map_lookup_elem(&hints, &key);

	if (h && h->pid == pid && h->tier >= FP_BATCH && h->tier <= FP_LAT_CRITICAL)
		return h->tier;
	return FP_INTERACTIVE;
}

/*
 * Begins to write the task's record, emptied if somebody else had it. Two tasks that share a
 * record can be on two CPUs at once; the second writer gives up and the fact is lost, which the
 * policy survives and the counter shows.
 */
static struct fp_task *open_record(struct task_struct *p)
{
	u32 key = (u32)p->pid % FP_TASKS, seq;
	struct fp_task *t = bpf_map_lookup_elem(&tasks, &key);
	struct fp_counters *c;

	if (!t)
		return NULL;
	seq = t->seq;
	if ((seq & 1) || __sync_val_compare_and_swap(&t->seq, seq, seq + 1) != seq) {
		c = my_counters();
		if (c)
			c->contended++;
		return NULL;
	}
	if (t->pid != p->pid || t->start_time != p->start_time) {
		t->pid = p->pid;
		t->start_time = p->start_time;
		t->wakeups = t->voluntary = t->involuntary = 0;
		t->woken = t->started = t->stopped = 0;
		t->slept_ns = t->stint_ns = 0;
		t->waiting = 0;
		t->kicked_cpu = -1;
		t->last_cpu = -1;
	}
	return t;
}

static void close_record(struct fp_task *t)
{
	__sync_fetch_and_add(&t->seq, 1);
}

/* What belongs to the task rather than to the event. */
static void describe(struct fp_task *t, struct task_struct *p)
{
	t->flags = p->flags;
	t->tgid = p->tgid;
	t->policy = p->policy;
	t->nice = p->static_prio - NICE_0_PRIO;
	t->cpu_ns = p->se.sum_exec_runtime;
	t->allowed = BPF_CORE_READ(p, cpus_mask.bits[0]);
}

static void count_latency(struct fp_counters *c, u32 tier, u64 ns)
{
	u32 us = ns / 1000, bucket = 0, i;

	for (i = 0; i < FP_BUCKETS - 1; i++)
		if (us > latency_edges_us[i])
			bucket = i + 1;
	tier -= FP_BATCH;
	if (tier < FP_TIERS && bucket < FP_BUCKETS)
		c->wake_latency[tier][bucket]++;
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

/*
 * The CPU to interrupt: of those that the task may use, the one that runs the lowest tier, and of
 * these the one that has run longest. Never one that runs the task's own tier or a higher one,
 * unless both are batch: a batch task that wakes up has slept, one that runs has not. An idle CPU
 * is taken at once. -1 if there is none.
 */
static s32 find_victim(struct task_struct *p, u32 tier, u64 now, struct fp_counters *counts)
{
	u32 start = BPF_CORE_READ(p, thread_info.cpu), lowest = FP_FOREIGN, i;
	u64 longest = 0;
	s32 victim = -1;

	for (i = 0; i < FP_SCAN && i < nr_cpus; i++) {
		u32 cpu = start + i;
		struct fp_cpu *c;
		u64 ran;

		if (cpu >= nr_cpus)
			cpu -= nr_cpus;
		c = cpu_record(cpu);
		if (!c || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		if (c->occupant > tier || (c->occupant == tier && tier != FP_BATCH))
			continue;
		if (now - c->kicked < kick_interval_ns) {
			counts->rate_limited++;
			continue;
		}
		ran = now - c->since;
		if (c->occupant < lowest || (c->occupant == lowest && ran > longest)) {
			lowest = c->occupant;
			longest = ran;
			victim = cpu;
		}
	}
	return victim;
}

static s32 kick_for(struct task_struct *p, u64 now)
{
	struct fp_counters *counts = my_counters();
	struct fp_cpu *c;
	s32 victim;

	if (!counts || !kick_flags)
		return -1;
	counts->wakeups++;
	victim = find_victim(p, tier_of(p->pid), now, counts);
	if (victim < 0) {
		counts->no_victim++;
		return -1;
	}
	c = cpu_record(victim);
	if (c)
		c->kicked = now;
	counts->kicks++;
	scx_bpf_kick_cpu(victim, kick_flags);
	return victim;
}

static int woken(struct task_struct *p)
{
	u64 now = bpf_ktime_get_ns();
	struct fp_counters *counts;
	struct fp_task *t;
	s32 victim = -1;

	if (p->tgid == scheduler_tgid)
		return 0;
	/* In the backend's hands only while it is in no queue of the kernel. */
	if ((p->scx.flags & TASK_QUEUED_FLAG) && !p->scx.dsq)
		victim = kick_for(p, now);
	t = open_record(p);
	if (!t)
		return 0;
	describe(t, p);
	t->wakeups++;
	t->woken = now;
	t->waiting = 1;
	t->kicked_cpu = victim;
	if (t->stopped) {
		t->slept_ns = now - t->stopped;
		counts = my_counters();
		if (counts)
			count_sleep(counts, t->slept_ns);
	}
	close_record(t);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(fp_wakeup, struct task_struct *p)
{
	return woken(p);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(fp_wakeup_new, struct task_struct *p)
{
	return woken(p);
}

static void stops(struct task_struct *prev, bool asleep, u64 now)
{
	struct fp_task *t = open_record(prev);

	if (!t)
		return;
	describe(t, prev);
	if (asleep)
		t->voluntary++;
	else
		t->involuntary++;
	t->stopped = now;
	if (t->started)
		t->stint_ns = now - t->started;
	close_record(t);
}

static void starts(struct task_struct *next, u32 cpu, u32 tier, u64 now)
{
	struct fp_task *t = open_record(next);
	struct fp_counters *c = my_counters();
	u32 last;

	if (!t)
		return;
	last = t->last_cpu;
	t->started = now;
	t->last_cpu = cpu;
	if (c && last < nr_cpus && last < FP_CPUS && cpu < FP_CPUS) {
		u32 row = tier - FP_BATCH;

		if (row < FP_TIERS) {
			if (l2_of[last] == l2_of[cpu])
				c->l2_hits[row]++;
			else
				c->l2_misses[row]++;
		}
	}
	if (c && t->waiting)
		count_latency(c, tier, now - t->woken);
	t->waiting = 0;
	close_record(t);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(fp_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	u32 cpu = bpf_get_smp_processor_id(), tier;
	struct fp_cpu *c = cpu_record(cpu);
	u64 now = bpf_ktime_get_ns();

	if (!c)
		return 0;
	if (prev->pid && prev->tgid != scheduler_tgid)
		stops(prev, !preempt && prev_state, now);
	c->since = now;
	c->pid = next->pid;
	if (!next->pid) {
		c->occupant = FP_IDLE;
	} else if (next->tgid == scheduler_tgid || next->prio < 100) {
		c->occupant = FP_FOREIGN;
	} else {
		tier = tier_of(next->pid);
		c->occupant = tier;
		starts(next, cpu, tier, now);
	}
	return 0;
}

SEC("syscall")
int fp_kick(struct fp_kick_arg *arg)
{
	struct fp_counters *counts = my_counters();
	struct fp_cpu *c = cpu_record(arg->cpu);

	if (!c || arg->cpu < 0 || !kick_flags)
		return -1;
	c->kicked = bpf_ktime_get_ns();
	if (counts)
		counts->asked++;
	scx_bpf_kick_cpu(arg->cpu, kick_flags);
	return 0;
}
