// SPDX-License-Identifier: GPL-2.0-only

//! Tasks choose their own names.

use crate::common::{DEMANDS, ms, pandemonium, probe, run, setup, workload};
use pandemonium_sim::workload::Group;

/// A compositor's name raises a task whatever it does, so a hog of that name takes a whole CPU. It
/// takes no more: the others share the other CPU, and a task that must not be late is not.
#[test]
fn a_hog_with_a_compositor_s_name_takes_one_cpu_at_most_and_delays_no_wakeup() {
    let groups = vec![probe(), Group::hogs("kwin", 1), Group::hogs("hog", 3)];
    let ran = run(setup(2, 1), workload(groups, ms(4_000)), DEMANDS, pandemonium(2));
    ran.verdict.expect("no checker complains");
    let [probe, named, others] = &ran.outcome.groups[..] else { panic!("three groups") };
    assert!(named.work < ms(4_040).as_nanos(), "{}", named.work);
    assert!(others.work > ms(3_800).as_nanos(), "{}", others.work);
    assert!(probe.wake.quantile(990) < ms(1), "{}", probe.wake.quantile(990));
}
