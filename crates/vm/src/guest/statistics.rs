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
        let answer = Connection::open().and_then(|mut opened| opened.exchange(&json!({})));
        let fields = answer.with_context(|| format!("asking for statistics at {SOCKET}"))?;
        Ok(Statistics { fields })
    }

    pub fn count(&self, field: &str) -> Result<u64> {
        let value = &self.fields[field];
        value.as_u64().with_context(|| {
            format!("the statistics have no number named {field}: {}", self.fields)
        })
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
        let response = self.exchange(&json!({ "target": "tune", "set": set, "by": by }))?;
        ensure!(response.get("refused").is_none(), "{set} was refused: {response}");
        Ok(())
    }

    fn exchange(&mut self, arguments: &Value) -> Result<Value> {
        let request = json!({ "req": "stats", "args": arguments });
        self.0.get_mut().write_all(format!("{request}\n").as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let mut answer: Value =
            serde_json::from_str(&line).with_context(|| format!("reading {line:?}"))?;
        if answer["errno"] != 0 {
            bail!("the server refused: {line}");
        }
        Ok(answer["args"]["resp"].take())
    }
}
