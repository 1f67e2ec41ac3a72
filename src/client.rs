// SPDX-License-Identifier: GPL-2.0-only

//! The statistics socket, from the side of a command that asks the running scheduler.

use anyhow::anyhow;
use pandemonium_host::failure::Failure;
use scx_stats::prelude::*;
use std::io::ErrorKind;

/// How long to wait for a response, in milliseconds: a scheduler that hangs never responds.
pub const PATIENCE_MS: u64 = 5_000;

/// Connects to the running scheduler. If that is not permitted, the error says that only the
/// scheduler's user may do `what`, and how: with the command `command`.
pub fn connect(what: &str, command: &str) -> Result<StatsClient, Failure> {
    StatsClient::new().connect(Some(PATIENCE_MS)).map_err(|error| unconnected(error, what, command))
}

/// The failure to connect, in a sentence.
pub fn unconnected(error: anyhow::Error, what: &str, command: &str) -> Failure {
    match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            Failure::Internal(anyhow!("no scheduler runs here that serves statistics"))
        }
        Some(ErrorKind::PermissionDenied) => Failure::Denied(format!(
            "only the user who runs the scheduler may {what}: `sudo scx_pandemonium_user {command}`"
        )),
        _ => Failure::Internal(error.context("cannot ask the running scheduler")),
    }
}
