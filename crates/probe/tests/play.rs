// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_probe play` under whatever scheduler this machine has. The values depend on the
//! machine, so the tests check only that each part is measured, and sound.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Rounds in a millisecond, so that no calibration is needed: work is short on every machine.
const ROUNDS: &str = "20000";

fn play(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pandemonium_probe"));
    command.arg("play").args(arguments).stdin(Stdio::null()).output().expect("the probe runs")
}

#[track_caller]
fn parts(arguments: &[&str]) -> Vec<Value> {
    let output = play(arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {message}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one object");
    report["parts"].as_array().expect("a list of parts").clone()
}

/// A workload file, removed on drop.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let name = format!("play-{name}-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).expect("a file for the test");
        File(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Every kind, with names by which the tasks can be found.
fn every_kind() -> String {
    let table = |name: &str, fields: &str| {
        format!("[[task]]\nname = \"{name}\"\n{}\n", fields.replace("; ", "\n"))
    };
    let mut text = "name = \"all\"\nduration_ms = 1200\nwarmup_ms = 200\n".to_owned();
    for (name, fields) in [
        ("pl-hog", "kind = \"burn\"; count = 2; nice = 5"),
        ("pl-idle", "kind = \"burn\"; idle_class = true"),
        ("pl-batch", "kind = \"burn\"; batch_class = true; cpus = \"0\""),
        ("pl-job", "kind = \"job\"; count = 2; work_us = 500; sleep_us = 500; respawn = true"),
        ("pl-exec", "kind = \"job\"; work_us = 500; respawn = true; exec = true"),
        ("pl-thread", "kind = \"job\"; work_us = 500; respawn = true; threads = true"),
        (
            "pl-sleep",
            "kind = \"sleep\"; count = 2; sleep_us = [2000, 4000]; work_us = 20; \
            counts = false; threads = true",
        ),
        (
            "pl-burst",
            "kind = \"burst\"; sleep_us = 9000; pause_us = 200; work_us = 20; \
            counts = false",
        ),
        ("pl-tick", "kind = \"periodic\"; period_us = [4000, 6000]; work_us = 20; counts = false"),
        (
            "pl-frame",
            "kind = \"team\"; length = 3; period_us = 8000; deadline_us = 8000; \
            work_us = 20; counts = false",
        ),
        (
            "pl-audio",
            "kind = \"chain\"; length = 3; period_us = 5000; deadline_us = 5000; \
            work_us = 20; counts = false",
        ),
        ("pl-pool", "kind = \"team\"; length = 3; work_us = 500"),
        ("pl-pipe", "kind = \"pipe\"; length = 3; sleep_us = 3000; counts = false"),
        ("pl-futex", "kind = \"pipe\"; sync = false; sleep_us = 3000; counts = false"),
        (
            "pl-storm",
            "kind = \"storm\"; burst = 3; sleep_us = 20000; pause_us = 1; work_us = 50; \
            counts = false",
        ),
        (
            "pl-sh",
            "kind = \"storm\"; burst = 3; sleep_us = 20000; pause_us = 1; work_us = 50; \
            counts = false; exec = true",
        ),
        (
            "pl-change",
            "kind = \"change\"; burst = 5; sleep_us = 2000; work_us = 20; \
            compute_us = 5000; pause_us = 9000; counts = false",
        ),
    ] {
        text += &table(name, fields);
    }
    text
}

#[test]
fn every_kind_is_played_and_measured_and_none_of_its_tasks_is_left() {
    let file = File::new("all", &every_kind());
    let parts = parts(&[file.path(), "--rounds-per-ms", ROUNDS]);
    assert_eq!(parts.len(), 17, "{parts:?}");
    for part in &parts {
        let (count, work) = (part["count"].as_u64().unwrap(), part["work"].as_f64().unwrap());
        match part["notice"].as_str().unwrap() {
            // A busy machine may leave nothing for SCHED_IDLE.
            "work" => assert!(count == 0 && (work > 0.0 || part["weight"] == 3), "{part}"),
            _ => assert!(count >= 3, "{part}"),
        }
        let times = ["p50_us", "p99_us", "p999_us", "worst_us"];
        assert!(times.map(|time| part[time].as_f64().unwrap()).is_sorted(), "{part}");
    }
    let of = |name: &str| parts.iter().find(|part| part["name"] == name).unwrap();
    assert_eq!((&of("pl-hog")["equals"], &of("pl-hog")["weight"]), (&true.into(), &335.into()));
    assert!(of("pl-hog")["least_to_most"].as_f64().unwrap() > 0.0);
    assert_eq!(of("pl-storm")["notice"], "fork");
    assert!(of("pl-pipe")["p50_us"].as_f64().unwrap() < 1e6);
    assert_eq!(left_over("pl-"), Vec::<String>::new());
}

/// Names of running tasks that begin so.
fn left_over(prefix: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("a list of processes").flatten();
    let name = |path: &Path| fs::read_to_string(path.join("comm")).ok();
    let names = processes.filter_map(|entry| name(&entry.path()));
    names.filter(|name| name.starts_with(prefix)).collect()
}

#[test]
fn a_mix_has_the_same_parts_in_every_play() {
    let short = ["--seconds", "0.3", "--warm-up-ms", "50", "--rounds-per-ms", ROUNDS];
    for seed in ["2", "8"] {
        let names = || -> Vec<(Value, Value)> {
            let parts = parts(&[&["--mix", seed][..], &short].concat());
            parts.iter().map(|part| (part["name"].clone(), part["notice"].clone())).collect()
        };
        let (first, second) = (names(), names());
        assert!(first.len() >= 2 && first == second, "{first:?} {second:?}");
    }
}

#[test]
fn what_cannot_be_played_is_refused_in_one_sentence() {
    let kthread = "name = \"x\"\nduration_ms = 9\n[[task]]\nname = \"k\"\nkind = \"burn\"\n";
    let kthread = File::new("kthread", &format!("{kthread}kthread = true\n"));
    let wrong = File::new("wrong", "name = \"x\"\n");
    for (arguments, code, said) in [
        (vec![], 2, "FILE"),
        (vec!["--mix", "2", wrong.path()], 2, "cannot be used with"),
        (vec!["--mix", "x"], 2, "invalid value"),
        (vec!["no-such-file.toml"], 1, "cannot read no-such-file.toml"),
        (vec![wrong.path(), "--rounds-per-ms", ROUNDS], 1, "line 1"),
        (vec![kthread.path(), "--rounds-per-ms", ROUNDS], 1, "can be simulated only"),
    ] {
        let output = play(&arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert!(message.contains(said), "{message}");
    }
}
