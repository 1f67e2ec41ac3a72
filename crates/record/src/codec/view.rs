// SPDX-License-Identifier: GPL-2.0-only

//! The view of the machine as words. CPUs beyond the first 64 take words only as far as one of them
//! is in a set.

use super::{Damage, WordReader, WordWriter, cpu_bits, cpu_or_none};
use pandemonium_engine::MachineView;
use pandemonium_engine::topology::{CpuMask, WORDS};

/// Writes the view, as the last part of an entry.
pub(super) fn put(out: &mut WordWriter, view: &MachineView) {
    let MachineView { cpus, running, here, idle, busy, order_deficit, queued } = view;
    out.put(u64::from(*cpus) << 32 | u64::from(*running));
    out.put(cpu_bits(*here));
    let (idle, busy) = (idle.words(), busy.words());
    let counts = u64::from(*queued) << 32 | u64::from(*order_deficit);
    [idle[0], busy[0], counts].into_iter().for_each(|word| out.put(word));
    let last = (1..WORDS).rfind(|group| idle[*group] | busy[*group] != 0).unwrap_or(0);
    for group in 1..=last {
        out.put(idle[group]);
        out.put(busy[group]);
    }
}

/// Reads the view, with all words that the entry still has.
pub(super) fn take(input: &mut WordReader) -> Result<MachineView, Damage> {
    let counts = input.take()?;
    let (cpus, running) = ((counts >> 32) as u32, counts as u32);
    let here = cpu_or_none(input.take()?)?;
    let [mut idle, mut busy] = [[0; WORDS]; 2];
    (idle[0], busy[0]) = (input.take()?, input.take()?);
    let counts = input.take()?;
    let (queued, order_deficit) = ((counts >> 32) as u32, counts as u32);
    for (idle, busy) in idle.iter_mut().zip(&mut busy).skip(1) {
        if input.is_empty() {
            break;
        }
        (*idle, *busy) = (input.take()?, input.take()?);
    }
    let [idle, busy] = [idle, busy].map(CpuMask::from_words);
    Ok(MachineView { cpus, running, here, idle, busy, order_deficit, queued })
}
