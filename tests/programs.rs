// SPDX-License-Identifier: GPL-2.0-only

//! Checks how the programs of the workspace work together: `scx_pandemonium_user` passes `bench`
//! and `probe` on to the programs beside it, and `pandemonium_bench` runs `pandemonium_probe`.
//!
//! Cargo builds the programs of other packages only with `--workspace`.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// The program under test, with the programs that it passes commands on to beside it.
fn program() -> Command {
    let path = Path::new(env!("CARGO_BIN_EXE_scx_pandemonium_user"));
    for name in ["pandemonium_bench", "pandemonium_probe"] {
        let other = path.with_file_name(name);
        let missing = format!("{} is missing: build with --workspace", other.display());
        assert!(other.is_file(), "{missing}");
    }
    let mut command = Command::new(path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn probe_passes_its_arguments_and_its_exit_code_on() {
    let words = ["probe", "wake", "--seconds", "0.1", "--warm-up-ms", "10"];
    let output = program().args(words).args(["--rounds-per-ms", "20000"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let figures = report["figures"].as_array().expect("figures are a list");
    assert!(figures.iter().any(|figure| figure["name"] == "p99"), "{figures:?}");

    let help = program().args(["probe", "--help"]).output().unwrap();
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(help.status.success() && text.contains("pandemonium_probe"), "{text}");

    let refused = program().args(["probe", "magic"]).output().unwrap();
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(message.contains("magic") && message.lines().count() == 1, "{message}");
}

/// A benchmark of the kernel's own scheduler, with a folder of its own for the results.
fn benchmark(name: &str, arguments: &[&str]) -> (Command, PathBuf) {
    let folder = std::env::temp_dir().join(format!("bench-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for the results");
    let mut command = program();
    command.args(["bench", "run", "--kernel-only", "--output"]).arg(&folder).args(arguments);
    (command, folder)
}

/// Reads the one results file and removes the folder.
fn results(folder: PathBuf) -> Value {
    let files: Vec<_> = fs::read_dir(&folder).expect("the folder exists").flatten().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let text = fs::read(files[0].path()).expect("the results can be read");
    fs::remove_dir_all(folder).expect("the folder can be removed");
    serde_json::from_slice(&text).expect("the results are JSON")
}

#[test]
fn a_benchmark_drops_the_warm_up_and_prints_its_progress() {
    let words = ["--phases", "fairness,wake", "--seconds", "0.1", "--iterations", "2"];
    let (mut command, folder) = benchmark("short", &words);
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    for part in ["[6/6]", "warm-up", "left"] {
        assert!(printed.contains(part), "no {part} in: {printed}");
    }
    let results = results(folder);
    let runs = results["runs"].as_array().unwrap();
    let key = |run: &Value| (run["phase"].clone(), run["iteration"].clone());
    let keys: Vec<_> = runs.iter().map(key).collect();
    // In the order of the tables, without the warm-up.
    let wanted = [("wake", 0), ("fairness", 0), ("wake", 1), ("fairness", 1)];
    assert_eq!(keys, wanted.map(|(phase, number)| (phase.into(), number.into())));
    assert_eq!(results["complete"], true);
    assert_eq!(results["machine"]["clock"], "real");
}

#[test]
fn a_signal_ends_a_benchmark_with_exit_code_130_and_a_results_file() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let words = ["--phases", "fairness,idle", "--seconds", "20", "--warm-up", "0"];
        let (mut command, folder) = benchmark("signal", &words);
        let mut child = command.spawn().unwrap();
        sleep(Duration::from_secs(3));
        // SAFETY: a child of this process, not yet waited for.
        unsafe { libc::kill(child.id() as libc::pid_t, signal) };
        assert_eq!(child.wait().unwrap().code(), Some(130));
        let results = results(folder);
        assert_eq!(results["complete"], false);
        assert_eq!(results["failures"], Value::Array(Vec::new()));
    }
}

#[test]
fn a_wrong_benchmark_is_refused_in_one_sentence_and_leaves_no_file() {
    for (words, wanted) in [
        (["--phases", "magic"], "there is no phase \"magic\""),
        (["--cpus", "4096"], "so 4096 cannot be used"),
    ] {
        let (mut command, folder) = benchmark("refused", &words);
        let output = command.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(wanted) && message.lines().count() == 1, "{message}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(folder).unwrap();
    }
}
