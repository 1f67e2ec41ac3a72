// SPDX-License-Identifier: GPL-2.0-only

//! The scheduler, by the socket that it serves to a group.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

/// How often to look for a scheduler that is awaited.
const AGAIN: Duration = Duration::from_secs(5);
/// A scheduler that hangs never responds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of a response: that to a change of the profile has some hundred bytes.
const BYTES_MAX: u64 = 64 * 1024;

/// Where the scheduler serves.
#[derive(Clone, Debug)]
pub struct Scheduler(PathBuf);

/// Whether a scheduler can be asked.
#[derive(Debug, PartialEq, Eq)]
pub enum Reach {
    /// One serves that did not before.
    Serves,
    /// It does not any more.
    Ended,
    /// One serves, for others.
    Denied(&'static str),
}

impl Scheduler {
    /// The scheduler that serves there, now or later.
    pub fn at(socket: PathBuf) -> Scheduler {
        Scheduler(socket)
    }

    /// Asks for a profile. Returns the sentence of a refusal.
    ///
    /// # Errors
    ///
    /// If the scheduler ends meanwhile, or does not answer.
    pub fn choose(&self, profile: &str, by: &str) -> Result<Option<String>> {
        let mut stream = UnixStream::connect(&self.0).context("connecting to the scheduler")?;
        request(&mut stream, profile, by).context("asking the scheduler")
    }

    /// Tells when a scheduler begins to serve and when it ends. It sends nothing that was not asked
    /// for, so a connection that can be read has ended.
    pub fn watch(&self, tell: &mut dyn FnMut(Reach)) -> ! {
        let mut was_denied = false;
        loop {
            match UnixStream::connect(&self.0) {
                Ok(mut stream) => {
                    tell(Reach::Serves);
                    let _ = stream.read(&mut [0]);
                    tell(Reach::Ended);
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied && !was_denied => {
                    was_denied = true;
                    tell(Reach::Denied(
                        "this user is not in the group of --profile-group, or was not when the \
                         session began",
                    ));
                }
                Err(_) => {}
            }
            sleep(AGAIN);
        }
    }
}

/// Sends a request, and returns the sentence of a refusal.
fn request(stream: &mut UnixStream, profile: &str, by: &str) -> Result<Option<String>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let set = format!("profile={profile}");
    let arguments = json!({ "target": "tune", "set": set, "by": by });
    writeln!(stream, "{}", json!({ "req": "stats", "args": arguments }))?;
    let mut line = String::new();
    BufReader::new(stream.take(BYTES_MAX)).read_line(&mut line)?;
    let response: Value = serde_json::from_str(&line).context("the response is no JSON")?;
    Ok(refusal(&response))
}

/// Why a response says no.
fn refusal(response: &Value) -> Option<String> {
    match (&response["errno"], &response["args"]["resp"]["refused"]) {
        (Value::Number(errno), _) if errno.as_i64() != Some(0) => {
            Some("the scheduler that runs has no profiles".into())
        }
        (_, Value::String(sentence)) => Some(sentence.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_from_an_answer() {
        let done = json!({ "errno": 0, "args": { "resp": { "knobs": [] } } });
        assert_eq!(refusal(&done), None);
        let refused = json!({ "errno": 0, "args": { "resp": { "refused": "no" } } });
        assert_eq!(refusal(&refused).as_deref(), Some("no"));
        let foreign = json!({ "errno": 22, "args": {} });
        assert!(refusal(&foreign).unwrap().contains("has no profiles"));
    }
}
