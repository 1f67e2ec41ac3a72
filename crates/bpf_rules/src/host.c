/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The rules of src/bpf as functions that Rust can call. The structures are those of
 * src/lib.rs, so that nothing here depends on the layout of what the kernel shares.
 */
#include "order_rules.h"
#include "rules.h"
#include "timer_rules.h"

struct host_cpu {
	u64 since;
	u64 slice;
	u64 kicked;
	u64 window;
	u32 kicks;
	u32 occupant;
	u32 low_weight;
	/* The task may not use it, or its occupant is about to end. */
	u32 forbidden;
	u32 ending;
	u32 unused;
};

struct host_need {
	u64 now;
	u64 thresh_ns;
	u32 here;
	u32 tier;
	u32 spare_here;
	u32 never_preempts;
	u32 overdue;
	u32 burst;
	u32 last_cpu;
	u32 is_bound;
};

static struct fp_cpu record_of(const struct host_cpu *cpu)
{
	return (struct fp_cpu){
		.since = cpu->since,
		.slice = cpu->slice,
		.kicked = cpu->kicked,
		.window = cpu->window,
		.kicks = cpu->kicks,
		.occupant = cpu->occupant,
		.low_weight = cpu->low_weight,
	};
}

/* find_victim() of src/bpf/kick.bpf.h, whose loop, mask and records need helpers. */
s32 host_find_victim(const struct host_cpu *cpus, u32 nr_cpus, const struct host_need *need)
{
	struct fp_settings s = {
		.preempt_thresh_ns = need->thresh_ns,
		.burst = need->burst,
	};
	struct need n = {
		.now = need->now,
		.here = need->here,
		.spare_here = need->spare_here,
		.never_preempts = need->never_preempts,
		.overdue = need->overdue,
		.tier = need->tier,
	};
	u32 from = search_from(n.here, need->last_cpu, need->is_bound, nr_cpus);
	struct victim best = NO_VICTIM;

	for (u32 i = 0; i < nr_cpus && i < FP_SCAN; i++) {
		u32 cpu = (from + i) % nr_cpus;
		bool is_here = cpu == n.here;
		struct fp_cpu c;

		if (is_here && n.spare_here)
			continue;
		c = record_of(&cpus[cpu]);
		if (cpus[cpu].forbidden || !gives_way(&c, &n, &s) || !may_kick(&c, n.now))
			continue;
		if (beats(&c, is_here, n.now, &best) && !cpus[cpu].ending)
			take_victim(&best, &c, cpu, is_here, n.now);
	}
	return best.cpu;
}

/* kick() of src/bpf/kick.bpf.h without the kick. */
void host_note_kick(struct host_cpu *cpu, u64 now)
{
	struct fp_cpu c = record_of(cpu);

	note_kick(&c, now);
	cpu->kicked = c.kicked;
	cpu->window = c.window;
	cpu->kicks = c.kicks;
}

u32 host_count_handoff(u32 before, u32 asleep, u64 woke, u64 now)
{
	return count_handoff(before, asleep, woke, now);
}

u64 host_crowd_slice(u64 slice, u32 waiting, u32 cpus)
{
	return crowd_slice(slice, waiting, cpus);
}

u64 host_crowd_key(u64 key, u64 now, u64 slice, u32 queued, u32 cpus)
{
	return crowd_key(key, now, slice, queued, cpus);
}

u64 host_crowd_passing_key(u64 key, u32 queued, u32 cpus)
{
	return crowd_passing_key(key, queued, cpus);
}

u64 host_key_by_weight(u64 *turn, u64 last, u64 now, u64 ran, u32 weight)
{
	return key_by_weight(turn, last, now, ran, weight);
}

s32 host_order_is_ending(const struct order_view *view, u64 size)
{
	return size == sizeof(*view) ? order_is_ending(view) : -1;
}

s32 host_order_verdict(const struct order_view *view, u64 size)
{
	return size == sizeof(*view) ? (s32)order_verdict(view) : -1;
}

_Static_assert(FP_OVERDUE_NS <= 10 * 1000 * 1000, "OVERDUE_MAX of src/lib.rs");

u64 host_timer_arm(u64 armed, u64 at, u64 now, u32 refused)
{
	return timer_serves(armed, at, now) ? armed : timer_started(at, refused);
}

void host_watch_look(struct fp_watch *watch)
{
	watch_look(watch);
}
