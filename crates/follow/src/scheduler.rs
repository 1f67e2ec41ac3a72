// SPDX-License-Identifier: GPL-2.0-only

//! Asks the running scheduler for a profile, over its socket, in the protocol of `scx_stats`.

use crate::desktop::Wish;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// How long to wait for a response: a scheduler that hangs never responds.
const PATIENCE: Duration = Duration::from_millis(5_000);
/// The longest response that is read. All knobs take some 10 KiB.
const RESPONSE_MAX: u64 = 1 << 20;

/// Why a wish was not granted.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This user may not write to the socket.
    Denied,
    /// No scheduler listens, or not yet.
    Absent,
    /// What the scheduler said, or what went wrong.
    Said(String),
}

/// The scheduler's socket.
pub struct Scheduler {
    path: PathBuf,
    /// The connection of the last wish, kept to notice the scheduler's end.
    connection: Option<UnixStream>,
}

impl Scheduler {
    /// The scheduler that listens at this path.
    pub fn at(path: PathBuf) -> Scheduler {
        Scheduler { path, connection: None }
    }

    /// Asks for a profile.
    pub fn ask(&mut self, wish: &Wish) -> Result<(), Refusal> {
        let stream = self.connect().map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => Refusal::Denied,
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => Refusal::Absent,
            _ => Refusal::Said(format!("cannot connect to the scheduler: {error}")),
        })?;
        let set = format!("profile={}", wish.profile);
        let args = json!({ "target": "tune", "set": set, "by": wish.by });
        let request = json!({ "req": "stats", "args": args }).to_string() + "\n";
        let failed = |error| Refusal::Said(format!("the scheduler did not respond: {error}"));
        (&stream).write_all(request.as_bytes()).map_err(failed)?;
        let mut response = String::new();
        let mut reader = BufReader::new((&stream).take(RESPONSE_MAX));
        reader.read_line(&mut response).map_err(failed)?;
        judge(&response)?;
        self.connection = Some(stream);
        Ok(())
    }

    fn connect(&self) -> std::io::Result<UnixStream> {
        let stream = UnixStream::connect(&self.path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Whether the scheduler that granted the last wish still runs.
    pub fn still_runs(&self) -> bool {
        let Some(connection) = &self.connection else { return false };
        if connection.set_nonblocking(true).is_err() {
            return false;
        }
        let read = (&*connection).read(&mut [0]);
        matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}

/// What a response says.
fn judge(response: &str) -> Result<(), Refusal> {
    let no_response = || Refusal::Said("the scheduler's response has another form".into());
    let response: Value = serde_json::from_str(response).map_err(|_| no_response())?;
    match response.pointer("/errno").and_then(Value::as_i64) {
        Some(0) => {}
        Some(_) => return Err(Refusal::Said("the scheduler that runs has no profiles".into())),
        None => return Err(no_response()),
    }
    match response.pointer("/args/resp/refused").and_then(Value::as_str) {
        Some(sentence) => Err(Refusal::Said(sentence.into())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_grants_refuses_or_is_none() {
        assert_eq!(judge(r#"{"errno":0,"args":{"resp":{"knobs":[]}}}"#), Ok(()));
        let refused = judge(r#"{"errno":0,"args":{"resp":{"refused":"there is no profile"}}}"#);
        assert_eq!(refused, Err(Refusal::Said("there is no profile".into())));
        assert!(judge(r#"{"errno":22,"args":{}}"#).is_err());
        assert!(judge("").is_err() && judge("{}").is_err());
    }

    #[test]
    fn without_a_scheduler_the_wish_is_neither_denied_nor_granted() {
        let mut scheduler = Scheduler::at("/nowhere/stats".into());
        let wish = Wish { profile: "auto".into(), by: "a test".into() };
        assert_eq!(scheduler.ask(&wish), Err(Refusal::Absent));
        assert!(!scheduler.still_runs());
    }
}
