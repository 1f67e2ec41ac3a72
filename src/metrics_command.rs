// SPDX-License-Identifier: GPL-2.0-only

//! `metrics`: the statistics of the running scheduler for Prometheus, printed or as a file.

use super::cli::MetricsArguments;
use super::client;
use super::exposition::{FORMAT, TARGET, TEXTFILE};
use super::group_socket::Grant;
use anyhow::Context;
use pandemonium_host::durable::{self, Existing};
use pandemonium_host::failure::Failure;
use pandemonium_host::print::print_bytes;
use scx_stats::prelude::StatsClient;
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Runs the command.
pub fn run(arguments: &MetricsArguments) -> Result<(), Failure> {
    let connect = || client::connect_as(Grant::Statistics, "read its metrics", "metrics");
    let Some(path) = &arguments.textfile else {
        let text = request(&mut connect()?, "openmetrics").map_err(Failure::Internal)?;
        print_bytes(text.as_bytes());
        return Ok(());
    };
    let mut client = Some(connect()?);
    loop {
        // A file that is not renewed would show the last figures for ever: without a scheduler
        // this ends, and node_exporter tells the age of the file.
        let text = match client.as_mut().map(|client| request(client, TEXTFILE)) {
            Some(Ok(text)) => text,
            _ => {
                let again = client.insert(connect()?);
                request(again, TEXTFILE).map_err(Failure::Internal)?
            }
        };
        put(path, &text).map_err(Failure::Internal)?;
        let Some(seconds) = arguments.every else { return Ok(()) };
        thread::sleep(Duration::from_secs_f64(seconds));
    }
}

fn request(client: &mut StatsClient, format: &str) -> anyhow::Result<String> {
    let request = [("target", TARGET), (FORMAT, format)];
    let request = request.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    client.request("stats", request).context("the scheduler that runs has no metrics")
}

/// Replaces the file at once: its reader finds all of the old text or all of the new one.
fn put(path: &Path, text: &str) -> anyhow::Result<()> {
    let say = || format!("cannot write {}", path.display());
    let name = path.file_name().with_context(say)?;
    let directory = durable::directory(durable::parent(path)).with_context(say)?;
    durable::put(&directory, name, Existing::Replaced, |file| file.write_all(text.as_bytes()))
        .with_context(say)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_textfile_is_replaced_as_a_whole_and_leaves_nothing_beside_it() {
        let folder = std::env::temp_dir().join(format!("metrics-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("scx.prom");
        put(&path, "a 1\nb 2\n").unwrap();
        put(&path, "a 2\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a 2\n");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        let missing = put(&folder.join("none/scx.prom"), "").unwrap_err().to_string();
        assert!(missing.starts_with("cannot write ") && missing.ends_with("none/scx.prom"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
