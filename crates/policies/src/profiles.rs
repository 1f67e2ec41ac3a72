// SPDX-License-Identifier: GPL-2.0-only

//! The profiles of [`Pandemonium`](crate::Pandemonium): what a machine is used for, as a few knobs.
//!
//! A profile sets as little as it can. What it does not set follows the load, as by default. Each
//! number has its reason beside it; `docs/operating.md` has what the simulator measures of them.

use pandemonium_engine::knobs::KnobProfile;

/// All profiles, the defaults first. The names are the modes of scx_loader.
pub const PROFILES: &[KnobProfile] = &[
    KnobProfile { name: "auto", about: "The defaults, which follow the load", knobs: "" },
    KnobProfile {
        name: "gaming",
        about: "Frames on time beside other work, for half a percent of the work that gets done",
        knobs: "\
slice_us=500 # the threads of a frame take turns: none waits for longer than 0.5 ms for another
burst_slice_us=500 # a burst must not make slices longer than usual
batch_slice_us=2000 # a frame that can interrupt no task waits for 1/8 of its 16.7 ms at most
",
    },
    KnobProfile {
        name: "lowlatency",
        about: "Shortest waits of all tasks, for about 1 % of the work that gets done",
        knobs: "\
slice_us=500 # as short as the adaptive loop makes slices when wakeups are late
burst_slice_us=500 # a burst must not make slices longer than usual
batch_slice_us=1000 # a buffer of sound is 3 to 10 ms, of which a wait may take a part only
preempt_thresh_us=500 # half of a Batch slice, so that waiting Batch tasks share in it
",
    },
    KnobProfile {
        name: "powersave",
        about: "Batch work runs slowly, and waits for a busy CPU instead of waking an idle one",
        knobs: "\
rule.low_power=on # an idle CPU that is not woken saves most
batch_perf_pct=60 # a lower frequency needs less voltage, so less energy for the same work
interactive_perf_pct=80 # the same, for a fifth of the speed; LatCritical tasks keep all of it
",
    },
    KnobProfile {
        name: "server",
        about: "Throughput: caches stay warm in long slices; a wait may last as long as those",
        knobs: "\
slice_us=2000 # a request of up to 2 ms is not interrupted by another one
batch_slice_us=20000 # the length that PANDEMONIUM has on servers; fewer switches by a third
preempt_thresh_us=4000 # a Batch task runs for a tick at HZ=250 before another one replaces it
",
    },
];

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::knobs::{Knobs, TABLE};
    use pandemonium_engine::time::Span;
    use std::vec::Vec;

    fn knobs(name: &str) -> Knobs {
        let profile = PROFILES.iter().find(|profile| profile.name == name).unwrap();
        Knobs::parse_file(profile.knobs).unwrap().0
    }

    #[test]
    fn the_profiles_are_the_modes_of_the_loader_and_the_first_is_the_defaults() {
        let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
        assert_eq!(names, ["auto", "gaming", "lowlatency", "powersave", "server"]);
        assert_eq!(knobs("auto"), Knobs::default());
    }

    #[test]
    fn every_line_of_a_profile_is_a_knob_at_another_value_than_the_default_with_a_reason() {
        for profile in PROFILES {
            let amended = TABLE.defaults().amended(profile.knobs).unwrap();
            assert!(amended.renamed.is_empty(), "{}: an old name", profile.name);
            assert_eq!(amended.named.len(), profile.knobs.lines().count());
            for knob in amended.named.iter() {
                let same = amended.values.get(knob.name) == TABLE.defaults().get(knob.name);
                assert!(!same, "{} sets {} to its default", profile.name, knob.name);
            }
            let reasoned = |line: &str| line.split_once(" # ").is_some_and(|(_, it)| it.len() > 20);
            assert!(profile.knobs.lines().all(reasoned), "{}", profile.name);
        }
    }

    #[test]
    fn each_profile_differs_from_the_defaults_in_what_it_is_for() {
        let auto = knobs("auto");
        let (gaming, low) = (knobs("gaming"), knobs("lowlatency"));
        assert!(gaming.slice < auto.slice && gaming.batch_slice < auto.batch_slice);
        assert!(low.batch_slice < gaming.batch_slice && low.burst_slice < auto.burst_slice);
        let powersave = knobs("powersave");
        assert!(powersave.rules.low_power && powersave.gives_orders());
        assert!(powersave.batch_perf < 100 && powersave.lat_critical_perf == 100);
        let server = knobs("server");
        assert!(server.batch_slice == Span::from_millis(20) && server.slice > auto.slice);
        assert!([gaming, low, server].iter().all(|it| !it.rules.low_power && it.gives_orders()));
    }
}
