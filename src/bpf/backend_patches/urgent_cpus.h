/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An urgent task wakes up on a slow CPU while a fast one idles.
 *
 * Symptom: on a machine with fast and slow CPUs a frame is late although nothing else runs.
 *
 * Cause: to the kernel's choice of an idle CPU all CPUs are alike, but for caches and cores.
 *
 * Fix: user space says which CPUs tasks above Batch prefer. An idle one of these is looked for
 * first. Kernels before 6.17 cannot look among some CPUs only, and ignore it.
 *
 * How to see it: VM scenario `urgent-cpus`.
 *
 * Upstream: the backend's is_cpu_faster() follows the waker, which need not be fast; nothing is
 * reported yet.
 */
#ifndef __PATCH_URGENT_CPUS_H
#define __PATCH_URGENT_CPUS_H

struct bpf_cpumask *bpf_cpumask_create(void) __ksym;
void bpf_cpumask_release(struct bpf_cpumask *cpumask) __ksym;
void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *cpumask) __ksym;

struct patch_urgent {
	struct bpf_cpumask __kptr *cpus;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct patch_urgent);
} patch_urgents SEC(".maps");

/* The CPUs, in words of 64. User space writes them before it runs the program below. */
u64 patch_urgent_words[PATCH_GROUPS];
/* Whether there are any. */
static u32 patch_has_urgent;

/* From now on urgent tasks prefer the CPUs that user space has written. */
SEC("syscall")
int patch_prefer_urgent(void *unused)
{
	struct patch_urgent *urgent;
	struct bpf_cpumask *cpus;
	u32 key = 0, count = 0;
	s32 cpu;

	urgent = bpf_map_lookup_elem(&patch_urgents, &key);
	cpus = urgent ? bpf_cpumask_create() : NULL;
	if (!cpus)
		return -ENOMEM;
	bpf_for(cpu, 0, scx_bpf_nr_cpu_ids()) {
		if (!(patch_urgent_words[patch_group(cpu)] & patch_bit(cpu)))
			continue;
		bpf_cpumask_set_cpu(cpu, cpus);
		count++;
	}
	cpus = bpf_kptr_xchg(&urgent->cpus, cpus);
	if (cpus)
		bpf_cpumask_release(cpus);
	patch_has_urgent = count;
	return 0;
}

/*
 * For so long a task counts as Batch after its last message or used-up slice, in units of 2^20 ns:
 * 262 ms, about the life of an order.
 */
#define PATCH_BATCH_TIME 250

/*
 * Whether the task is Batch. One that has found an idle CPU at each wakeup since the time above has
 * also slept before the end of each slice, so it runs briefly whatever user space said of it.
 */
static __always_inline bool patch_is_batch(struct task_struct *p)
{
	const struct order_slot *slot = order_slot_of(p->pid);

	return slot->tier == FP_BATCH && order_is_owner(slot, p) &&
	       order_note_time() - slot->noted < PATCH_BATCH_TIME;
}

/*
 * An idle CPU among those that urgent tasks prefer; -EBUSY if there is none, or if the task is
 * Batch.
 */
__noinline s32 patch_idle_urgent(struct task_struct *p __arg_trusted, s32 prev_cpu, u64 wake_flags)
{
	struct patch_urgent *urgent;
	struct bpf_cpumask *cpus;
	s32 cpu = -EBUSY;
	u32 key = 0;

	urgent = bpf_map_lookup_elem(&patch_urgents, &key);
	if (!urgent || patch_is_batch(p))
		return cpu;
	bpf_rcu_read_lock();
	cpus = urgent->cpus;
	if (cpus)
		cpu = scx_bpf_select_cpu_and(p, prev_cpu, wake_flags, cast_mask(cpus), 0);
	bpf_rcu_read_unlock();
	return cpu;
}

#endif
