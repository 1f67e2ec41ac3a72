// SPDX-License-Identifier: GPL-2.0-only

//! A stranger with a policy of their own: `pandemonium_lab new` in an empty folder outside of the
//! repository, and nothing edited here. The VM scenario `stranger` loads the scheduler that this
//! test leaves beside ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where the programs of the workspace are.
fn programs() -> PathBuf {
    let ours = Path::new(env!("CARGO_BIN_EXE_scx_pandemonium_user"));
    ours.parent().expect("a program lies in a folder").to_path_buf()
}

/// The stranger's folder, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let folder = std::env::temp_dir().join(format!("stranger-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder for the test");
        Folder(folder)
    }

    /// Builds there with cargo, into the folder where our own programs are and with our level of
    /// optimisation for libraries: what both need is built once.
    fn build(&self, programs_and_features: &[&str]) -> Output {
        let target = programs().parent().expect("target/PROFILE").to_path_buf();
        let mut cargo = self.cargo("build");
        cargo.args(["--release", "--config", "profile.release.package.\"*\".opt-level=\"s\""]);
        cargo.args(programs_and_features);
        // As on a machine whose `clang` is new enough.
        let clang = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/clang");
        cargo.env("CARGO_TARGET_DIR", target).env("BPF_CLANG", clang);
        cargo.output().expect("cargo runs")
    }

    /// The dependencies of the package in this folder, without its feature `kernel`.
    fn dependencies(&self) -> String {
        let tree = self.cargo("tree").output().expect("cargo runs");
        succeeds("the dependencies", &tree);
        String::from_utf8_lossy(&tree.stdout).into_owned()
    }

    fn cargo(&self, command: &str) -> Command {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(&self.0).args([command, "--offline"]);
        cargo
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[track_caller]
fn succeeds(what: &str, output: &Output) {
    let error = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{what}: {}\n{said}\n{error}", output.status);
}

fn lab(arguments: &[&str]) -> Output {
    let mut lab = Command::new(programs().join("shortest_lab"));
    lab.args(arguments).output().expect("the stranger's lab runs")
}

#[test]
fn a_stranger_writes_a_policy_simulates_it_and_builds_a_scheduler() {
    let folder = Folder::new();
    let repository = env!("CARGO_MANIFEST_DIR");
    let new = Command::new(programs().join("pandemonium_lab"))
        .args(["new", "shortest", "--source", repository, "--dir"])
        .arg(&folder.0)
        .output()
        .expect("the lab is built beside the scheduler: build with --workspace");
    succeeds("new", &new);
    // Of the same versions as ours, so that nothing has to be fetched.
    fs::copy(Path::new(repository).join("Cargo.lock"), folder.0.join("Cargo.lock"))
        .expect("a copy");

    let for_the_lab = folder.dependencies();
    assert!(for_the_lab.contains("pandemonium_lab"), "{for_the_lab}");
    assert!(!for_the_lab.contains("libbpf"), "the lab needs clang: {for_the_lab}");
    succeeds("building the lab and the scheduler", &folder.build(&["--features", "kernel"]));
    succeeds("a run", &lab(&["run", "wake", "-p", "shortest,vruntime", "--set", "brief_us=400"]));
    succeeds("1,000 seeds", &lab(&["swarm", "1000"]));

    let help = Command::new(programs().join("shortest")).arg("--help").output().expect("it runs");
    succeeds("its help", &help);

    // With the same feature, so that no library is built again.
    let the_lab = ["--features", "kernel", "--bin", "shortest_lab"];
    lose_a_task(&folder.0.join("src/lib.rs"));
    succeeds("the broken lab", &folder.build(&the_lab));
    let swarm = lab(&["swarm", "100"]);
    assert_eq!(swarm.status.code(), Some(1), "a lost task goes unnoticed");
    let said = String::from_utf8_lossy(&swarm.stdout);
    assert!(said.contains("repeat: "), "{said}");

    // The whole one stays for the scenario of the VM.
    restore_the_task(&folder.0.join("src/lib.rs"));
    succeeds("the lab again", &folder.build(&the_lab));
}

const ENQUEUE: &str = "self.queue.insert(slot, key);";
const LOSE: &str = "if arrival.pid.as_raw() % 7 != 0 { self.queue.insert(slot, key); }";

/// Breaks the policy: tasks with some pids are never queued.
fn lose_a_task(policy: &Path) {
    replace(policy, ENQUEUE, LOSE);
}

fn restore_the_task(policy: &Path) {
    replace(policy, LOSE, ENQUEUE);
}

fn replace(file: &Path, old: &str, new: &str) {
    let text = fs::read_to_string(file).expect("the stranger's policy");
    assert!(text.contains(old), "{} lacks {old}", file.display());
    fs::write(file, text.replace(old, new)).expect("it can be written");
}
