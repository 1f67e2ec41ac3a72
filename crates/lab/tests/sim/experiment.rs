// SPDX-License-Identifier: GPL-2.0-only

//! The policy of docs/experiments.md: the page shows the code that runs here.

use crate::common::*;
use crate::shortest::Shortest;
use pandemonium_engine::PolicyType;
use pandemonium_policies::Fifo;
use pandemonium_sim::workload::Group;

#[test]
fn the_page_shows_the_code_that_runs() {
    let page = include_str!("../../../../docs/experiments.md");
    let code = include_str!("../../template/src/lib.rs");
    let shown = page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next());
    assert!(shown.clone().any(|block| block == code), "docs/experiments.md shows another policy");
}

#[test]
fn the_policy_does_what_the_page_says() {
    let groups = || vec![Group::hogs("burner", 8), probe()];
    let shortest = run(setup(4, 1), workload(groups(), ms(3_000)), DEMANDS, || {
        Shortest::new(&pandemonium_engine::Setup::of_cpus(4))
    });
    let fifo = run(setup(4, 1), workload(groups(), ms(3_000)), DEMANDS, Fifo::new);
    assert_eq!(shortest.verdict, Ok(()));
    let p50 = |ran: &Ran| ran.outcome.groups[1].wake.quantile(500);
    assert!(p50(&shortest) < us(20), "{}", p50(&shortest));
    assert!(p50(&fifo) > ms(5), "{}", p50(&fifo));
    let work = |ran: &Ran| ran.outcome.groups[0].work;
    assert!(work(&shortest) * 100 > work(&fifo) * 97);
}

#[test]
fn the_policy_survives_the_storms() {
    pandemonium_lab::survives::<Shortest>(1..=20);
}
