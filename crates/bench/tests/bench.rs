// SPDX-License-Identifier: GPL-2.0-only

//! The program `pandemonium_bench` from outside: files in, text and exit codes out.

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::{Command, Output};

/// A temporary directory for one test, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("scx-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a directory for the test");
        Scratch(path)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a file for the test");
        path.to_string_lossy().into_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pandemonium_bench"));
    command.args(arguments).output().expect("the program runs")
}

/// Runs the program, checks its exit code, and returns what it printed.
#[track_caller]
fn printed(code: i32, arguments: &[&str]) -> String {
    let output = bench(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs the program, which must fail with exit code 2 and one line on stderr, and returns that
/// line.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = bench(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
    assert!(error.starts_with("error: "), "{error}");
    error
}

/// A results file as docs/lab.md describes it. It is written out here once more, so that a change
/// of the format fails these tests. The latencies of `ours` are the kernel's times `ratio`.
fn results(iterations: u32, ratio: f64) -> Value {
    let mut runs = Vec::new();
    for iteration in 0..iterations {
        for (at, (scheduler, factor)) in
            [("kernel", 1.0), ("ours", ratio), ("peer", 1.0)].into_iter().enumerate()
        {
            // A different factor for every run, from 1 to 1.04.
            let noise = 1.0 + f64::from((iteration * 7 + at as u32 * 5) % 9) / 200.0;
            let p99 = 1_400.0 * factor * noise;
            runs.push(json!({
                "cpus": 2, "phase": "wake", "scheduler": scheduler, "iteration": iteration,
                "figures": [
                    { "name": "p99", "unit": "us", "better": "lower", "value": p99 },
                    { "name": "work", "unit": "1/s", "better": "higher", "value": 4_480.0 * noise },
                ],
                "curves": [{
                    "name": "latency", "unit": "ns",
                    "buckets":
                        [[50_000, 900], [(p99 * 900.0) as u64, 90], [(p99 * 1e3) as u64, 10]],
                }],
            }));
        }
    }
    let scheduler = |name: &str| json!({ "name": name, "version": "1.2.3", "command": name });
    json!({
        "format": "scx_pandemonium_user bench", "version": 1,
        "command": "bench run --seed 7", "seed": 7, "started": 1_790_000_000, "complete": true,
        "machine": {
            "kernel": "7.3.4", "config": ["CONFIG_PREEMPT=y"], "hz": 250, "cpu_model": "Some CPU",
            "cpus": 4, "clock": "exact", "versions": { "qemu": "10.0.2" },
        },
        "schedulers": [scheduler("kernel"), scheduler("ours"), scheduler("peer")],
        "runs": runs,
        "failures": [{
            "scheduler": "peer", "cpus": 4, "phase": "burst",
            "words": "Error: <b>stall</b>\u{1b}[2J of ktimers/1",
        }],
    })
}

#[test]
fn a_report_is_written_in_every_format() {
    let scratch = Scratch::new("forms");
    let file = scratch.file("r.json", results(8, 0.1).to_string());
    let text = printed(0, &["report", &file]);
    let better = |line: &str| line.starts_with("p99, us") && line.contains("  better");
    assert!(text.contains("wake, 2 CPUs") && text.lines().any(better), "{text}");
    assert!(text.contains("FAILED: peer in burst on 4 CPUs") && !text.contains('\u{1b}'), "{text}");
    assert_eq!(text, printed(0, &["report", &file]), "equal input gives equal output");
    assert_eq!(printed(0, &["report", &file, "--csv"]).lines().count(), 1 + 8 * 3 * 2);
    let json: Value = serde_json::from_str(&printed(0, &["report", &file, "--json"])).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), 2 * 3);
    let prometheus = printed(0, &["report", &file, "--prometheus"]);
    assert!(prometheus.contains("# TYPE scx_bench_seconds gauge\n"), "{prometheus}");
    let out = scratch.0.join("r.html");
    assert_eq!(printed(0, &["report", &file, "--html", "-o", out.to_str().unwrap()]), "");
    let html = fs::read_to_string(out).unwrap();
    let page = roxmltree::Document::parse_with_options(
        &html,
        roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() },
    );
    let page = page.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(page.descendants().filter(|node| node.tag_name().name() == "svg").count(), 2);
    for word in
        ["7.3.4", "CONFIG_PREEMPT=y", "bench run --seed 7", "Error: &lt;b&gt;stall", "10.0.2"]
    {
        assert!(html.contains(word), "{word}");
    }
    for foreign in ["src=", "href=\"http", "@import", "url("] {
        assert!(!html.contains(foreign), "the page refers to {foreign}");
    }
    let both = bench(&["report", &file, "--html", "--csv"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn tables_fit_the_width_and_beside_chooses_the_base() {
    let scratch = Scratch::new("width");
    let file = scratch.file("r.json", results(8, 0.1).to_string());
    let narrow = printed(0, &["report", &file, "--width", "60"]);
    let tables = narrow.split("wake, 2 CPUs").nth(1).expect("a table");
    let longest = tables.lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(60) && tables.contains("\n  peer "), "{narrow}");
    let beside = printed(0, &["report", &file, "--beside", "ours"]);
    assert!(beside.contains("kernel beside ours: 0 better, 1 worse"), "{beside}");
    assert!(beside.contains("peer beside ours: 0 better, 1 worse"), "{beside}");
    assert!(refused(&["report", &file, "--beside", "unknown"]).contains("\"unknown\""));
}

/// With a fake cargo that fails for one crate and logs its arguments, and a clang that is new
/// enough only under a name with a number.
#[test]
fn install_goes_on_after_a_failure_and_names_the_scheduler_that_failed() {
    let scratch = Scratch::new("install");
    let script = |name: &str, text: &str| {
        let path = scratch.file(name, format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a script");
    };
    script("clang-30", "echo Debian clang version 30.0.1");
    script("clang", "echo clang version 14.0.6");
    let program = "#!/bin/sh\\necho scx_good 1.2.3\\n";
    script(
        "cargo",
        &format!(
            "echo $BPF_CLANG $@ >> $4/asked\n[ $7 != scx_bad ] || {{ echo no; exit 101; }}\n\
             mkdir -p $4/bin $6\nprintf '{program}' > $4/bin/${{7%@*}}\n\
             chmod +x $4/bin/${{7%@*}}"
        ),
    );
    let path = format!("{}:/usr/bin:/bin", scratch.0.display());
    let install = |names: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pandemonium_bench"));
        command.args(["install", "--root"]).arg(scratch.0.join("to")).args(names);
        command.env("PATH", &path).env_remove("BPF_CLANG").output().expect("the program runs")
    };
    let output = install(&["scx_good@1.2.3", "scx_bad", "scx_more"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}{error}");
    for words in ["[2/3] scx_bad", "scx_good@1.2.3: scx_good 1.2.3, in ", "FAILED scx_bad", "no\n"]
    {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(
        error.contains("error: scx_bad could not be installed") && error.contains("libelf-dev")
    );
    let asked = fs::read_to_string(scratch.0.join("to/asked")).expect("the fake cargo ran");
    assert!(asked.lines().all(|line| line.starts_with("clang-30 install --locked")), "{asked}");
    // The build folder stays after a failure, for the next try, and is removed after a success.
    assert!(scratch.0.join("to/build").is_dir() && scratch.0.join("to/bin/scx_more").is_file());
    assert_eq!(install(&["scx_more"]).status.code(), Some(0));
    assert!(!scratch.0.join("to/build").exists());
    assert_eq!(install(&["--config=x"]).status.code(), Some(2));
}

/// As root: neither a compiler nor a folder that another user could have written is used.
#[test]
fn root_installs_with_nothing_that_another_user_could_have_written() {
    let scratch = Scratch::new("install-foreign");
    let cargo = scratch.file("cargo", "#!/bin/sh\ntouch $4/cargo-ran\n");
    let clang = scratch.file("clang-99", "#!/bin/sh\n");
    for script in [&cargo, &clang] {
        fs::set_permissions(script, fs::Permissions::from_mode(0o755)).expect("a script");
    }
    if fs::metadata(&clang).expect("it is there").uid() != 0 {
        return;
    }
    let to = scratch.0.join("to");
    let refused = |variable: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pandemonium_bench"));
        command.args(["install", "scx_any", "--root"]).arg(&to).env("BPF_CLANG", "/bin/true");
        command.env("PATH", format!("{}:/usr/bin:/bin", scratch.0.display()));
        command.env(variable, value);
        let output = command.output().expect("the program runs");
        assert_eq!(output.status.code(), Some(1));
        assert!(!to.join("cargo-ran").exists(), "it ran");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains("belongs to user 4711"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    chown(&clang, Some(4_711), None).expect("root may");
    assert!(refused("BPF_CLANG", &clang).contains("BPF_CLANG: root does not execute "));
    assert!(refused("BPF_CLANG", "clang-99").contains("BPF_CLANG: root does not execute "));
    let home = scratch.0.join("home");
    fs::create_dir(&home).expect("a folder");
    chown(&home, Some(4_711), None).expect("root may");
    let home = home.to_string_lossy();
    assert!(refused("CARGO_HOME", &home).contains("root does not build with "));
    chown(to.join("build"), Some(4_711), None).expect("root may");
    assert!(refused("LANG", "C").contains("root does not build in "));
    chown(to.join("build"), Some(0), None).expect("root may");
    chown(&to, Some(4_711), None).expect("root may");
    assert!(refused("LANG", "C").contains("root does not build in "));
}

#[test]
fn strict_makes_a_missed_bar_exit_code_1() {
    let scratch = Scratch::new("bars");
    let file = scratch.file("r.json", results(5, 0.12).to_string());
    let bar = |demand: &str| {
        let toml = format!("[[bar]]\nphase = \"wake\"\nfigure = \"p99\"\ndemand = \"{demand}\"\n");
        scratch.file("bars.toml", toml)
    };
    let bars = bar("ratio <= 0.10");
    let text = printed(0, &["report", &file, "--bars", &bars]);
    assert!(text.contains("MISSED by ") && text.contains("1 bars, 1 missed"), "{text}");
    printed(1, &["report", &file, "--bars", &bars, "--strict"]);
    let html = printed(0, &["report", &file, "--bars", &bars, "--html"]);
    assert!(html.contains("MISSED by "), "{html}");
    printed(0, &["report", &file, "--bars", &bar("ratio <= 0.2"), "--strict"]);
    printed(1, &["report", &file, "--bars", &bars, "--strict", "--scheduler", "peer"]);
    assert!(refused(&["report", &file, "--bars", &bar("fast")]).contains("\"fast\""));
    assert!(refused(&["report", &file, "--bars", &file]).contains("r.json"));
}

#[test]
fn the_exit_code_of_diff_is_1_after_a_regression() {
    let scratch = Scratch::new("diff");
    let old = scratch.file("old.json", results(8, 0.1).to_string());
    let new = scratch.file("new.json", results(8, 0.2).to_string());
    let worse = printed(1, &["diff", &old, &new]);
    assert!(worse.contains("ours wake p99, us, 2 CPUs") && worse.contains("1 worse"), "{worse}");
    assert!(printed(0, &["diff", &new, &old]).contains("1 better, 0 worse"));
    assert!(printed(0, &["diff", &old, &old]).contains("0 better, 0 worse"));
    printed(0, &["diff", &old, &new, "--scheduler", "peer"]);
    let few = scratch.file("few.json", results(2, 0.9).to_string());
    assert!(refused(&["diff", &few, &few]).contains("too few iterations"));
    let mut moved = results(8, 0.1);
    moved["machine"]["kernel"] = json!("7.2.13");
    let moved = scratch.file("moved.json", moved.to_string());
    assert!(printed(0, &["diff", &old, &moved]).contains("kernel: 7.3.4 before, 7.2.13 now"));
    let mut real = results(8, 0.1);
    real["machine"]["clock"] = json!("real");
    let real = scratch.file("real.json", real.to_string());
    assert!(refused(&["diff", &old, &real]).contains("real time"));
}

#[test]
fn a_hostile_file_is_an_error_of_one_line() {
    let scratch = Scratch::new("hostile");
    let good = results(5, 0.1).to_string();
    let mut newer = results(5, 0.1);
    newer["version"] = json!(99);
    let deep = "[".repeat(100_000);
    let many = |row: &str| format!("{{\"format\":\"x\",\"runs\":[{}0]}}", row.repeat(200_000));
    for (name, content, why) in [
        ("empty", String::new(), "no results file"),
        ("foreign", "#!/bin/sh\necho hello\n".into(), "no results file"),
        ("deep", deep, "no results file"),
        ("many", many("{},"), "no results file"),
        ("truncated", good[..good.len() / 2].into(), "ends too early"),
        ("newer", newer.to_string(), "newer"),
        ("odd", good.replace("\"ours\"", "\"o\\u001b]0;x\\u0007\""), "damaged"),
        ("nothing", good.replace("\"cpus\":2", "\"cpus\":0"), "damaged"),
    ] {
        let file = scratch.file(name, content);
        let error = refused(&["report", &file]);
        assert!(error.contains(why) && error.contains(name), "{name}: {error}");
        assert!(!error.chars().any(|c| c.is_control() && c != '\n'), "{name}: {error:?}");
        refused(&["diff", &file, &file]);
    }
    let bytes = scratch.file("bytes", [0xff, 0xfe, 0x00, 0x80]);
    assert!(refused(&["report", &bytes]).contains("not text"));
    let folder = scratch.0.to_str().unwrap();
    assert!(refused(&["report", folder]).contains("regular file"));
    assert!(refused(&["report", "/dev/zero"]).contains("regular file"));
    assert!(refused(&["report", &scratch.0.join("gone").to_string_lossy()]).contains("No such"));
    let link = scratch.0.join("loop");
    symlink(&link, &link).unwrap();
    refused(&["report", link.to_str().unwrap()]);
}

/// Whatever is in a file of the largest size, the program ends with a report or an error, not by
/// running out of memory.
#[test]
fn the_largest_file_does_not_exhaust_memory() {
    let scratch = Scratch::new("large");
    let mut base = results(1, 0.1);
    base["runs"] = json!([]);
    let base = base.to_string();
    let size = (8 << 20) - (64 << 10);
    let figure = |at: usize| {
        format!("{{\"name\":\"f{at}\",\"unit\":\"s\",\"better\":\"lower\",\"value\":{at}}}")
    };
    let curve =
        |buckets: &str| format!("{{\"name\":\"c\",\"unit\":\"ns\",\"buckets\":[{buckets}]}}");
    let run = |at: usize, figures: &str, curves: &str| {
        format!(
            "{{\"cpus\":1,\"phase\":\"a\",\"scheduler\":\"ours\",\"iteration\":{at},\
             \"figures\":[{figures}],\"curves\":[{curves}]}}"
        )
    };
    let edges =
        |count: usize| (1..count).map(|at| format!("[{at},1]")).collect::<Vec<_>>().join(",");
    let steps = curve(&edges(4_096));
    // The contents that take the most memory for their length in the file, with the exit code.
    let fill = |element: &dyn Fn(usize) -> String| {
        let (mut text, mut at) = (String::new(), 1);
        while text.len() + base.len() < size {
            text += &element(at);
            text += ",";
            at += 1;
        }
        text.pop();
        text
    };
    for (name, code, runs) in [
        ("runs", 0, fill(&|at| run(at, &figure(0), ""))),
        ("curves", 0, fill(&|at| run(at, &figure(0), &steps))),
        ("edges", 2, run(0, &figure(0), &curve(&fill(&|at| format!("[{at},1]"))))),
        ("figures", 2, run(0, &fill(&figure), "")),
        ("phases", 2, fill(&|at| run(0, &figure(0), "").replace("\"a\"", &format!("\"a{at}\"")))),
    ] {
        let runs = format!("\"runs\":[{runs}]");
        let file = scratch.file(name, base.replace("\"runs\":[]", &runs));
        for form in ["--json", "--html", "--prometheus", "--csv"] {
            let output = bench(&["report", &file, form]);
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{name} {form}: {error}");
        }
    }
}

/// A results file with two mixes, whose p99 under `ours` is the kernel's times the factor.
fn mixes(factors: [f64; 2]) -> Value {
    let mut results = results(1, 1.0);
    let part = |name: &str, notice: &str, p99: f64, work: f64| {
        json!({
            "name": name, "notice": notice, "tasks": 2, "weight": 1024, "equals": notice == "work",
            "count": 1_000, "p50_us": p99 / 2.0, "p99_us": p99, "p999_us": p99, "worst_us": p99,
            "missed": 0, "work": work, "least_to_most": null,
        })
    };
    let mut runs = Vec::new();
    for (mix, factor) in ["mix-2", "mix-4"].iter().zip(factors) {
        for (scheduler, factor) in [("kernel", 1.0), ("ours", factor), ("peer", 1.0)] {
            runs.push(json!({
                "cpus": 2, "phase": mix, "scheduler": scheduler, "iteration": 0, "curves": [],
                "figures": [{ "name": "work", "unit": "%", "better": "higher", "value": 190.0 }],
                "parts": [
                    part("editor", "wakeup", 4_000.0 * factor, 0.1),
                    part("hog", "work", 0.0, 1.9),
                ],
            }));
        }
    }
    results["runs"] = Value::from(runs);
    results
}

#[test]
fn each_mix_is_a_line_and_the_worst_has_the_command_that_repeats_it() {
    let scratch = Scratch::new("mixes");
    let file = scratch.file("mixes.json", mixes([0.1, 1.25]).to_string());
    let picture = scratch.0.join("mixes.svg");
    let drawn = picture.to_str().unwrap();
    let text = printed(0, &["mixes", &file, "--scheduler", "ours", "--picture", drawn]);
    let lines = text.lines().filter(|line| line.starts_with("mix-"));
    assert_eq!(lines.count(), 2, "{text}");
    assert!(text.contains("editor (wakeup) of mix-4 on 2 CPUs, 1.25 times"), "{text}");
    assert!(text.contains("--mix 4 --cpus 2"), "{text}");
    assert!(!text.contains("peer"), "{text}");
    assert_eq!(fs::read_to_string(picture).unwrap().matches("<circle").count(), 2);
    // The other commands know mixes as phases.
    assert!(printed(0, &["report", &file]).contains("mix-4"));
}

#[test]
fn a_file_without_mixes_or_with_nonsense_in_them_is_refused() {
    let scratch = Scratch::new("no-mixes");
    let none = scratch.file("none.json", results(1, 1.0).to_string());
    assert!(refused(&["mixes", &none]).contains("no mix"));
    let good = mixes([1.0, 1.0]);
    let file = scratch.file("good.json", good.to_string());
    assert!(refused(&["mixes", &file, "--scheduler", "x"]).contains("no such scheduler"));
    for (field, value) in [("missed", json!(2_000)), ("p99_us", json!(-1.0))] {
        let mut bad = good.clone();
        bad["runs"][0]["parts"][0][field] = value;
        let file = scratch.file("bad.json", bad.to_string());
        assert!(refused(&["mixes", &file]).contains("not sound"), "{field}");
    }
    assert!(refused(&["run", "--kernel-only", "--mix", "9..2"]).contains("2..60"));
}
