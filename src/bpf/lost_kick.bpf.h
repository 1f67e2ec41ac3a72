/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lost kicks.
 *
 * A kicked CPU looks for the scheduler process in its DSQ. While the process is leaving another
 * CPU, it is in no DSQ yet, and that other CPU has already looked for work. Both CPUs then run
 * other tasks, and no CPU looks again before the next tick. The CPU that switches second can detect
 * this: the kicked CPU, because the process does not run; or the CPU that the process leaves,
 * because the kicked CPU has marked itself. Both write first and then read, with full barriers, so
 * at least one of them sees the other.
 *
 * A CPU without a kick that runs out of work has the same race: it looks for the process, which
 * runs elsewhere, and goes idle while tasks wait for their decision.
 */
#ifndef __LOST_KICK_BPF_H
#define __LOST_KICK_BPF_H

/* One more than the number of the CPU on which the scheduler process runs; 0 if it does not run. */
static u32 scheduler_on;
/*
 * The CPUs to check for a lost kick when the scheduler process leaves its CPU. One bit each, for
 * the first FP_SCAN: others are not kicked.
 */
static u64 marked_cpus;

/* The task that was last queued to user space, and when. */
static s32 last_queued;
static u64 last_queued_at;

static void note_queued_to_user(s32 pid, u64 now)
{
	last_queued = pid;
	last_queued_at = now;
}

/*
 * Whether there is work for an idle CPU: in a DSQ, queued to user space, or in a message that user
 * space has not received. Messages are received in order, so the last one stands for all.
 */
static bool has_work_for(u32 cpu)
{
	struct fp_settings *s = the_settings();

	return scx_bpf_dsq_nr_queued(cpu) > 0 || scx_bpf_dsq_nr_queued(SHARED_QUEUE) > 0 ||
	       (s && s->waiting != FP_IDLE) || !was_received(last_queued, last_queued_at);
}

/* Whether the CPU runs a less urgent task than this one, which has waited since `since`. */
static bool runs_less_urgent(const struct fp_cpu *c, s32 pid, u64 since)
{
	return pid && c->occupant < tier_of(pid) && still_waits(pid, since);
}

static void repeat_kick(struct fp_cpu *c, u32 cpu, u64 now)
{
	count(FP_LOST_KICKS);
	kick(c, cpu, now);
}

/* Repeats the kick for the wanted task, unless user space has received its message by now. */
static void repeat_lost_kick(struct fp_cpu *c, s32 pid, u32 cpu, u64 now)
{
	if (c->occupant == FP_IDLE ?
		    has_work_for(cpu) :
		    runs_less_urgent(c, pid, c->wanted_since) &&
			    !was_received(pid, c->wanted_since))
		repeat_kick(c, cpu, now);
}

/*
 * Repeats the lost kicks of all CPUs. Keeps `wanted`: a kick that lands in the middle of a switch
 * is lost too, because the CPU has looked for work already, and the end of that switch detects it.
 */
static void repeat_lost_kicks(u64 now)
{
	u64 marked = __sync_lock_test_and_set(&marked_cpus, 0);
	s32 i;

	if (!marked)
		return;
	bpf_for(i, 0, scanned()) {
		struct fp_cpu *c = cpu_record(i);

		if (c && marked >> (i & (FP_SCAN - 1)) & 1)
			repeat_lost_kick(c, c->wanted, i, now);
	}
}

/* Has the CPU checked when the scheduler process leaves its own. */
static void mark(u32 cpu)
{
	if (cpu < FP_SCAN)
		__sync_fetch_and_or(&marked_cpus, 1ULL << cpu);
}

static void scheduler_begins(struct fp_cpu *c, u32 cpu)
{
	c->decided_for = c->wanted;
	c->decided_since = c->wanted_since;
	c->wanted = 0;
	__sync_lock_test_and_set(&scheduler_on, cpu + 1);
}

/*
 * The scheduler process has decided and leaves this CPU. Its kick can be lost in two ways. Another
 * CPU took the decision for this CPU from the ring, and inserted it into this CPU's DSQ when this
 * CPU had already looked there and was taking a task from another DSQ. The other CPU's kick then
 * found the process still running, and had no effect. Or the process had already read its messages
 * when this CPU was kicked.
 */
static void repeat_after_round(struct fp_cpu *c, u32 cpu, u64 now)
{
	s32 pid = c->decided_for;

	c->decided_for = 0;
	if (runs_less_urgent(c, pid, c->decided_since) &&
	    (scx_bpf_dsq_nr_queued(cpu) > 0 || !was_received(pid, c->decided_since)))
		repeat_kick(c, cpu, now);
}

static void scheduler_leaves(struct fp_cpu *c, u32 cpu, u64 now)
{
	__sync_lock_test_and_set(&scheduler_on, 0);
	repeat_after_round(c, cpu, now);
	repeat_lost_kicks(now);
}

/*
 * No CPU gave way to the task. If the scheduler process runs, it may have read its messages
 * already: the CPU that it leaves should serve the task. If it does not run, a kicked CPU that has
 * not switched yet should.
 */
static void want_from_others(s32 pid, u64 woken)
{
	u32 on = scheduler_on;
	struct fp_cpu *c = cpu_record(on - 1);
	s32 i;

	if (on && c) {
		want(c, pid, woken);
		return;
	}
	bpf_for(i, 0, scanned()) {
		c = cpu_record(i);
		if (c && is_kicked(c)) {
			want(c, pid, woken);
			return;
		}
	}
}

/*
 * The CPU was kicked for a task that waits since `since`. With empty DSQs the CPU goes on with its
 * running task, and no switch detects that the kick was lost. So if the scheduler process runs
 * elsewhere, this CPU is checked when the process leaves its own.
 */
static void expect_switch(u32 cpu, s32 pid, u64 since)
{
	struct fp_cpu *c = cpu_record(cpu);

	if (!c)
		return;
	want(c, pid, since);
	if (scheduler_on)
		mark(cpu);
}

/* The CPU has switched to another task than the scheduler process. */
static void check_lost_kick(struct fp_cpu *c, u32 cpu, u64 now)
{
	s32 wanted = c->wanted;

	if (!wanted && c->occupant != FP_IDLE)
		return;
	if (!scheduler_on) {
		c->wanted = 0;
		/*
		 * A CPU that goes idle without a kick has just looked, with the process in its DSQ.
		 */
		if (wanted)
			repeat_lost_kick(c, wanted, cpu, now);
		return;
	}
	mark(cpu);
	if (!scheduler_on)
		repeat_lost_kicks(now);
}

#endif
