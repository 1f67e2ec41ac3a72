// SPDX-License-Identifier: GPL-2.0-only

//! The program itself: what a person types and what comes back.

use std::path::Path;
use std::process::{Command, Output};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pandemonium_lab"))
        .args(arguments)
        .output()
        .expect("the lab runs")
}

fn printed(arguments: &[&str]) -> String {
    let output = lab(arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("the lab prints text")
}

/// The tables that a command prints, to be read by a program.
fn tables(arguments: &[&str]) -> serde_json::Value {
    let json = printed(&[arguments, &["--format", "json"]].concat());
    serde_json::from_str(&json).expect("tables are JSON")
}

/// A changed number is a change of behaviour: its author looks at the difference and commits
/// it. `BLESS=1 cargo test --release --test sim scores` writes the new table.
#[test]
fn the_scores_under_review_are_those_that_are_measured() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim/scores.txt");
    let measured = printed(&["scores"]);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &measured).unwrap();
    }
    let reviewed = std::fs::read_to_string(&path).unwrap_or_default();
    let changed: Vec<String> = reviewed
        .lines()
        .zip(measured.lines())
        .filter(|(before, now)| before != now)
        .map(|(before, now)| format!("- {before}\n+ {now}"))
        .collect();
    let changed = changed.join("\n");
    assert!(reviewed == measured, "BLESS=1 accepts what has changed:\n{changed}");
}

#[test]
fn a_run_prints_the_same_twice_and_says_what_it_is_about() {
    let run = || printed(&["run", "wake", "-n", "2", "-p", "pandemonium,fifo", "--seed", "9"]);
    let text = run();
    assert_eq!(text, run());
    for word in ["probe", "LatCritical", "p99.9", "throughput", "seed 9", "2 CPUs"] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
    assert_ne!(text, printed(&["run", "wake", "-n", "2", "-p", "pandemonium,fifo", "--seed", "8"]));
}

/// Beside tasks that wake up every few microseconds a hog runs, and they go on as they did.
#[test]
fn a_hog_lives_beside_a_pair_that_never_sleeps_for_long() {
    let ran = |batch_starvation, orders| {
        let rule = format!("rule.batch_starvation={batch_starvation}");
        let orders = format!("rule.orders={orders}");
        let tables = tables(&["run", "ipc", "-n", "1", "--set", &rule, "--set", &orders]);
        let figure = |row: usize, name| tables[2]["rows"][row][name].as_f64().unwrap();
        assert_eq!(tables[2]["rows"][0]["task"], "stress");
        (figure(0, "work"), figure(1, "p99"))
    };
    let (with, without) = (ran("on", "off"), ran("off", "off"));
    assert!(with.0 > 1.2 * without.0, "work: {with:?}, {without:?}");
    assert!(with.1 < 1.1 * without.1, "p99: {with:?}, {without:?}");
    let (orders, orders_alone) = (ran("on", "on"), ran("off", "on"));
    assert!(orders.0 > with.0 && orders.1 < 1_000.0, "with orders {orders:?}, without {with:?}");
    assert!(orders.0 > 2.0 * orders_alone.0, "work: {orders:?}, {orders_alone:?}");
}

/// Two rings fill the machine. At the start an audio client falls behind, works without a sleep and
/// becomes Batch: it catches up, although each urgent task preempts it.
#[test]
fn a_client_that_has_fallen_behind_catches_up_beside_rings() {
    for seed in ["2", "8"] {
        let tables = tables(&["run", "mix-42", "-n", "2", "--seed", seed]);
        let rows = tables[3]["rows"].as_array().unwrap();
        let audio = rows.iter().find(|row| row["task"] == "pipewire").unwrap();
        assert!(audio["missed %"].as_f64().unwrap() < 1.0, "seed {seed}: {audio}");
    }
}

/// On one CPU a program computes for a quarter of a second before it sleeps, beside two hogs of
/// half its weight, a ring and short bursts. Virtual time orders only tasks in the policy's queue.
/// Each urgent decision sends a Batch task along, so all hogs were in the shared DSQ, which is in
/// the order of time. The program got a third of its share, and never slept.
#[test]
fn beside_light_hogs_and_urgent_tasks_a_program_gets_half_of_its_share() {
    let tables = tables(&["run", "mix-140", "-n", "1", "-p", "vruntime,pandemonium"]);
    let rows = tables[2]["rows"].as_array().unwrap();
    let work = |policy| {
        let mut rows = rows.iter().filter(|row| row["policy"] == policy);
        let editor = rows.find(|row| row["task"] == "editor").unwrap();
        editor["work"].as_f64().unwrap()
    };
    let (fair, ours) = (work("vruntime"), work("pandemonium"));
    assert!(ours > 0.5 * fair, "the program did {ours}, and {fair} by virtual time alone");
}

#[test]
fn tables_come_as_csv_and_json_too() {
    let tables = tables(&["run", "wake", "-n", "2"]);
    assert_eq!(tables[0]["rows"][0]["policy"], "pandemonium");
    assert!(tables[0]["rows"][0]["throughput"].as_f64().unwrap() > 1.5);
    let csv = printed(&["run", "wake", "-n", "2", "--format", "csv"]);
    assert!(csv.starts_with("policy,throughput,"), "{csv}");
}

#[test]
fn mistakes_are_explained() {
    for (arguments, expected) in [
        (&["run", "wale"][..], "there is no workload \"wale\""),
        (&["run", "no/such.toml"], "cannot read no/such.toml"),
        (&["run", "wake", "--set", "slice=1"], "there is no knob \"slice\""),
        (&["run", "wake", "--set", "slice_us=1"], "100 to 100000"),
        (&["run", "wake", "--cost", "x=1"], "there is no cost \"x\""),
        (&["run", "wake", "-n", "0"], "1..=1024"),
        (&["compare", "wake", "-p", "fifo"], "two or more different policies"),
        (&["compare", "wake", "-p", "fifo,fifo"], "two or more different policies"),
        (&["swarm", "0"], "0 is not in 1.."),
        (&["compare", "wake", "--seeds", "3"], "3 is not in 10"),
        (&["sweep", "wake", "--over", "cpus"], "cpus=2..64"),
        (&["rules", "2..4", "--only", "rule.luck"], "there is no switch \"rule.luck\""),
        (&["swarm", "1", "--without", "rain"], "expected one of ring-full"),
    ] {
        let output = lab(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
    }
}

#[test]
fn comparing_gives_verdicts_outside_the_noise_only() {
    let csv =
        printed(&["compare", "wake", "-n", "2", "-p", "vruntime,pandemonium", "--format", "csv"]);
    let verdict = |metric: &str| {
        let row = csv.lines().find(|line| line.starts_with(&format!("{metric},pandemonium,")));
        row.and_then(|row| row.rsplit(',').next()).unwrap_or_default().to_owned()
    };
    assert_eq!(verdict("wake p99 us"), "better", "{csv}");
    assert_ne!(verdict("throughput"), "better", "{csv}");
    assert_ne!(verdict("throughput"), "worse", "{csv}");
}

#[test]
fn a_sweep_has_a_row_for_each_value() {
    let csv = printed(&["sweep", "wake", "--over", "cpus=1..6", "--format", "csv"]);
    let values: Vec<&str> = csv.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
    assert_eq!(values, ["1", "2", "4", "6"]);
}

/// Chance alone moves something, and so does the classification; a rule for 8 CPUs does not.
#[test]
fn a_rule_that_is_turned_over_shows_what_it_moves() {
    let only = "rule.classifier,rule.vtime_ceiling";
    let tables = tables(&["rules", "2..12", "-n", "2", "--only", only]);
    let rows = tables[0]["rows"].as_array().unwrap();
    let acts: Vec<(&str, u64)> = rows
        .iter()
        .map(|row| (row["turned over"].as_str().unwrap(), row["acts in"].as_u64().unwrap()))
        .collect();
    let [(chance, all), (classifier, some), (ceiling, none)] = acts[..] else { panic!("{acts:?}") };
    assert_eq!((chance, all), ("(another seed)", 6));
    assert!(classifier == "rule.classifier=off" && some >= 4, "{acts:?}");
    assert_eq!((ceiling, none), ("rule.vtime_ceiling=off", 0));
    let moved = |row: usize| rows[row]["p99"].as_f64().unwrap();
    assert!(moved(1) != 1.0 && moved(2) == 1.0, "{} {}", moved(1), moved(2));
}

/// Under plain fair order a shorter slice lets a wakee run earlier, at the cost of more switches.
#[test]
fn a_search_finds_a_better_slice_and_ends_the_same_after_an_interruption() {
    let path = std::env::temp_dir().join(format!("pandemonium-search-{}", std::process::id()));
    let journal = path.to_str().expect("a path");
    let plain = ["search", "wake", "-n", "1", "-p", "vruntime", "--knobs", "slice_us"];
    let short = ["--settings", "9", "--rounds", "1", "--hold", "work>=0.9"];
    let whole = printed(&[&plain[..], &short].concat());
    assert!(
        whole.contains("\nbetter than the defaults in p99, beyond chance: slice_us="),
        "{whole}"
    );
    let kept = [&plain[..], &short, &["--journal", journal]].concat();
    assert_eq!(printed(&kept), whole);
    let written = std::fs::read(&path).expect("a journal");
    std::fs::write(&path, &written[..written.len() / 2]).expect("a shorter one");
    assert_eq!(printed(&kept), whole, "as after an interruption");
    let sorted = |text: &[u8]| {
        let text = String::from_utf8(text.to_vec()).expect("text");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&std::fs::read(&path).expect("a journal")), sorted(&written));
    let other = lab(&["search", "wake", "--journal", journal]);
    assert_eq!(other.status.code(), Some(2), "the journal of another policy");
    std::fs::remove_file(path).expect("a file");
}

#[test]
fn a_swarm_says_how_to_repeat_a_failure_and_that_repeats_it() {
    let output = lab(&["swarm", "20", "--policy", "dropping"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    let smaller = text.lines().find_map(|line| line.strip_prefix("smaller: pandemonium_lab "));
    let arguments: Vec<&str> = smaller.expect("a smaller run").split(' ').collect();
    let again = lab(&arguments);
    assert_eq!(again.status.code(), Some(1));
    let again = String::from_utf8(again.stdout).unwrap();
    assert!(again.contains("the checker of conservation complains"), "{again}");
}

/// A file of this name in a folder of this test run's own.
fn scratch(name: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    folder.join(name).to_string_lossy().into_owned()
}

#[test]
fn a_replay_repeats_every_decision_and_names_the_first_that_differs() {
    let file = scratch("replay.rec");
    for policy in ["pandemonium", "vruntime", "fifo"] {
        printed(&["run", "desktop", "-n", "4", "-p", policy, "--record", &file]);
        let text = printed(&["replay", &file]);
        assert!(text.contains("repeats every one of them"), "{text}");
        let decisions: u64 = text
            .lines()
            .find_map(|line| line.split_once(" decisions in "))
            .and_then(|(count, _)| count.parse().ok())
            .unwrap_or_default();
        assert!(decisions > 1_500, "{text}");
    }
    let output = lab(&["replay", &file, "--policy", "pandemonium"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("for the first time at entry"), "{text}");
    assert!(text.contains("recorded: ") && text.contains("kwin_wayland"), "{text}");
}

#[test]
fn a_changed_setting_shows_in_a_replay() {
    let file = scratch("knob.rec");
    printed(&["run", "wake", "-n", "2", "--record", &file, "--redact"]);
    let replay = |set: &[&str]| lab(&[&["replay", &file][..], set].concat()).status.code();
    assert_eq!(replay(&[]), Some(0));
    assert_eq!(replay(&["--set", "batch_slice_us=2000"]), Some(1));
    assert_eq!(replay(&["--set", "batch_slice=2000"]), Some(2));
}

#[test]
fn a_task_is_explained_in_sentences() {
    let file = scratch("explain.rec");
    printed(&["run", "wake", "-n", "4", "--record", &file]);
    let probe = printed(&["explain", &file, "--task", "probe"]);
    let by_order = " times by standing orders, the last time by the order of ";
    assert!(probe.contains(by_order) && probe.contains(" of 32, preempting burner["), "{probe}");
    let text = printed(&["explain", &file, "--task", "burner", "--over-us", "4000"]);
    let simulated = printed(&["explain", "wake", "-n", "4", "-t", "burner", "--over-us", "4000"]);
    assert_eq!(simulated, text);
    printed(&["run", "wake", "-n", "4", "--record", &file, "--set", "rule.orders=off"]);
    let text = printed(&["explain", &file, "--task", "burner", "--over-us", "4000"]);
    for words in ["burner (pid 1000) is Batch", "burner had the earlier deadline", "had lost"] {
        assert!(text.contains(words), "{words} is missing in\n{text}");
    }
    let many = printed(&["explain", "vm-burst", "-n", "2", "-t", "parent", "--over-us", "90000"]);
    assert!(many.contains(" more tasks bear the name parent."), "{many}");
    assert!(many.contains("chosen") && many.contains("it was its turn"), "{many}");
    let output = lab(&["explain", "wake", "--task", "nobody"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("burner, probe"), "{errors}");
}

/// Where the names of elements come from is no place that a browser goes to.
const SVG: &str = "http://www.w3.org/2000/svg";

#[test]
fn a_report_is_one_file_that_needs_nothing_else() {
    let file = scratch("report.html");
    printed(&["report", "mixed-storm", "-n", "2", "--out", &file]);
    let html = std::fs::read_to_string(&file).unwrap();
    for part in ["<!DOCTYPE html>", "tier LatCritical", "class=\"better\"", "HEAVY", "slice_us "] {
        assert!(html.contains(part), "{part} is missing");
    }
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let page = roxmltree::Document::parse_with_options(&html, options).expect("well-formed XML");
    let (mut pictures, mut run_intervals) = (0, 0);
    for node in page.descendants().filter(|node| node.is_element()) {
        let name = node.tag_name().name();
        assert!(!["link", "img", "iframe", "object", "embed", "base"].contains(&name), "{name}");
        for attribute in node.attributes() {
            let (key, value) = (attribute.name(), attribute.value());
            let leads_out = ["src", "href", "data"].contains(&key) || value.contains("//");
            assert!(!leads_out && !value.contains("url("), "{name} {key}={value}");
        }
        if name == "svg" {
            pictures += 1;
            assert_eq!(node.tag_name().namespace(), Some(SVG));
            let view = node.attribute("viewBox").expect("a picture says how large it is");
            let size: Vec<f64> = view.split(' ').map(|part| part.parse().unwrap()).collect();
            assert!(size.len() == 4 && size[2] > 0.0 && size[3] > 0.0, "{view}");
        }
        if name == "rect" && node.parent().unwrap().attribute("class") == Some("timeline") {
            run_intervals += 1;
            let number = |key| node.attribute(key).unwrap_or_default().parse::<f64>().unwrap();
            assert!(number("x") >= 0.0 && number("width") > 0.0 && number("height") == 16.0);
        }
    }
    // Curves, and for each policy a timeline and a history; for one of them also the knobs.
    assert!(pictures >= 9 && run_intervals > 100, "{pictures} pictures, {run_intervals} stints");
    for elsewhere in ["@import", "url(", "fetch(", "import("] {
        assert!(!html.contains(elsewhere), "{elsewhere} leads out of the file");
    }
    let places = html.replace(SVG, "").replace("http://www.w3.org/1999/xhtml", "");
    assert!(!places.contains("://"), "a URL that is no name space");
}

#[test]
fn a_trace_tells_who_had_which_cpu() {
    let file = scratch("trace.json");
    printed(&["run", "wake", "-n", "2", "--trace", &file]);
    let text = std::fs::read_to_string(&file).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let run_intervals: Vec<&serde_json::Value> =
        events.iter().filter(|event| event["ph"] == "X" && event["tid"] == 1).collect();
    assert!(run_intervals.len() > 500, "{}", run_intervals.len());
    let end = |run_interval: &serde_json::Value| {
        run_interval["ts"].as_f64().unwrap() + run_interval["dur"].as_f64().unwrap()
    };
    for pair in run_intervals.windows(2) {
        let (before, after) = (end(pair[0]), pair[1]["ts"].as_f64().unwrap());
        assert!(before <= after + 0.001, "two at once on a CPU: {pair:?}");
    }
    assert!(events.iter().any(|event| event["name"] == "interrupt"));
    let ran = events.iter().filter(|event| event["ph"] == "X");
    let names: Vec<&str> = ran.filter_map(|event| event["name"].as_str()).collect();
    for name in ["scheduler", "burner", "probe"] {
        assert!(names.iter().any(|found| found.starts_with(name)), "{name} never ran");
    }
}

/// The trace event format, as its documentation has it: what each phase needs.
#[test]
fn a_trace_keeps_to_the_trace_event_format() {
    let file = scratch("format.json");
    printed(&["run", "desktop", "-n", "3", "--trace", &file]);
    let text = std::fs::read_to_string(&file).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(["ms", "ns"].contains(&trace["displayTimeUnit"].as_str().unwrap()));
    let events = trace["traceEvents"].as_array().expect("the JSON object format");
    let mut named = std::collections::BTreeSet::new();
    for event in events {
        let number = |key: &str| event[key].as_f64().filter(|number| *number >= 0.0);
        assert!(event["name"].is_string(), "{event}");
        assert!(event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
        match event["ph"].as_str().unwrap() {
            // A complete event: when it began and how long it took, in microseconds.
            "X" => assert!(number("ts").is_some() && number("dur").is_some(), "{event}"),
            // An instant event, with a scope: global, process or thread.
            "i" => {
                let scoped = ["g", "p", "t"].contains(&event["s"].as_str().unwrap());
                assert!(scoped && number("ts").is_some(), "{event}");
            }
            // Metadata: what a process or a thread is called.
            "M" => {
                let name = event["name"].as_str().unwrap();
                assert!(["process_name", "thread_name"].contains(&name), "{event}");
                assert!(event["args"]["name"].is_string(), "{event}");
                named.insert((name.to_owned(), event["tid"].as_u64()));
            }
            other => panic!("the format knows {other}, and nothing here writes it"),
        }
    }
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let thread = ("thread_name".to_owned(), event["tid"].as_u64());
        assert!(named.contains(&thread), "a stint on a CPU without a name: {event}");
    }
}

/// docs/simulator.md, "Beside the VM": what the lab measured on two virtual CPUs. P99 in us of
/// `pandemonium`, `vruntime` and `fifo`, and the hogs' work in units a second. A change of a policy
/// so that an order turns round measures in the lab whether it does so there too.
const MEASURED: [(&str, [f64; 3], [f64; 3]); 6] = [
    ("vm-wake", [69.0, 3_637.0, 11_962.0], [3_259.0, 3_249.0, 3_288.0]),
    ("vm-long", [65.0, 3_307.0, 11_953.0], [3_259.0, 3_249.0, 3_288.0]),
    ("vm-mixed", [105.0, 4_224.0, 17_859.0], [1_584.0, 1_721.0, 1_901.0]),
    ("vm-burst", [2_596.0, 12_968.0, 28_082.0], [2_987.0, 2_992.0, 3_007.0]),
    ("vm-frame", [4_393.0, 6_837.0, 16_173.0], [2_891.0, 2_892.0, 2_893.0]),
    ("vm-pipe", [86.0, 96.0, 15_446.0], [1_663.0, 1_791.0, 3_267.0]),
];
/// What the lab measures differs by so much from boot to boot: figures nearer to each other than
/// this part of the larger one are a tie, which the model may break as it likes. The work beside
/// pipes depends on which of two unequal CPUs they occupy.
fn noise(workload: &str) -> [f64; 2] {
    if workload == "vm-pipe" { [0.12, 0.09] } else { [0.05, 0.003] }
}

/// Whether the lab has no order for the two, or the model has the same.
fn agree(lab: [f64; 2], model: [f64; 2], noise: f64) -> bool {
    let tie = (lab[0] - lab[1]).abs() <= noise * lab[0].max(lab[1]);
    tie || lab[0].total_cmp(&lab[1]) == model[0].total_cmp(&model[1])
}

#[test]
fn the_model_orders_the_policies_as_the_lab_does() {
    let policies = ["pandemonium", "vruntime", "fifo"];
    for (workload, p99, work) in MEASURED {
        let tables = tables(&["run", workload, "-n", "2", "-p", &policies.join(",")]);
        let row = |table: usize, policy: &str, task: fn(&str) -> bool| {
            let rows = tables[table]["rows"].as_array().cloned().unwrap_or_default();
            let mut rows = rows.into_iter().filter(|row| row["policy"] == policy);
            rows.find(|row| row["task"].as_str().is_some_and(task))
        };
        let probe = |name: &str| ["probe", "parent", "game", "pipe"].contains(&name);
        // What a task measures itself, where it does.
        let late = |policy| {
            let row = row(3, policy, probe).or_else(|| row(2, policy, probe)).unwrap();
            row["p99"].as_f64().unwrap()
        };
        let hogs = |policy| row(2, policy, |name| name == "hog").unwrap()["work"].as_f64().unwrap();
        for (first, second) in [(0, 1), (1, 2), (0, 2)] {
            let (one, other) = (policies[first], policies[second]);
            let same = |lab: [f64; 3], model: [f64; 2], noise| {
                let lab = [lab[first], lab[second]];
                assert!(
                    agree(lab, model, noise),
                    "{workload}: {one} and {other} are {lab:?} in the lab, {model:?} in the model"
                );
            };
            let [late_noise, work_noise] = noise(workload);
            same(p99, [late(one), late(other)], late_noise);
            same(work, [hogs(one), hogs(other)], work_noise);
        }
    }
}
