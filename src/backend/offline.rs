// SPDX-License-Identifier: GPL-2.0-only

//! CPUs come or go: which are offline, as the backend notes them (`backend_patches/hotplug.h`), and
//! what those share that are online.

use super::KernelPort;
use super::bpf_skel::types;
use pandemonium_engine::topology::{CpuMask, Topology};

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

impl KernelPort<'_> {
    /// Tells the fast path which CPUs are offline, if they are others than before. Returns whether
    /// they are.
    pub(super) fn follow_hotplug(&mut self) -> bool {
        let bss = self.bpf.skel.maps.bss_data.as_deref();
        let Some(offline) = bss.and_then(|bss| self.offline.newer(bss)) else { return false };
        self.fast.iter_mut().for_each(|fast| fast.set_offline(&offline));
        true
    }

    /// From now on the CPUs share what this topology says.
    pub fn follow_topology(&self, topology: &Topology) {
        self.fast.iter().for_each(|fast| fast.follow_topology(topology));
    }
}
