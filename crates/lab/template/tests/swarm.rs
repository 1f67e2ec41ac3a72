#[test]
fn the_policy_survives_the_swarm() {
    pandemonium_lab::survives::<shortest::Shortest>(1..=100);
}
