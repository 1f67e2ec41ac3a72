// SPDX-License-Identifier: GPL-2.0-only

//! The CPUs that are offline, as the backend notes them: `backend_patches/hotplug.h`.

use super::bpf_skel::types;
use pandemonium_engine::topology::CpuMask;

/// The CPUs that were offline at the last look; `None` before the first one.
#[derive(Default)]
pub struct OfflineCpus(Option<CpuMask>);

impl OfflineCpus {
    /// The CPUs that are offline, if they are others than at the last look.
    pub fn newer(&mut self, bss: &types::bss) -> Option<CpuMask> {
        // SAFETY: a reference to live memory, read as volatile because the kernel writes it. If it
        // writes meanwhile, the next look sees other words.
        let now = CpuMask::from_words(unsafe { std::ptr::read_volatile(&bss.patch_offline) });
        (self.0.replace(now) != Some(now)).then_some(now)
    }
}
