// SPDX-License-Identifier: GPL-2.0-only

//! Debian's own Prometheus and node_exporter, as they are installed, collect our metrics.

use super::guide::command;
use super::machine::{run, shell, tail, wait_for};
use super::service;
use crate::guest::{Guest, report};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::cell::RefCell;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const DASHBOARD: &str = "/usr/share/scx_pandemonium_user/grafana-dashboard.json";
const FILE: &str = "/var/lib/prometheus/node-exporter/scx.prom";
const SERVICES: &str = "prometheus prometheus-node-exporter";
const SERVER: &str = "127.0.0.1:9090";
const LATENCY: &str = "pandemonium_wakeup_latency_seconds";
/// Debian's Prometheus asks node_exporter every 15 s, and a rate needs two answers.
const RATE: &str = "2m";
const COLLECT_LIMIT: Duration = Duration::from_secs(240);

pub fn collected(guest: &Guest) -> Result<()> {
    service::expect_in_charge()?;
    let hogs = format!("systemd-run --quiet --unit=vm-hogs -- /bin/sh -c '{}'", {
        "while :; do :; done & ".repeat(2 * guest.cpus) + "wait"
    });
    shell(&hogs)?;
    let textfile = command("sudo scx_pandemonium_user metrics --textfile ")?;
    shell(&format!("systemd-run --quiet --unit=vm-textfile -- /bin/sh -c '{textfile}'"))?;
    wait_for("a textfile", COLLECT_LIMIT, || Ok(fs::exists(FILE)?))?;
    let lint = run(&format!("promtool check metrics <{FILE}"))?;
    ensure!(lint.code == Some(0), "promtool: {}", tail(&lint.output));
    shell(&format!("systemctl start {SERVICES}"))?;
    let p99 = format!("histogram_quantile(0.99, sum(rate({LATENCY}_bucket[{RATE}])) by (le)) > 0");
    wait_for("a wakeup latency in Prometheus", COLLECT_LIMIT, || Ok(!query(&p99)?.is_empty()))?;
    report::note(format!("p99 of wakeups in seconds, from Prometheus: {}", query(&p99)?));
    expect_help()?;
    expect_dashboard()?;
    shell(&format!("systemctl stop vm-textfile vm-hogs {SERVICES}"))?;
    fs::remove_file(FILE).context("removing the textfile")?;
    shell("rm -rf /var/lib/prometheus/metrics2/*").map(drop)
}

/// What Prometheus answers; nothing while it does not run or knows no such series.
fn query(expression: &str) -> Result<String> {
    let ran = run(&format!("promtool query instant http://{SERVER} '{expression}'"))?;
    ensure!(!ran.output.contains("bad_data"), "`{expression}`: {}", ran.output);
    Ok(if ran.code == Some(0) { ran.output.trim().to_owned() } else { String::new() })
}

/// Prometheus has stored our sentence about a figure.
fn expect_help() -> Result<()> {
    let text = fs::read_to_string(FILE).context("reading the textfile")?;
    let begin = format!("# HELP {LATENCY} ");
    let ours = text.lines().find_map(|line| line.strip_prefix(&begin));
    let ours = ours.with_context(|| format!("no help for {LATENCY}: {text}"))?;
    let answer = get(&format!("/api/v1/metadata?metric={LATENCY}"))?;
    let answer: Value = serde_json::from_str(&answer).context("Prometheus answers in JSON")?;
    let help = &answer["data"][LATENCY][0]["help"];
    ensure!(help == ours, "Prometheus explains {LATENCY} by {help}, and not by {ours:?}");
    report::note(format!("{LATENCY}: {ours}"));
    Ok(())
}

fn get(path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(SERVER).context("connecting to Prometheus")?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").context("asking Prometheus")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("reading from Prometheus")?;
    let (_, body) = answer.split_once("\r\n\r\n").context("an answer with a head and a body")?;
    Ok(body.to_owned())
}

/// No panel of our dashboard is empty.
fn expect_dashboard() -> Result<()> {
    let text = fs::read_to_string(DASHBOARD).context("reading the dashboard")?;
    let dashboard: Value = serde_json::from_str(&text).context("the dashboard is JSON")?;
    let panels = dashboard["panels"].as_array().context("the dashboard has panels")?;
    let mut count = 0;
    for panel in panels {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().context("a target has an expression")?;
            let expression =
                expression.replace("$__rate_interval", RATE).replace("$instance", ".*");
            // A figure is missing while the last answer of node_exporter came too late.
            let what = format!("{}: a value of `{expression}`", panel["title"]);
            let value = RefCell::new(String::new());
            wait_for(&what, COLLECT_LIMIT, || {
                value.replace(query(&expression)?);
                Ok(!value.borrow().is_empty())
            })?;
            let value = value.into_inner();
            report::telemetry(format!("{}: {}", panel["title"], value.replace('\n', ", ")));
            count += 1;
        }
    }
    report::note(format!("all {count} expressions of the dashboard have values"));
    ensure!(count > 0, "the dashboard asks for nothing");
    Ok(())
}
