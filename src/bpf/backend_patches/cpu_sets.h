/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sets of CPUs by number, among which the kernel looks for an idle one. No fault of its own.
 */
#ifndef __PATCH_CPU_SETS_H
#define __PATCH_CPU_SETS_H

struct bpf_cpumask *bpf_cpumask_create(void) __ksym;
void bpf_cpumask_release(struct bpf_cpumask *cpumask) __ksym;
void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *cpumask) __ksym;

struct patch_set {
	struct bpf_cpumask __kptr *cpus;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PATCH_SETS);
	__type(key, u32);
	__type(value, struct patch_set);
} patch_sets SEC(".maps");

/* Their CPUs, in words of 64. User space writes them before it runs the program below. */
u64 patch_set_words[PATCH_SETS][PATCH_GROUPS];
/* How many CPUs each has. */
static u32 patch_set_sizes[PATCH_SETS];

static __always_inline bool patch_is_in_set(u32 set, u32 cpu)
{
	return patch_set_words[set & (PATCH_SETS - 1)][patch_group(cpu)] & patch_bit(cpu);
}

/* From now on the set has the CPUs that user space has written. */
SEC("syscall")
int patch_take_set(struct patch_set_arg *arg)
{
	struct patch_set *entry;
	struct bpf_cpumask *cpus;
	u32 set = arg->set & (PATCH_SETS - 1), count = 0;
	s32 cpu;

	entry = bpf_map_lookup_elem(&patch_sets, &set);
	cpus = entry ? bpf_cpumask_create() : NULL;
	if (!cpus)
		return -ENOMEM;
	bpf_for(cpu, 0, scx_bpf_nr_cpu_ids()) {
		if (!patch_is_in_set(set, cpu))
			continue;
		bpf_cpumask_set_cpu(cpu, cpus);
		count++;
	}
	cpus = bpf_kptr_xchg(&entry->cpus, cpus);
	if (cpus)
		bpf_cpumask_release(cpus);
	patch_set_sizes[set & (PATCH_SETS - 1)] = count;
	return 0;
}

/* An idle CPU of the set for the task; -EBUSY if there is none. */
__noinline s32 patch_idle_in_set(struct task_struct *p __arg_trusted, s32 prev_cpu, u64 wake_flags,
				 u32 set)
{
	struct patch_set *entry = bpf_map_lookup_elem(&patch_sets, &set);
	struct bpf_cpumask *cpus;
	s32 cpu = -EBUSY;

	if (!entry)
		return cpu;
	bpf_rcu_read_lock();
	cpus = entry->cpus;
	if (cpus)
		cpu = scx_bpf_select_cpu_and(p, prev_cpu, wake_flags, cast_mask(cpus), 0);
	bpf_rcu_read_unlock();
	return cpu < 0 ? -EBUSY : cpu;
}

#endif
