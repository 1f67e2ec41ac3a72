// SPDX-License-Identifier: GPL-2.0-only

//! CPUs go on- or offline while the policy decides. Their topology replaces that of the start
//! ([`Placer::follow_topology`](super::placement::Placer::follow_topology)).

use super::Pandemonium;
use super::batch_starvation::BatchStarvation;
use super::crowd::Crowd;
use crate::control::detect::Burst;
use crate::scaling::Scaling;

impl Pandemonium {
    /// Follows the number of CPUs that are online: the limits change, and what was measured against
    /// the old number begins anew. A number that was never that of the machine is the user's wish,
    /// and stays.
    pub(super) fn follow_cpus(&mut self, online: u32) {
        let before = self.online.replace(online);
        if before == Some(online) || before != Some(self.limits.cpus) {
            return;
        }
        self.limits = Scaling::new(online);
        self.detectors.burst = Burst::new(self.limits.burst_wakeups);
        self.batch_starvation = BatchStarvation::new(online);
        self.crowd = Crowd::new(online);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pandemonium_engine::Setup;

    /// The number of CPUs of the limits after each number of CPUs online.
    fn limits(chosen: u32, online: [u32; 3]) -> [u32; 3] {
        let mut policy = Pandemonium::new(&Setup::of_cpus(chosen));
        online.map(|online| {
            policy.follow_cpus(online);
            policy.limits.cpus
        })
    }

    #[test]
    fn limits_follow_the_cpus_online_unless_the_user_chose_another_number() {
        assert_eq!(limits(4, [4, 3, 4]), [4, 3, 4]);
        assert_eq!(limits(8, [4, 3, 4]), [8, 8, 8]);
    }
}
