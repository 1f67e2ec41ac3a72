// SPDX-License-Identifier: GPL-2.0-only

//! Reads the scheduler's statistics, over the socket that every scx tool uses.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const SOCKET: &str = "/var/run/scx/root/stats";
/// The scheduler under test schedules the server's thread too: a long wait is a finding.
const PATIENCE: Duration = Duration::from_secs(4);
/// The scheduler serves statistics from its first round on, so for a moment after the load there
/// is no socket yet.
const SOON: Duration = Duration::from_secs(2);
const GLANCE: Duration = Duration::from_millis(20);

/// One answer of the server.
pub struct Statistics {
    fields: Value,
}

impl Statistics {
    pub fn ask() -> Result<Statistics> {
        let all = request(&json!({}));
        let line = Connection::open().and_then(|mut opened| opened.exchange(&all));
        let fields = line.and_then(|line| answer(&line));
        let fields = fields.with_context(|| format!("asking for statistics at {SOCKET}"))?;
        Ok(Statistics { fields })
    }

    pub fn count(&self, field: &str) -> Result<u64> {
        let value = &self.fields[field];
        value.as_u64().with_context(|| {
            format!("the statistics have no number named {field}: {}", self.fields)
        })
    }

    /// How far a counter has risen since an earlier answer.
    pub fn rise(&self, before: &Statistics, field: &str) -> Result<u64> {
        Ok(self.count(field)? - before.count(field)?)
    }

    pub fn text(&self, field: &str) -> Result<&str> {
        let value = &self.fields[field];
        value
            .as_str()
            .with_context(|| format!("the statistics have no text named {field}: {}", self.fields))
    }
}

fn connect() -> std::io::Result<UnixStream> {
    let start = Instant::now();
    loop {
        match UnixStream::connect(SOCKET) {
            Err(_) if start.elapsed() < SOON => std::thread::sleep(GLANCE),
            result => return result,
        }
    }
}

/// Changes knobs or the profile, as `by` asks for it.
pub fn tune(set: &str, by: &str) -> Result<()> {
    Connection::open()?.tune(set, by)
}

/// A connection to the server, for any number of requests.
pub struct Connection(BufReader<UnixStream>);

impl Connection {
    pub fn open() -> Result<Connection> {
        let stream = connect()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Connection(BufReader::new(stream)))
    }

    /// Changes knobs or the profile, as `by` asks for it.
    pub fn tune(&mut self, set: &str, by: &str) -> Result<()> {
        expect_tuned(&self.exchange(&tune_request(set, by))?).with_context(|| set.to_owned())
    }

    /// Sends a request, and returns the line of the answer.
    pub fn exchange(&mut self, request: &str) -> Result<String> {
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line)
    }
}

/// The line that asks for other knobs or another profile.
pub fn tune_request(set: &str, by: &str) -> String {
    request(&json!({ "target": "tune", "set": set, "by": by }))
}

/// Expects the answer to such a request to be no refusal.
pub fn expect_tuned(line: &str) -> Result<()> {
    let response = answer(line)?;
    ensure!(response.get("refused").is_none(), "refused: {response}");
    Ok(())
}

fn request(arguments: &Value) -> String {
    format!("{}\n", json!({ "req": "stats", "args": arguments }))
}

fn answer(line: &str) -> Result<Value> {
    let mut answer: Value =
        serde_json::from_str(line).with_context(|| format!("reading {line:?}"))?;
    if answer["errno"] != 0 {
        bail!("the server refused: {line}");
    }
    Ok(answer["args"]["resp"].take())
}
