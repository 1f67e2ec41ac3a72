// SPDX-License-Identifier: GPL-2.0-only

//! The statistics socket, from the side of a command that asks the running scheduler.

use super::group_socket::Grant;
use super::{output, process};
use anyhow::anyhow;
use pandemonium_host::failure::Failure;
use pandemonium_host::preflight;
use pandemonium_view::style::Palette;
use pandemonium_view::terminal::Inputs;
use scx_stats::prelude::*;
use serde::de::DeserializeOwned;
use std::io::{ErrorKind, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

/// How long to wait for a response, in milliseconds: a scheduler that hangs never responds.
pub const PATIENCE_MS: u64 = 5_000;
/// The first interval of a connection is this at most, so that a view begins soon.
const FIRST: Duration = Duration::from_millis(250);
/// How often to look for a scheduler that is awaited.
const AGAIN: Duration = Duration::from_millis(500);
/// A loaded scheduler serves after this at the latest. On a quiet machine the kernel runs it for
/// the first time at its heartbeat, a second after the load.
const JUST_LOADED: Duration = Duration::from_millis(3_000);
/// How often to look for the socket of a scheduler that has just been loaded.
const GLANCE: Duration = Duration::from_millis(20);

/// Connects to the running scheduler. If that is not permitted, the error says that only the
/// scheduler's user may do `what`, and how: with the command `command`.
///
/// A scheduler that has just been loaded serves only after its first round: then this waits a
/// moment.
pub fn connect(what: &str, command: &str) -> Result<StatsClient, Failure> {
    connect_by(connect_now, what, command)
}

/// The same for a client that does what a group may do too.
pub fn connect_as(grant: Grant, what: &str, command: &str) -> Result<StatsClient, Failure> {
    connect_by(|| connect_now_as(grant), what, command)
}

fn connect_by(
    connect: impl Fn() -> anyhow::Result<StatsClient>,
    what: &str,
    command: &str,
) -> Result<StatsClient, Failure> {
    let start = Instant::now();
    loop {
        let error = match connect() {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        let may_come = || preflight::is_running(&process::scheduler_name());
        if start.elapsed() >= JUST_LOADED || !is_absent(&error) || !may_come() {
            return Err(unconnected(error, what, command));
        }
        thread::sleep(GLANCE);
    }
}

/// Connects to the running scheduler, without waiting for it.
pub fn connect_now() -> anyhow::Result<StatsClient> {
    StatsClient::new().connect(Some(PATIENCE_MS))
}

/// The same for a client that only reads statistics.
fn connect_now_to_read() -> anyhow::Result<StatsClient> {
    connect_now_as(Grant::Statistics)
}

/// Connects by the socket of the scheduler's user, or else by that of a group.
fn connect_now_as(grant: Grant) -> anyhow::Result<StatsClient> {
    connect_now().or_else(|error| match kind(&error) {
        Some(ErrorKind::PermissionDenied) => {
            let by_group = StatsClient::new().set_path(grant.path());
            by_group.connect(Some(PATIENCE_MS)).map_err(|_| error)
        }
        _ => Err(error),
    })
}

/// Fails if this user may not read the statistics. Succeeds if there is no scheduler.
pub fn expect_permission(what: &str, command: &str) -> Result<(), Failure> {
    match connect_now_to_read() {
        Err(error) if !is_absent(&error) => Err(unconnected(error, what, command)),
        _ => Ok(()),
    }
}

/// Requests a target, or the statistics, every `interval`, over as many connections as it takes.
/// `take` gets each response, and nothing while no scheduler responds; `pause` waits. Either ends
/// this by returning `false`.
///
/// The first response of a connection has no interval, so it is left out.
pub fn follow<T: DeserializeOwned>(
    target: Option<&str>,
    interval: Duration,
    mut pause: impl FnMut(Duration) -> bool,
    mut take: impl FnMut(Option<T>) -> bool,
) {
    let request: Vec<_> =
        target.map(|target| ("target".to_owned(), target.to_owned())).into_iter().collect();
    loop {
        let ask = |client: &mut StatsClient| client.request::<T>("stats", request.clone());
        if let Ok(mut client) = connect_now_to_read()
            && ask(&mut client).is_ok()
        {
            if !pause(interval.min(FIRST)) {
                return;
            }
            while let Ok(response) = ask(&mut client) {
                if !take(Some(response)) || !pause(interval) {
                    return;
                }
            }
        }
        if !take(None) || !pause(AGAIN) {
            return;
        }
    }
}

/// Whether a view can be shown.
pub fn has_terminal() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    !is_dumb && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// The colours of a view.
pub fn palette() -> Palette {
    Palette::of(std::env::var_os("NO_COLOR").as_deref())
}

/// Has signals end the loop of a view, which puts the terminal back.
pub fn end_on_signal<N: Send + 'static>(inputs: &Inputs<N>) -> Result<(), Failure> {
    let inputs = inputs.clone();
    ctrlc::set_handler(move || inputs.end()).map_err(Failure::internal)
}

/// Waits until a scheduler serves statistics, and says so if it has to wait.
pub fn await_scheduler() -> Result<(), Failure> {
    let mut has_said = false;
    loop {
        let Err(error) = connect_now_to_read() else { return Ok(()) };
        if !is_absent(&error) {
            return Err(unconnected(error, "watch it", "--monitor 1"));
        }
        if !has_said {
            output::warn(
                "no scheduler runs here that serves statistics: waiting for one; start it with \
                 `sudo scx_pandemonium_user`, or end this with Ctrl-C",
            );
            has_said = true;
        }
        thread::sleep(AGAIN);
    }
}

fn kind(error: &anyhow::Error) -> Option<ErrorKind> {
    error.downcast_ref::<std::io::Error>().map(std::io::Error::kind)
}

/// Whether no scheduler listens.
fn is_absent(error: &anyhow::Error) -> bool {
    matches!(kind(error), Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused))
}

/// The failure to connect, in a sentence.
pub fn unconnected(error: anyhow::Error, what: &str, command: &str) -> Failure {
    match kind(&error) {
        _ if is_absent(&error) => {
            Failure::Internal(anyhow!("no scheduler runs here that serves statistics"))
        }
        Some(ErrorKind::PermissionDenied) => Failure::Denied(format!(
            "only the user who runs the scheduler may {what}: `sudo scx_pandemonium_user {command}`"
        )),
        _ => Failure::Internal(error.context("cannot ask the running scheduler")),
    }
}
