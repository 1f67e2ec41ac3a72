// SPDX-License-Identifier: GPL-2.0-only

//! What `rule.low_power` leaves idle.

use pandemonium_engine::PolicyInfo;
use pandemonium_engine::knobs::KeySet;
use pandemonium_policies::Pandemonium;
use pandemonium_sim::checkers::Demands;
use pandemonium_sim::machine::Setup;
use pandemonium_sim::measure::Outcome;
use pandemonium_sim::trial::Trial;

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
    let (workload, shape) = pandemonium_workload::read(LIGHT, Some(4)).expect("a workload");
    let policy = PolicyInfo::of::<Pandemonium>();
    let mut values = policy.knobs.defaults();
    assert!(values.put("rule.low_power", low_power.into()));
    let pinned = KeySet::none(policy.knobs);
    let setup = Setup::new(shape, 1);
    let demands = Demands::stated(&setup, &policy, &values);
    let trial = Trial { workload, setup, policy, values, pinned, storm: None, demands };
    let tried = trial.run(&mut ());
    assert_eq!(tried.verdict, Ok(()));
    tried.outcome
}

/// The kernel would give each wakee an idle CPU, and user space would see few of them.
#[test]
fn batch_tasks_share_busy_cpus_while_others_idle() {
    let percent = |outcome: &Outcome| outcome.idle.scale(100, outcome.window.as_nanos()).as_nanos();
    let (usual, saving) = (percent(&light(false)), percent(&light(true)));
    assert!(usual < 105, "without low power {usual} % of a CPU idle");
    assert!(saving > 125, "with low power {saving} % of a CPU idle");
}
