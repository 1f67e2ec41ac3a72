// SPDX-License-Identifier: GPL-2.0-only

//! The key by which the kernel's queues order decided tasks, smallest first: the time of the
//! decision plus an offset. In Interactive and Batch the offset depends on the rank of the task.

use super::known::Rank;
use crate::knobs::Knobs;
use crate::scaling::Scaling;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::Span;

/// The offset of the key: a part for the slice and one for the tier. A short slice goes before a
/// long one, as with EEVDF's virtual deadlines. A whole slice counts for one rescue interval and a
/// tier for two, so the lowest place of a tier is behind the highest of the tier above, and no task
/// waits there for ever.
///
/// In Interactive a fresh task has no offset for its slice, and a new one that has not run yet half
/// of one: a child begins before its siblings go on. A Batch task that has had less than its share
/// and was preempted comes right behind Interactive. At the back it would wait for a whole round of
/// urgent tasks after each preemption: beside rings that fill the machine, an audio client that had
/// fallen behind once got 4 % of a CPU, wanted 4 %, and never caught up.
pub fn key_offset(slice: Span, tier: Tier, rank: Rank, limits: &Scaling, knobs: &Knobs) -> Span {
    let rescue = limits.overflow_rescue;
    let within = rescue.scale(slice.as_nanos(), knobs.slice.as_nanos().max(1)).min(rescue);
    match (tier, rank) {
        (Tier::LatCritical, _) => within,
        (Tier::Interactive, Rank::First) => rescue.scale(2, 1),
        (Tier::Interactive, Rank::New) => rescue.scale(5, 2),
        (Tier::Interactive, Rank::Last) => rescue.scale(2, 1) + within,
        (Tier::Batch, Rank::First) => rescue.scale(3, 1),
        (Tier::Batch, _) => rescue.scale(4, 1) + knobs.batch_slice,
    }
}
