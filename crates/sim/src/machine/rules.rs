// SPDX-License-Identifier: GPL-2.0-only

//! Which CPU gives way to which task, and which waker hands its CPU over: the rules of
//! `src/bpf/rules.h`, stated again. `crates/bpf_rules/tests/rules.rs` compares both.

use super::limits::{
    BATCH, CROWD, CROWD_LEAD, CROWD_SLICE_MIN, CROWD_TURN, DEFAULT_SLICE, FOREIGN, HANDOFF,
    HANDOFF_TRUST, IDLE, KICK_INTERVAL, KICKS_PER_WINDOW, MEAN_TURN_MIN, PERIOD_MAX, SCAN,
    WINDOW_BITS,
};

/// The kicks of a CPU, which are limited: `kicked`, `window` and `kicks` of `struct fp_cpu`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kicks {
    /// When the CPU was last kicked.
    pub last: u64,
    /// The window of time in which `count` counts.
    pub window: u64,
    /// How often it was kicked in that window.
    pub count: u32,
}

impl Kicks {
    /// Counts a kick: `note_kick`.
    pub fn note(&mut self, now: u64) {
        if self.window != now >> WINDOW_BITS {
            (self.window, self.count) = (now >> WINDOW_BITS, 0);
        }
        self.count += 1;
        self.last = now;
    }

    /// A CPU is kicked not soon after another kick, and at most so often in a window of time:
    /// `may_kick`.
    pub fn allow_another(&self, now: u64) -> bool {
        now - self.last >= KICK_INTERVAL
            && (self.window != now >> WINDOW_BITS || self.count < KICKS_PER_WINDOW)
    }
}

/// What the rules know of a CPU: `struct fp_cpu`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuView {
    /// What it runs: `enum fp_occupant`.
    pub occupant: u32,
    /// When the occupant began.
    pub since: u64,
    /// For how long the occupant may run; zero if that is not known.
    pub slice: u64,
    /// Whether the occupant is of low weight: SCHED_IDLE, or nice above zero.
    pub low_weight: bool,
    /// Its kicks.
    pub kicks: Kicks,
}

/// How far Batch tasks are protected from one another: `struct fp_settings`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// A Batch task that has run less is not preempted by another one.
    pub thresh: u64,
    /// Except in a burst.
    pub burst: bool,
}

/// A task that needs a CPU: `struct need`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Now.
    pub now: u64,
    /// The CPU on which this is found out.
    pub here: u32,
    /// Whether that CPU must be left alone.
    pub spare_here: bool,
    /// Whether the task is of the kind that never preempts: SCHED_IDLE, or nice 19.
    pub never_preempts: bool,
    /// Whether it also wants a CPU whose occupant has used up its slice.
    pub overdue: bool,
    /// Its own place in `enum fp_occupant`.
    pub tier: u32,
    /// Its last CPU if it may not use all CPUs.
    pub bound_to: Option<u32>,
}

impl Need {
    /// `search_from`: where a search among so many CPUs begins.
    fn search_from(&self, cpus: u32) -> u32 {
        if cpus > SCAN { self.bound_to.unwrap_or(self.here) } else { self.here }
    }
}

impl CpuView {
    /// Whether the occupant has used up its slice.
    pub fn is_outlived(&self, now: u64) -> bool {
        self.slice > 0 && now - self.since >= self.slice
    }

    /// Whether the occupant gives way to the task.
    pub fn gives_way(&self, need: &Need, protection: &Protection) -> bool {
        if self.occupant == IDLE || self.occupant >= FOREIGN {
            return self.occupant == IDLE;
        }
        if need.overdue && self.is_outlived(need.now) {
            return true;
        }
        if need.never_preempts || self.occupant > need.tier {
            return false;
        }
        if self.occupant < need.tier {
            return true;
        }
        if need.tier != BATCH {
            return self.is_outlived(need.now);
        }
        protection.burst || need.now - self.since >= protection.thresh
    }
}

/// `find_victim`: of the CPUs whose occupant gives way, the one that runs the lowest tier, of these
/// one of low weight, of these the one on which we are, else the one that has run longest. `view`
/// is `None` for a CPU that the task may not use.
pub fn find_victim(
    cpus: u32,
    need: &Need,
    protection: &Protection,
    view: impl Fn(u32) -> Option<CpuView>,
) -> Option<u32> {
    let mut best: Option<(u32, u64, u32)> = None;
    let from = need.search_from(cpus);
    for step in 0..SCAN.min(cpus) {
        let cpu = (from + step) % cpus;
        let is_here = cpu == need.here;
        if is_here && need.spare_here {
            continue;
        }
        let Some(seen) = view(cpu) else { continue };
        if !seen.gives_way(need, protection) {
            continue;
        }
        if !seen.kicks.allow_another(need.now) {
            continue;
        }
        let ran = if is_here { u64::MAX } else { need.now - seen.since };
        let rank = 2 * seen.occupant + u32::from(!seen.low_weight);
        if best.is_none_or(|(lowest, longest, _)| rank < lowest || rank == lowest && ran > longest)
        {
            best = Some((rank, ran, cpu));
        }
    }
    best.map(|(_, _, cpu)| cpu)
}

/// The slice of a task that begins to run while `waiting` tasks wait for one of `cpus` CPUs:
/// `slice`, or so much less that a turn takes [`CROWD_TURN`].
pub fn crowd_slice(slice: u64, waiting: u32, cpus: u32) -> u64 {
    let (waiting, cpus) = (u64::from(waiting), u64::from(cpus));
    if slice <= CROWD_SLICE_MIN || slice / cpus * waiting <= CROWD_TURN {
        return slice;
    }
    (CROWD_TURN * cpus / waiting).max(CROWD_SLICE_MIN)
}

/// The key in the shared DSQ of a Batch task that is queued with this slice and key while `queued`
/// tasks wait there. It is at least the time at which the task is due if each of these runs once
/// before it. So an urgent task passes the Batch tasks that are not due yet.
pub fn crowd_key(key: u64, now: u64, slice: u64, queued: u32, cpus: u32) -> u64 {
    let turn = crowd_slice(slice, queued, cpus) / u64::from(cpus) * u64::from(queued);
    key.max(now + turn.min(CROWD_TURN))
}

/// The key in the shared DSQ of a LatCritical task that is queued with this key while `queued`
/// tasks wait there: earlier by [`CROWD_LEAD`] for each task beyond the first [`CROWD`] of a CPU,
/// at most by [`CROWD_TURN`], so that it passes Batch tasks that are due. It grows with the crowd:
/// with all of it at once, tasks that were queued shortly before would wait until it has passed.
pub fn crowd_passing_key(key: u64, queued: u32, cpus: u32) -> u64 {
    let beyond = u64::from((queued / cpus).saturating_sub(CROWD));
    key.saturating_sub((beyond * CROWD_LEAD).min(CROWD_TURN))
}

/// The key in the shared DSQ that gives its share by weight to a task that has lost its CPU at
/// `now` after `ran` nanoseconds, and had the key `last`. Slices end at ticks, so shares come from
/// how often a task has a turn: one of half the weight waits for two turns of all tasks. In the
/// mean a key is `turn` behind the time, as long as a turn of all takes. A task that gets less than
/// its share, because it has a CPU for itself, would be behind for ever, and counts for less.
pub fn key_by_weight(turn: &mut u64, last: u64, now: u64, ran: u64, weight: u32) -> u64 {
    let behind = now.wrapping_sub(last).cast_signed();
    // Otherwise it was not in the queue lately: it gets a place in the middle.
    if !(-PERIOD_MAX..=PERIOD_MAX).contains(&behind) {
        return now.saturating_sub(*turn);
    }
    let mean = turn.cast_signed();
    let mean = (mean + ((behind - mean).clamp(-2 * mean, mean) >> 4)).max(MEAN_TURN_MIN);
    *turn = mean.cast_unsigned();
    let used = 100 * ran.min(2 * DEFAULT_SLICE) / u64::from(weight);
    let period = (*turn * used / DEFAULT_SLICE).min(PERIOD_MAX.cast_unsigned());
    (now + period).saturating_add_signed(-behind.min(4 * mean))
}

/// How often a task has handed over its CPU, when it stops. Once it has woken another task, it has
/// if it sleeps soon, and has not if it does anything else.
pub fn count_handoff(before: u8, asleep: bool, woke: u64, now: u64) -> u8 {
    match woke {
        0 => before,
        woke if asleep && now - woke <= HANDOFF => (before + 1).min(HANDOFF_TRUST),
        _ => 0,
    }
}
