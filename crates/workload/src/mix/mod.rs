// SPDX-License-Identifier: GPL-2.0-only

//! Mixes: workloads that one seed draws, for any number of CPUs. Nothing here looks at a policy.
//!
//! A mix has two to six parts. At least one of them is urgent, which means that a person or a
//! program notices when it is late, and at least one is a load. All urgent parts together want at
//! most about half of the machine.

mod load;
mod lot;
mod part;
mod urgent;

use crate::file::read;
use lot::Lot;
use pandemonium_sim::workload::Workload;
use part::Part;

/// Time that is measured, and time before that, in milliseconds.
const MEASURED_MS: u64 = 5_000;
const WARM_UP_MS: u64 = 1_000;
/// Number of parts.
const PARTS: std::ops::RangeInclusive<u64> = 2..=6;
/// Names under which quite different tasks run.
const SHARED_NAMES: [&str; 4] = ["python3", "java", "node", "Web Content"];

/// The mix of this seed for so many CPUs, 1 to 1024, as a workload file. Equal arguments give equal
/// text.
pub fn text(seed: u64, cpus: u32) -> String {
    let mut lot = Lot::new(seed, cpus);
    let parts = parts(&mut lot);
    let about: Vec<&str> = parts.iter().map(|part| part.about).collect();
    let mut text = format!(
        "name = \"mix-{seed}\"\nabout = \"drawn from seed {seed} for {cpus} CPUs: {}\"\n\
         duration_ms = {}\nwarmup_ms = {WARM_UP_MS}\n\n[machine]\ncpus = {cpus}\n",
        about.join(", "),
        WARM_UP_MS + MEASURED_MS,
    );
    parts.iter().for_each(|part| text += &part.text());
    text
}

/// The same as a workload.
///
/// # Panics
///
/// Never for 1 to 1024 CPUs: every mix is a valid file.
pub fn draw(seed: u64, cpus: u32) -> Workload {
    let (workload, _) = read(&text(seed, cpus), None).expect("a mix is a valid file");
    workload
}

fn parts(lot: &mut Lot) -> Vec<Part> {
    let count = lot.between(*PARTS.start(), *PARTS.end());
    let shared = lot.one_in(3).then(|| lot.pick(&SHARED_NAMES));
    (0..count)
        .map(|number| {
            let part = match number {
                0 => lot.pick(&urgent::KINDS)(lot),
                1 => lot.pick(&load::KINDS)(lot),
                _ if lot.one_in(12) => load::ring(lot),
                _ if lot.one_in(3) => lot.pick(&load::KINDS)(lot),
                _ => lot.pick(&urgent::KINDS)(lot),
            };
            match shared {
                Some(name) if lot.one_in(2) => part.named(name),
                _ => part,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::notice;
    use pandemonium_sim::workload::{Group, Step};
    use pandemonium_statistics::mix::Notice;
    use std::collections::BTreeSet;

    const CPUS: [u32; 5] = [1, 2, 4, 16, 256];
    const SEEDS: u64 = 400;

    fn all() -> impl Iterator<Item = (u64, u32, Workload)> {
        let even = (2..=2 * SEEDS).step_by(2);
        even.flat_map(|seed| CPUS.map(|cpus| (seed, cpus, draw(seed, cpus))))
    }

    #[test]
    fn equal_seeds_give_equal_bytes_and_other_seeds_others() {
        let texts: BTreeSet<String> = (2..200).map(|seed| text(seed, 4)).collect();
        assert_eq!(texts.len(), 198);
        assert!((2..200).all(|seed| texts.contains(&text(seed, 4))));
        // Stored figures of a mix stay comparable as long as this does not change.
        assert_eq!(fingerprint(&texts), FINGERPRINT);
    }

    /// FNV-1a over the texts.
    fn fingerprint(texts: &BTreeSet<String>) -> u64 {
        let bytes = texts.iter().flat_map(|text| text.bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }

    const FINGERPRINT: u64 = 10_427_458_598_506_402_242;

    #[test]
    fn every_mix_is_a_valid_file_with_an_urgent_part_and_a_load() {
        for (seed, cpus, workload) in all() {
            let notices: Vec<_> = workload.groups.iter().filter_map(notice).collect();
            assert!((2..=6).contains(&notices.len()), "{seed} {cpus}: {notices:?}");
            assert_ne!(notices[0], Notice::Work, "{seed} {cpus}");
            let is_load = |group: &Group| demand(group) >= 0.3 * f64::from(group.tasks().min(cpus));
            assert!(workload.groups.iter().any(is_load), "{seed} {cpus}: {}", text(seed, cpus));
        }
    }

    #[test]
    fn the_demand_of_a_mix_is_sane() {
        for (seed, cpus, workload) in all() {
            assert!(workload.tasks() <= (100 + 40 * cpus).min(5_000), "{seed} {cpus}");
            let urgent = workload.groups.iter().filter(|group| is_urgent(group)).map(demand);
            let urgent: f64 = urgent.sum();
            assert!(urgent <= 0.65 * f64::from(cpus) + 0.2, "{seed} {cpus}: {urgent} CPUs");
        }
    }

    /// Computing between phases and a ring without pauses are loads, though their tasks are timed.
    fn is_urgent(group: &Group) -> bool {
        let waits = |step: &Step| matches!(step, Step::Sleep(_) | Step::Period | Step::End);
        let is_ring = group.row > 1 && group.period.high.as_nanos() == 0;
        let first = group.program(0);
        let ring_pauses = matches!(first.first(), Some(Step::Sleep(_)));
        let long = |step: &Step| matches!(step, Step::Work(work) if work.low.as_micros() >= 40_000);
        let changes = first.iter().any(long);
        !group.counts && first.iter().any(waits) && (!is_ring || ring_pauses) && !changes
    }

    /// CPUs that the tasks of a group use if they never wait for one.
    fn demand(group: &Group) -> f64 {
        let mean = |draw: pandemonium_sim::workload::Draw| {
            (draw.low.as_nanos() + draw.high.as_nanos()) as f64 / 2.0
        };
        let steps = || group.programs.iter().flatten();
        let places = f64::from(group.row);
        let (mut work, mut sleep) = (0.0, 0.0);
        for place in 0..group.row {
            for step in group.program(place) {
                match step {
                    Step::Work(draw) | Step::Exec(draw) => work += mean(*draw),
                    Step::Sleep(draw) => sleep += mean(*draw),
                    _ => {}
                }
            }
        }
        if group.forked {
            return 0.0;
        }
        if steps().any(|step| *step == Step::Period) {
            return f64::from(group.rows) * work / mean(group.period);
        }
        let parallel = if places > 1.0 && group.counts { places } else { 1.0 };
        f64::from(group.rows) * parallel * work / (work + sleep * parallel)
    }

    #[test]
    fn every_kind_is_drawn() {
        let abouts: BTreeSet<&str> = (2..400)
            .flat_map(|seed| parts(&mut Lot::new(seed, 4)))
            .map(|part| part.about)
            .collect();
        // Hogs are two of the loads; storms have two descriptions; the ring is in neither list.
        assert_eq!(abouts.len(), urgent::KINDS.len() + load::KINDS.len() + 1, "{abouts:?}");
    }
}
