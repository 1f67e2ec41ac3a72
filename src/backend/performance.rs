// SPDX-License-Identifier: GPL-2.0-only

//! What saves power, in the memory that is shared with the backend: the performance that CPUs are
//! asked for (`backend_patches/frequency.h`), and idle CPUs (`backend_patches/low_power.h`).

use super::bpf_skel::types;
use crate::fast_path::occupant;
use pandemonium_engine::task::Tier;

/// The highest performance of a CPU: SCX_CPUPERF_ONE of the kernel.
const HIGHEST: u32 = 1024;

/// Publishes by how many percent the performance is lowered for each tier, if that has changed.
pub(super) fn lower(bss: &mut types::bss, percent: [u32; Tier::ALL.len()]) {
    let lowers = u32::from(percent.iter().any(|percent| *percent > 0));
    for tier in Tier::ALL {
        let word = &raw mut bss.patch_lowered[occupant(tier) as usize];
        // SAFETY: points into live memory that only this process writes.
        unsafe { write_if_new(word, percent[tier.index()].min(100) * HIGHEST / 100) };
    }
    // SAFETY: as above.
    unsafe { write_if_new(&raw mut bss.patch_lowers, lowers) };
}

/// Publishes whether Batch tasks wait for busy CPUs.
pub(super) fn save_power(bss: &mut types::bss, saves: bool) {
    // SAFETY: as above.
    unsafe { write_if_new(&raw mut bss.patch_saves_power, saves.into()) };
}

/// Leaves a word alone that has this value already, and with it the caches of the other CPUs.
///
/// # Safety
/// `word` must point to live memory that only this process writes.
unsafe fn write_if_new(word: *mut u32, value: u32) {
    // SAFETY: the caller's promise; volatile because the kernel reads it.
    unsafe {
        if word.read_volatile() != value {
            word.write_volatile(value);
        }
    }
}

/// How often a CPU was asked for another performance.
pub(super) fn changes(bss: &types::bss) -> u64 {
    bss.backend_cpus[..*scx_utils::NR_CPU_IDS].iter().map(|cpu| cpu.asked).sum()
}
