// SPDX-License-Identifier: GPL-2.0-only

//! What `rule.low_power` leaves idle.

use crate::common::*;
use pandemonium_engine::Policy;
use pandemonium_policies::knobs::Knobs;
use pandemonium_sim::machine::{Machine, START, Setup};
use pandemonium_sim::measure::{Measure, Outcome};

/// A hog, and four Batch tasks of half a CPU each, on four CPUs.
const LIGHT: &str = r#"
name = "light"
about = "a hog, and tasks that compute half of the time"
duration_ms = 6000
warmup_ms = 2000
[[task]]
name = "hog"
kind = "burn"
[[task]]
name = "half"
kind = "sleep"
sleep_us = 20000
work_us = 20000
count = 4
"#;

fn light(low_power: bool) -> Outcome {
    let (light, shape) = pandemonium_workload::read(LIGHT, Some(4)).expect("a workload");
    let mut values = Knobs::default().values();
    assert!(values.put("rule.low_power", low_power.into()));
    let mut make = || {
        let mut policy = pandemonium(4)();
        policy.tune(&values);
        policy
    };
    let observer = Measure::new(&light, shape.cpus);
    let mut machine = Machine::new(Setup::new(shape, 1), light, observer);
    let mut policy = make();
    machine.obey(&policy.kernel_rules(START));
    machine.run(ms(6_000), &mut policy, &mut make);
    machine.into_observer().finish(START + ms(6_000))
}

/// The kernel would give each wakee an idle CPU, and user space would see few of them.
#[test]
fn batch_tasks_share_busy_cpus_while_others_idle() {
    let percent = |outcome: &Outcome| outcome.idle.scale(100, outcome.window.as_nanos()).as_nanos();
    let (usual, saving) = (percent(&light(false)), percent(&light(true)));
    assert!(usual < 105, "without low power {usual} % of a CPU idle");
    assert!(saving > 125, "with low power {saving} % of a CPU idle");
}
