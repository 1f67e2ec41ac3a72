// SPDX-License-Identifier: GPL-2.0-only

//! A policy follows the topology when CPUs come or go.

use crate::script::arrival;
use crate::world::{World, sent};
use pandemonium_engine::task::{Arrival, CpuId};
use pandemonium_engine::topology::{CPUS_MAX, CpuPlace, Topology};
use pandemonium_engine::{Limits, Policy, Setup};
use pandemonium_policies::Pandemonium;
use pandemonium_policies::knobs::{Affinity, Knobs};

/// Four CPUs; of these, CPU 3 shares its second-level cache with the CPU `sibling`.
fn with_sibling(sibling: u16) -> Topology {
    let l2 = |number| if number == 3 { sibling } else { number };
    let place = |number| CpuPlace { core: number, l2: l2(number), llc: 0, node: 0 };
    Topology::new((0..4).map(place).collect())
}

/// The task that is decided first while CPU 3 becomes free. Task 1 arrives first, and its last CPU
/// is 1; that of task 2 is 2.
fn first_on_cpu_3(policy: &mut Pandemonium) -> i32 {
    policy.tune(&Knobs { affinity: Affinity::Strong, ..Knobs::default() }.values());
    let mut world = World::new(policy);
    world.port.view.here = CpuId::new(3);
    for pid in [1, 2] {
        let cpu = CpuId::new(pid).expect("a CPU number");
        world.port.ring.push_back(Arrival { cpu, ..arrival(pid, 1) });
    }
    world.round(Limits { arrivals: 4096, dispatches: 1, extra: 0 });
    let [first] = sent(&world.port.log)[..] else { panic!("two tasks wait") };
    first.pid.as_raw()
}

#[test]
fn a_task_is_near_the_cpus_that_share_its_cache_by_the_newest_topology() {
    let of = |topologies: &[Topology]| {
        // CPU 3 is offline at the start: nothing is known of it.
        let mut policy = Pandemonium::new(&Setup::of_cpus(3));
        topologies.iter().for_each(|topology| policy.follow_topology(topology));
        first_on_cpu_3(&mut policy)
    };
    assert_eq!(of(&[]), 1, "the first that arrived");
    assert_eq!(of(&[with_sibling(2)]), 2);
    assert_eq!(of(&[with_sibling(2), Topology::flat(3)]), 1, "it is offline again");
    assert_eq!(of(&[Topology::flat(CPUS_MAX), with_sibling(2)]), 2);
}
