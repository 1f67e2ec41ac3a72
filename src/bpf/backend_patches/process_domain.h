/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task of a process with a domain wakes up on an idle CPU outside.
 *
 * Symptom: a rule demands a domain for a process, and on a machine with idle CPUs its tasks run on
 * any of them.
 *
 * Cause: the kernel chooses an idle CPU among all that the task may use, without a message to user
 * space, which alone knows the rules.
 *
 * Fix: user space says which processes have a domain. An idle CPU is looked for inside; if there is
 * none, a task with a strict domain is queued to user space. Kernels before 6.17 cannot look among
 * some CPUs only: there each wakeup of such a task is queued to user space.
 *
 * How to see it: VM scenario `rule-domain`.
 *
 * Upstream: nothing is reported yet. The backend knows no domain.
 */
#ifndef __PATCH_PROCESS_DOMAIN_H
#define __PATCH_PROCESS_DOMAIN_H

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PATCH_PROCESSES);
	__type(key, u32);
	__type(value, struct patch_domain);
} patch_process_domains SEC(".maps");

/* How many processes have a domain. */
static u32 patch_nr_process_domains;

/* From now on the process has this domain, or none. */
SEC("syscall")
int patch_set_domain(struct patch_domain_arg *arg)
{
	u32 process = arg->process;
	struct patch_domain domain = arg->domain;
	bool had = bpf_map_lookup_elem(&patch_process_domains, &process);
	int failed;

	if (!domain.set) {
		failed = had ? bpf_map_delete_elem(&patch_process_domains, &process) : 0;
		patch_nr_process_domains -= had && !failed;
		return failed;
	}
	failed = bpf_map_update_elem(&patch_process_domains, &process, &domain, BPF_ANY);
	patch_nr_process_domains += !had && !failed;
	return failed;
}

/*
 * The domain of the task's process; the set is PATCH_SET_PRIMARY if it has none. A task that is
 * bound to one CPU has none.
 */
static __always_inline struct patch_domain patch_domain_of(const struct task_struct *p)
{
	struct patch_domain none = {};
	const struct patch_domain *found;
	u32 process;

	if (!patch_nr_process_domains || p->nr_cpus_allowed == 1)
		return none;
	process = p->tgid;
	found = bpf_map_lookup_elem(&patch_process_domains, &process);
	return found ? *found : none;
}

/* Whether the task is not to be given this CPU although it idles. */
static __always_inline bool patch_refuses(const struct task_struct *p, u32 cpu)
{
	u32 set = patch_domain_of(p).set;

	if (set != PATCH_SET_PRIMARY)
		return !patch_is_in_set(set, cpu);
	return patch_wakes_none(p);
}

/* The same for each CPU that the kernel would choose: it cannot look among some CPUs only. */
static __always_inline bool patch_refuses_all(const struct task_struct *p)
{
	return patch_domain_of(p).set || patch_wakes_none(p);
}

/*
 * An idle CPU among those that the task prefers. -EBUSY: any other one will do. -EPERM: no other
 * one will.
 */
static __always_inline s32 patch_idle_preferred(struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct patch_domain domain = patch_domain_of(p);
	s32 cpu;

	if (domain.set == PATCH_SET_PRIMARY)
		return patch_wakes_none(p) ? -EPERM : patch_idle_urgent(p, prev_cpu, wake_flags);
	cpu = patch_idle_in_set(p, prev_cpu, wake_flags, domain.set);
	return cpu < 0 && domain.strict ? -EPERM : cpu;
}

#endif
