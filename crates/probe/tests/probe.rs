// SPDX-License-Identifier: GPL-2.0-only

//! Runs every phase of `pandemonium_probe` for a moment, under whatever scheduler this machine has.
//! What the figures are is the machine's affair; that they are there, and sound, is ours.

use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Phases by name, and a figure that each must have.
const PHASES: [(&str, &str); 25] = [
    ("wake", "p99.9"),
    ("burst", "p99"),
    ("longrun", "p99"),
    ("mixed", "p99"),
    ("births", "own_p99"),
    ("idle", "p50"),
    ("deadline", "late"),
    ("audio", "xruns"),
    ("ipc", "futex_p50"),
    ("messaging", "messages"),
    ("launch", "p50"),
    ("forks", "forks"),
    ("throughput", "time"),
    ("compile", "time"),
    ("fairness", "least_to_most"),
    ("nice", "share_error"),
    ("regime-sweep", "overloaded_p99"),
    ("deficit-storm", "work"),
    ("sojourn-pressure", "longest_wait"),
    ("longrun-interactive", "least_to_most"),
    ("burst-recovery", "after_p99"),
    ("mixed-storm", "late_share"),
    ("burst-starvation", "extra"),
    ("work-stealing", "spread"),
    ("sojourn-ceiling", "job_worst"),
];
/// Phases with a latency, and so with a curve.
const CURVES: [&str; 4] = ["wake", "deadline", "ipc", "launch"];

fn probe(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pandemonium_probe"));
    command.args(arguments).stdin(Stdio::null()).output().expect("the probe runs")
}

fn measured(phase: &str, more: &[&str]) -> Value {
    // Calibrating each time would take longer than the phase.
    let usual = [phase, "--seconds", "0.1", "--warm-up-ms", "10", "--rounds-per-ms", "20000"];
    let output = probe(&[&usual, more].concat());
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{phase}: {complaint}");
    serde_json::from_slice(&output.stdout).expect("one object")
}

fn figure(report: &Value, name: &str) -> f64 {
    let figures = report["figures"].as_array().expect("figures are a list");
    let found = figures.iter().find(|figure| figure["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no {name} in {figures:?}"));
    found["value"].as_f64().expect("a figure is a number")
}

#[test]
fn every_phase_measures_and_says_so_in_one_object() {
    let has_compiler = Command::new("cc").arg("--version").output().is_ok();
    for (phase, name) in PHASES {
        if phase == "compile" && !has_compiler {
            continue;
        }
        let report = measured(phase, &[]);
        assert!(figure(&report, name).is_finite(), "{phase}");
        for figure in report["figures"].as_array().unwrap() {
            assert!(matches!(figure["better"].as_str(), Some("lower" | "higher")), "{figure}");
            assert!(figure["unit"].is_string() && figure["value"].is_f64(), "{figure}");
        }
        if CURVES.contains(&phase) {
            let buckets = report["curves"][0]["buckets"].as_array().unwrap();
            assert!(!buckets.is_empty(), "{phase}");
            let edges = buckets.iter().map(|bucket| bucket[0].as_u64().unwrap());
            assert!(edges.is_sorted_by(|one, next| one < next), "{phase}: {buckets:?}");
        }
    }
}

#[test]
fn the_help_names_every_phase() {
    let help = probe(&["--help"]);
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(help.status.success());
    for (phase, _) in PHASES {
        assert!(text.contains(phase), "{phase} is not in: {text}");
    }
    assert!(text.contains("calibrate"));
    let list: Vec<String> = serde_json::from_slice(&probe(&["list"]).stdout).unwrap();
    assert_eq!(list, PHASES.map(|(phase, _)| phase));
}

#[test]
fn a_calibration_is_in_proportion_to_the_machine() {
    let output = probe(&["calibrate"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // From a slow emulation to a CPU faster than any: rounds of four instructions in 1 ms.
    let rounds = figure(&report, "rounds_per_ms");
    assert!((100.0..10_000_000.0).contains(&rounds), "{rounds}");
}

#[test]
fn the_cost_of_a_scheduler_is_reported_when_asked_for() {
    let own = std::process::id().to_string();
    let report = measured("fairness", &["--scheduler", &own]);
    let percent = figure(&report, "own_cpu");
    assert!((0.0..=100.0 * 1024.0).contains(&percent), "{percent}");
    let output = probe(&["idle", "--seconds", "0.1", "--scheduler", "4194304"]);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint.contains("process 4194304"), "{complaint}");
}

#[test]
fn wrong_use_is_one_sentence() {
    for arguments in [&["magic"][..], &["wake", "--seconds", "0"], &["wake", "--seconds", "x"]] {
        let output = probe(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
}

/// A benchmark of this machine's own scheduler, in a folder of its own.
fn benchmark(name: &str, arguments: &[&str]) -> (Command, PathBuf) {
    let folder = std::env::temp_dir().join(format!("bench-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for the results");
    let mut command = Command::new(env!("CARGO_BIN_EXE_scx_pandemonium_user"));
    command.args(["bench", "run", "--kernel-only", "--output"]).arg(&folder).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    (command, folder)
}

/// What it has left behind; the folder goes.
fn results(folder: PathBuf) -> Value {
    let files: Vec<_> = fs::read_dir(&folder).expect("the folder is there").flatten().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let text = fs::read(files[0].path()).expect("the results are there");
    fs::remove_dir_all(folder).expect("the folder goes");
    serde_json::from_slice(&text).expect("the results are JSON")
}

#[test]
fn a_benchmark_keeps_what_counts_and_says_how_far_it_is() {
    let words = ["--phases", "fairness,wake", "--seconds", "0.1", "--iterations", "2"];
    let (mut command, folder) = benchmark("short", &words);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("[6/6]") && said.contains("warm-up") && said.contains("left"), "{said}");
    let results = results(folder);
    let runs = results["runs"].as_array().unwrap();
    let key = |run: &Value| (run["phase"].clone(), run["iteration"].clone());
    let keys: Vec<_> = runs.iter().map(key).collect();
    // In the order of the tables, and without the warm-up.
    let wanted = [("wake", 0), ("fairness", 0), ("wake", 1), ("fairness", 1)];
    assert_eq!(keys, wanted.map(|(phase, number)| (phase.into(), number.into())));
    assert_eq!(results["complete"], true);
    assert_eq!(results["machine"]["clock"], "real");
}

#[test]
fn a_signal_ends_a_benchmark_and_keeps_what_was_measured() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let words = ["--phases", "fairness,idle", "--seconds", "20", "--warm-up", "0"];
        let (mut command, folder) = benchmark("signal", &words);
        let mut child = command.spawn().unwrap();
        sleep(Duration::from_secs(3));
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(child.id() as libc::pid_t, signal) };
        assert_eq!(child.wait().unwrap().code(), Some(130));
        let results = results(folder);
        assert_eq!(results["complete"], false);
        assert_eq!(results["failures"], Value::Array(Vec::new()));
    }
}

#[test]
fn a_benchmark_that_cannot_be_is_refused_in_one_sentence() {
    for (words, wanted) in [
        (["--phases", "magic"], "there is no phase \"magic\""),
        (["--cpus", "4096"], "so 4096 cannot be used"),
    ] {
        let (mut command, folder) = benchmark("refused", &words);
        let output = command.output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert!(complaint.contains(wanted) && complaint.lines().count() == 1, "{complaint}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(folder).unwrap();
    }
}
