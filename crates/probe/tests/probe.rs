// SPDX-License-Identifier: GPL-2.0-only

//! Runs every phase of `pandemonium_probe` for a moment, under whatever scheduler this machine has.
//! The values depend on the machine, so the tests check only that each figure exists and is sound.

use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// All phases, each with a figure that it must report.
const PHASES: [(&str, &str); 25] = [
    ("wake", "p99.9"),
    ("burst", "p99"),
    ("longrun", "p99"),
    ("mixed", "p99"),
    ("new-tasks", "own_p99"),
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
/// Some phases that report a latency, and so a curve.
const CURVES: [&str; 4] = ["wake", "deadline", "ipc", "launch"];

fn probe(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pandemonium_probe"));
    command.args(arguments).stdin(Stdio::null()).output().expect("the probe runs")
}

fn measured(phase: &str, more: &[&str]) -> Value {
    // A calibration would take longer than the phase.
    let usual = [phase, "--seconds", "0.1", "--warm-up-ms", "10", "--rounds-per-ms", "20000"];
    let output = probe(&[&usual, more].concat());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{phase}: {message}");
    serde_json::from_slice(&output.stdout).expect("one object")
}

fn figure(report: &Value, name: &str) -> f64 {
    let figures = report["figures"].as_array().expect("figures are a list");
    let found = figures.iter().find(|figure| figure["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no {name} in {figures:?}"));
    found["value"].as_f64().expect("a figure is a number")
}

#[test]
fn every_phase_prints_its_figures_as_one_json_object() {
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

/// A folder with programs that leave a file behind when they are executed.
struct Traps(PathBuf);

impl Traps {
    fn new() -> Traps {
        let traps = Traps(std::env::temp_dir().join(format!("probe-traps-{}", std::process::id())));
        fs::create_dir(&traps.0).expect("a folder for the test");
        for name in ["cc", "gcc", "clang", "tcc", "as"] {
            let path = traps.0.join(name);
            let text = format!("#!/bin/sh\n: > {}\n", traps.mark().display());
            fs::write(&path, text).expect("a script");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a script");
        }
        traps
    }

    fn mark(&self) -> PathBuf {
        self.0.with_extension("executed")
    }

    fn give_away(&self, name: &str, user: u32) {
        chown(self.0.join(name), Some(user), None).expect("root may");
    }

    /// The phase `compile` with this PATH, and whether a trap was executed.
    fn compile(&self, path: &str) -> (Output, bool) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pandemonium_probe"));
        command.args(["compile", "--seconds", "0.05", "--rounds-per-ms", "20000"]);
        let output = command.env("PATH", path).stdin(Stdio::null()).output().expect("it runs");
        (output, fs::remove_file(self.mark()).is_ok())
    }
}

impl Drop for Traps {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        let _ = fs::remove_file(self.mark());
    }
}

#[test]
fn root_executes_no_compiler_that_another_user_could_have_written() {
    let traps = Traps::new();
    let folder = traps.0.display().to_string();
    assert!(traps.compile(&folder).1, "the trap works");
    if fs::metadata(&traps.0).expect("it is there").uid() != 0 {
        return;
    }
    let refused = |why: &str| {
        let (output, executed) = traps.compile(&folder);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), executed), (Some(1), false), "{message}");
        assert!(message.contains(why), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    };
    traps.give_away("cc", 4_711);
    refused("root does not execute ");
    traps.give_away("cc", 0);
    traps.give_away("", 4_711);
    refused("there is no C compiler here");
    // Neither does the system's compiler find its assembler there.
    if Path::new("/usr/bin/cc").exists() {
        let (output, executed) = traps.compile(&format!("{folder}:/usr/bin:/bin"));
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !executed, "{message}");
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
fn the_old_name_of_a_phase_still_works_with_a_warning() {
    let usual = ["--seconds", "0.1", "--warm-up-ms", "10", "--rounds-per-ms", "20000"];
    let output = probe(&[&["births"][..], &usual].concat());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    assert_eq!(message, "warning: the phase births is now named new-tasks\n");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert!(figure(&report, "own_p99").is_finite());
    let help = String::from_utf8(probe(&["--help"]).stdout).unwrap();
    assert!(!help.contains("births"), "{help}");
}

#[test]
fn a_calibration_is_within_the_range_of_real_machines() {
    let output = probe(&["calibrate"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // From a slow emulator to faster than any CPU: rounds of four instructions in 1 ms.
    let rounds = figure(&report, "rounds_per_ms");
    assert!((100.0..10_000_000.0).contains(&rounds), "{rounds}");
}

#[test]
fn the_cpu_time_of_the_scheduler_is_reported_on_request() {
    let own = std::process::id().to_string();
    let report = measured("fairness", &["--scheduler", &own]);
    let percent = figure(&report, "own_cpu");
    assert!((0.0..=100.0 * 1024.0).contains(&percent), "{percent}");
    let output = probe(&["idle", "--seconds", "0.1", "--scheduler", "4194304"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(message.contains("process 4194304"), "{message}");
}

#[test]
fn a_wrong_command_line_gets_one_sentence_and_exit_code_2() {
    for arguments in [&["magic"][..], &["wake", "--seconds", "0"], &["wake", "--seconds", "x"]] {
        let output = probe(arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}
