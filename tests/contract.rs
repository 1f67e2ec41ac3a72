// SPDX-License-Identifier: GPL-2.0-only

//! Numbers that C and Rust both state are equal. A difference does not compile.

use pandemonium_engine::Limits;
use pandemonium_policies::SLEEP_LONG;
use pandemonium_sim::machine::limits as sim;

/// What bindgen reads in `src/bpf/fast_path.h`.
#[allow(non_upper_case_globals, non_camel_case_types, dead_code, clippy::all)]
mod fast_path {
    include!(concat!(env!("OUT_DIR"), "/fast_path/bpf_intf.rs"));
}

/// What bindgen reads in the backend's `intf.h` and in `src/bpf/backend_limits.h`.
#[allow(non_upper_case_globals, non_camel_case_types, non_snake_case, dead_code, clippy::all)]
mod backend {
    include!(concat!(env!("OUT_DIR"), "/bpf_intf.rs"));
}

// ---- A round and a dispatch call ----

const ROUND_MAX: usize = Limits::KERNEL.dispatches + Limits::KERNEL.extra;
const _: () = assert!(ROUND_MAX == backend::backend_limits_PATCH_DRAIN as usize);
const _: () = assert!(sim::DRAIN == backend::backend_limits_PATCH_DRAIN as usize);
const _: () = assert!(sim::OWN_TURN == backend::patch_own_queue_PATCH_OWN_NS as u64);
const _: () = assert!(sim::OWN_TASKS == backend::patch_own_queue_PATCH_OWN_TASKS);
const _: () = assert!(Limits::ARRIVALS == sim::RING);

// ---- Queues ----

const _: () = assert!(backend::backend_limits_BACKEND_SHARED_DSQ == backend::MAX_CPUS);
const _: () = assert!(fast_path::fp_limits_FP_CPUS == backend::MAX_CPUS);

// ---- The fast path in the simulated machine ----

const _: () = assert!(sim::SCAN == fast_path::fp_limits_FP_SCAN);
const _: () = assert!(sim::KICK_INTERVAL == fast_path::fp_times_FP_KICK_INTERVAL_NS as u64);
const _: () = assert!(sim::KICKS_PER_WINDOW == fast_path::fp_limits_FP_KICKS_PER_WINDOW);
const _: () = assert!(sim::WINDOW_BITS == fast_path::fp_limits_FP_WINDOW_BITS);
const _: () = assert!(sim::HANDOFF == fast_path::fp_times_FP_HANDOFF_NS as u64);
const _: () = assert!(sim::HANDOFF_TRUST as u32 == fast_path::fp_limits_FP_HANDOFF_TRUST);
const _: () = assert!(sim::RECHECK == fast_path::fp_times_FP_RECHECK_NS as u64);
const _: () = assert!(sim::TURN == fast_path::fp_times_FP_TURN_NS as u64);
const _: () = assert!(sim::TURN_BITS == fast_path::fp_limits_FP_TURN_BITS);
const _: () = assert!(sim::RECHECKS == fast_path::fp_limits_FP_RECHECKS);
const _: () = assert!(sim::SLEEP_LONG == fast_path::fp_times_FP_SLEEP_LONG_NS as u64);
const _: () = assert!(SLEEP_LONG.as_nanos() == fast_path::fp_times_FP_SLEEP_LONG_NS as u64);
const _: () = assert!(sim::SOON == fast_path::fp_times_FP_SOON_NS as u64);
const _: () = assert!(sim::CROWD == fast_path::fp_limits_FP_CROWD);
const _: () = assert!(sim::CROWD_LEAD == fast_path::fp_times_FP_CROWD_LEAD_NS as u64);
const _: () = assert!(sim::CROWD_TURN == fast_path::fp_times_FP_CROWD_TURN_NS as u64);
const _: () = assert!(sim::CROWD_SLICE_MIN == fast_path::fp_times_FP_CROWD_SLICE_MIN_NS as u64);
const _: () = assert!(sim::WAITERS == fast_path::fp_limits_FP_WAITERS as usize);

const _: () = assert!(sim::IDLE == fast_path::fp_occupant_FP_IDLE);
const _: () = assert!(sim::BATCH == fast_path::fp_occupant_FP_BATCH);
const _: () = assert!(sim::BATCH + 1 == fast_path::fp_occupant_FP_INTERACTIVE);
const _: () = assert!(sim::BATCH + 2 == fast_path::fp_occupant_FP_LAT_CRITICAL);
const _: () = assert!(sim::FOREIGN == fast_path::fp_occupant_FP_FOREIGN);
const _: () = assert!(sim::OFFLINE == fast_path::fp_occupant_FP_OFFLINE);

// ---- Standing orders ----

const _: () = assert!(sim::ORDER_SCAN == backend::order_limits_ORDER_SCAN);
const _: () = assert!(sim::ORDER_LOOK == backend::order_limits_ORDER_LOOK_NS as u64);
const _: () = assert!(sim::BATCH_TIME == backend::order_limits_ORDER_BATCH_NS as u64);

// ---- While no decision comes ----

const _: () = assert!(sim::DEFAULT_SLICE == fast_path::fp_times_FP_DEFAULT_SLICE_NS as u64);
const _: () = assert!(sim::PERIOD_MAX == fast_path::fp_times_FP_PERIOD_MAX_NS as i64);
const _: () = assert!(sim::MEAN_TURN_MIN == fast_path::fp_times_FP_MEAN_TURN_MIN_NS as i64);
const _: () = assert!(sim::WAKEUP_LEAD == backend::patch_default_times_PATCH_WAKEUP_LEAD_NS as u64);
const _: () = assert!(sim::WAKEUP_LEAD == 8 * sim::DEFAULT_SLICE, "eight slices");
const _: () = assert!(sim::STALL_CHECK == backend::patch_default_times_PATCH_CHECK_NS as u64);
const _: () = assert!(sim::STALL_CHECKS == backend::patch_checks_PATCH_CHECKS);
const STALL: u64 = sim::STALL_CHECK * sim::STALL_CHECKS as u64;
const _: () = assert!(pandemonium_engine::fates::STALL.as_nanos() == STALL);

// ---- What only the backend's program says ----

/// The backend's source, as its builder wrote it.
const BACKEND: &str = include_str!(concat!(env!("OUT_DIR"), "/main.bpf.c"));

/// Numbers that no header of the backend exports are written there as the simulator has them.
#[test]
fn the_backend_s_program_has_the_simulator_s_numbers() {
    let words = BACKEND.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(sim::HEARTBEAT, 1_000_000_000);
    for stated in [
        format!("#define MAX_ENQUEUED_TASKS {} ", sim::RING),
        "#define USERSCHED_TIMER_NS NSEC_PER_SEC ".to_owned(),
        format!(".timeout_ms = {},", sim::WATCHDOG / 1_000_000),
    ] {
        assert!(words.contains(&stated), "{stated:?} is not there");
    }
}
