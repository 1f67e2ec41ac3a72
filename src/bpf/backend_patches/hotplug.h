/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Each change of the CPUs unloads the scheduler.
 *
 * Symptom: a CPU goes offline beside many tasks, and a wakeup waits for more than 200 ms.
 *
 * Cause: the kernel ejects a scheduler that has no ops.cpu_online and ops.cpu_offline, and asks it
 * to start again. An unload and a load each stop all tasks for a moment, and in between the new
 * process competes with the load for the CPUs that are left.
 *
 * Fix: both callbacks count the CPUs that are online, and the tasks in the DSQ of a CPU that goes
 * move to the shared one. The kernel calls it after an RCU grace period: from then on each insert
 * sees that the CPU is not active (offline_cpu.h). User space reads the caches of a CPU that comes.
 * A start is still needed with a domain, which is fixed; if the user asks for one, for a CPU that
 * was offline at the load; and on kernels before 7.0, of which 6.12 warns in task_non_contending()
 * whenever a CPU goes offline while a scheduler stays loaded.
 *
 * How to see it: VM scenarios `hotplug`, `hotplug-100` and `cpu-comes`.
 *
 * Upstream: none. To start again is the simplest answer that is right.
 */
#ifndef __PATCH_HOTPLUG_H
#define __PATCH_HOTPLUG_H

/* The CPUs that were offline at the load. */
static u64 patch_offline_at_load[PATCH_GROUPS];

/* Nonzero if the user asks for a domain, which perhaps has all CPUs. User space writes it. */
u32 patch_wants_domain;

/*
 * Notes the CPUs that are offline at the load. The kernel holds the CPUs as they are until it calls
 * the callbacks below.
 */
static __always_inline void patch_note_offline(const struct cpumask *online)
{
	s32 cpu;

	bpf_for(cpu, 0, scx_bpf_nr_cpu_ids())
		if (!bpf_cpumask_test_cpu(cpu, online))
			patch_offline[patch_group(cpu)] |= patch_bit(cpu);
	__builtin_memcpy(patch_offline_at_load, patch_offline, sizeof(patch_offline));
}

/* Counts a CPU that goes or comes, once if the kernel says so twice. */
static __always_inline void patch_count_cpu(s32 cpu, bool goes)
{
	if (goes == patch_is_offline(cpu))
		return;
	patch_offline[patch_group(cpu)] ^= patch_bit(cpu);
	nr_online_cpus += goes ? -1 : 1;
}

static __always_inline void patch_ask_for_restart(void)
{
	scx_bpf_exit(SCX_ECODE_RSN_HOTPLUG | SCX_ECODE_ACT_RESTART, "a CPU went on- or offline");
}

/* Without a domain, where the kernel has the deadline server of sched_ext: from 7.0 on. */
static __always_inline bool patch_stays_loaded(void)
{
	return !patch_has_domain && bpf_core_field_exists(((struct rq *)0)->ext_server);
}

/* The kernel does not call this callback and the next one at the same time. */
void BPF_STRUCT_OPS(patch_cpu_offline, s32 cpu)
{
	struct task_struct *p;

	if (!patch_stays_loaded()) {
		patch_ask_for_restart();
		return;
	}
	patch_count_cpu(cpu, true);
	bpf_for_each(scx_dsq, p, cpu, 0)
		scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, BACKEND_SHARED_DSQ, 0);
	patch_kick_all(SCX_KICK_IDLE);
}

/* Whether the domain would be the same if the CPU had been online at the load. */
static __always_inline bool patch_keeps_domain(s32 cpu)
{
	return !patch_wants_domain ||
	       !(patch_offline_at_load[patch_group(cpu)] & patch_bit(cpu));
}

void BPF_STRUCT_OPS(patch_cpu_online, s32 cpu)
{
	if (patch_stays_loaded() && patch_keeps_domain(cpu))
		patch_count_cpu(cpu, false);
	else
		patch_ask_for_restart();
}

#endif
