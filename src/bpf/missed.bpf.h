/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Kicks that came to nothing.
 *
 * A kicked CPU looks for the scheduler process in its queue. While the process is just leaving
 * another CPU it is in no queue yet, and that CPU has already looked whether there is work for it.
 * So both take what else there is, and nobody looks again before the next tick. Whoever switches
 * second can tell: if it is the kicked CPU, the process does not run; if it is the process that
 * leaves, the kicked CPU has left word. Both first write and then read, with full barriers,
 * so that one of them sees the other.
 *
 * The same happens without a kick to a CPU that has nothing left: it looks for the process, which
 * runs elsewhere, and goes to sleep beside tasks that wait for their decision.
 */
#ifndef __MISSED_BPF_H
#define __MISSED_BPF_H

/* One more than the number of the CPU on which the scheduler process runs; 0 if it does not. */
static u32 scheduler_on;
/* The CPUs that were kicked in vain, of the first FP_SCAN, which is all that are kicked. */
static u64 missed_cpus;

/* Who went up to user space last, and when. */
static s32 last_up;
static u64 last_up_at;

static void note_up(s32 pid, u64 now)
{
	last_up = pid;
	last_up_at = now;
}

/*
 * Whether there is something for a CPU that sleeps: in a queue, in the hands of user space, or on
 * its way there. Messages are received in their order, so the last one stands for all.
 */
static bool somebody_could_run(u32 cpu)
{
	struct fp_settings *s = the_settings();

	return scx_bpf_dsq_nr_queued(cpu) > 0 || scx_bpf_dsq_nr_queued(SHARED_QUEUE) > 0 ||
	       (s && s->waiting != FP_IDLE) || !was_received(last_up, last_up_at);
}

/* Whether the CPU runs somebody less urgent than this task, which has waited since then. */
static bool is_in_the_way(const struct fp_cpu *c, s32 pid, u64 since)
{
	return pid && c->occupant < tier_of(pid) && still_waits(pid, since);
}

static void kick_once_more(struct fp_cpu *c, u32 cpu, u64 now)
{
	count(FP_MISSED);
	kick(c, cpu, now);
}

/* For the task that the CPU was kicked for, unless user space knows of it by now. */
static void serve(struct fp_cpu *c, s32 pid, u32 cpu, u64 now)
{
	if (c->occupant == FP_IDLE ?
		    somebody_could_run(cpu) :
		    is_in_the_way(c, pid, c->wanted_since) && !was_received(pid, c->wanted_since))
		kick_once_more(c, cpu, now);
}

/*
 * What they want stays: a kick that reaches a CPU in the middle of a switch is lost, since it has
 * looked for work by then, and the end of that switch is the last to tell.
 */
static void serve_missed(u64 now)
{
	u64 left = __sync_lock_test_and_set(&missed_cpus, 0);
	s32 i;

	if (!left)
		return;
	bpf_for(i, 0, scanned()) {
		struct fp_cpu *c = cpu_record(i);

		if (c && left >> (i & (FP_SCAN - 1)) & 1)
			serve(c, c->wanted, i, now);
	}
}

/* Leaves word for the scheduler process. */
static void note_missed(u32 cpu)
{
	if (cpu < FP_SCAN)
		__sync_fetch_and_or(&missed_cpus, 1ULL << cpu);
}

static void scheduler_begins(struct fp_cpu *c, u32 cpu)
{
	c->decided_for = c->wanted;
	c->decided_since = c->wanted_since;
	c->wanted = 0;
	__sync_lock_test_and_set(&scheduler_on, cpu + 1);
}

/*
 * The scheduler process has decided and leaves. A decision for this CPU that another CPU takes from
 * the ring may reach the queue here when this CPU is past looking and fetches somebody else from
 * far. The other one kicks then, finds the process still running, and the kick goes with it. And
 * the process may have been past reading its messages when this CPU was kicked.
 */
static void serve_decided(struct fp_cpu *c, u32 cpu, u64 now)
{
	s32 pid = c->decided_for;

	c->decided_for = 0;
	if (is_in_the_way(c, pid, c->decided_since) &&
	    (scx_bpf_dsq_nr_queued(cpu) > 0 || !was_received(pid, c->decided_since)))
		kick_once_more(c, cpu, now);
}

static void scheduler_leaves(struct fp_cpu *c, u32 cpu, u64 now)
{
	__sync_lock_test_and_set(&scheduler_on, 0);
	serve_decided(c, cpu, now);
	serve_missed(now);
}

/*
 * For a task that found nobody to interrupt: if the scheduler process runs, it may be past reading
 * its messages, so the CPU that it leaves should serve the task. If it does not, a CPU that was
 * kicked and has not switched yet will run it.
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
 * The CPU was kicked for a task that waits since then. If nobody waits in its queues it goes on
 * with whom it has, and no switch tells that the kick came to nothing: so while the scheduler
 * process runs elsewhere, it looks after this CPU when it leaves.
 */
static void expect(u32 cpu, s32 pid, u64 since)
{
	struct fp_cpu *c = cpu_record(cpu);

	if (!c)
		return;
	want(c, pid, since);
	if (scheduler_on)
		note_missed(cpu);
}

/* The CPU has switched to somebody else than the scheduler. */
static void check_missed(struct fp_cpu *c, u32 cpu, u64 now)
{
	s32 wanted = c->wanted;

	if (!wanted && c->occupant != FP_IDLE)
		return;
	if (!scheduler_on) {
		c->wanted = 0;
		/* Whoever sleeps now has just looked, with the process in its queue. */
		if (wanted)
			serve(c, wanted, cpu, now);
		return;
	}
	note_missed(cpu);
	if (!scheduler_on)
		serve_missed(now);
}

#endif
