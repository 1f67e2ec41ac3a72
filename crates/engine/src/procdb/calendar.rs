// SPDX-License-Identifier: GPL-2.0-only

//! Profiles while the calendar is wrong, and after it was set.
//!
//! What matters of a time is how much older it is than others: the oldest profiles are dropped and
//! evicted first. So when the calendar is set, all times move with it. Without that, a clock that
//! is set forward by a month makes every profile look unused for that long, and after a clock that
//! was ahead is set back, each new program is older than all that were seen meanwhile, and is
//! evicted first.
//!
//! 1. The clock moves while the scheduler runs: times move by as much ([`clock_was_set`]).
//! 2. It moves between two runs: nothing tells that from a machine that was switched off. The time
//!    from the last observation to now counts as one day at most, and times in the future move back
//!    ([`rejoin`]).
//! 3. A clock without a battery starts in 1970, and is set when the network is there. Times
//!    that would lie before 1970 stay in the future, and are right again when the clock is.

use super::{Minute, Profile};

/// Profiles age in a pause of the scheduler, or a sleep of the machine, for a day at most. A longer
/// one may be a clock that was set. Shorter steps of the clock change no order that matters,
/// because only days count. Chosen.
const PAUSE_MAX: u32 = Minute::PER_DAY;

/// Moves the times of profiles if the clock was set from `before` to `now` in one step.
pub(super) fn clock_was_set(profiles: &mut [Profile], before: Minute, now: Minute) {
    if before.as_unix().abs_diff(now.as_unix()) <= PAUSE_MAX {
        return;
    }
    for profile in profiles {
        profile.last_seen = moved(profile.last_seen, before, now);
    }
}

/// A time as it would be if the clock had shown `now` instead of `before`.
fn moved(seen: Minute, before: Minute, now: Minute) -> Minute {
    // From 1970, or from wherever it was behind: the time is right if it is not in the future now.
    if seen > before && seen <= now {
        return seen;
    }
    let age = before.minutes_since(seen);
    if age <= now.as_unix() { Minute::from_unix(now.as_unix() - age) } else { seen }
}

/// Moves the times of a file's profiles, read at `now`, so that they go on where the last run
/// ended.
pub fn rejoin(profiles: &mut [Profile], now: Minute) {
    let Some(newest) = profiles.iter().map(|profile| profile.last_seen).max() else { return };
    let until = Minute::from_unix(now.as_unix().saturating_sub(PAUSE_MAX));
    let to = match () {
        () if newest > now => now,
        () if newest < until => until,
        () => return,
    };
    let ages = profiles.iter().map(|profile| newest.minutes_since(profile.last_seen));
    if ages.max() > Some(to.as_unix()) {
        return;
    }
    for profile in profiles {
        profile.last_seen =
            Minute::from_unix(to.as_unix() - newest.minutes_since(profile.last_seen));
    }
}
