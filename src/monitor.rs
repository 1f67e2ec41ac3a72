// SPDX-License-Identifier: GPL-2.0-only

//! `--monitor`: the statistics of the running scheduler, as a view in a terminal or as lines.

use super::metrics::Metrics;
use super::{client, telemetry};
use pandemonium_host::failure::Failure;
use pandemonium_host::print::one_line;
use pandemonium_view::monitor::{Monitor, News};
use pandemonium_view::sample::Sample;
use pandemonium_view::terminal::{self, Inputs};
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

/// What a failure to connect says.
const WHAT: &str = "watch it";
const COMMAND: &str = "--monitor 1";

/// Shows the statistics every `interval` until it is interrupted.
pub fn run(interval: Duration) -> Result<(), Failure> {
    if client::has_terminal() {
        client::expect_permission(WHAT, COMMAND)?;
        return view(interval);
    }
    client::await_scheduler()?;
    lines(interval)
}

fn view(interval: Duration) -> Result<(), Failure> {
    let (inputs, received) = Inputs::new();
    client::end_on_signal(&inputs)?;
    inputs.spawn(move |inputs| gather(inputs, interval));
    let mut monitor = Monitor::new(interval, client::palette());
    terminal::run(&mut monitor, &inputs, &received, |never| match never {})
        .map_err(Failure::internal)
}

fn gather(inputs: &Inputs<News>, interval: Duration) {
    let start = Instant::now();
    let pause = |wait| {
        thread::sleep(wait);
        true
    };
    client::follow(None, interval, pause, |sample: Option<Sample>| {
        let at = start.elapsed();
        inputs.news(match sample {
            Some(sample) => News::Sample(at, Box::new(sample)),
            None => News::Waiting(at),
        })
    });
}

/// Prints a line every interval. A reader that has gone away ends it.
fn lines(interval: Duration) -> Result<(), Failure> {
    let mut outcome = Ok(());
    let pause = |wait| {
        thread::sleep(wait);
        true
    };
    client::follow(None, interval, pause, |metrics: Option<Metrics>| {
        let Some(metrics) = metrics else {
            outcome = client::await_scheduler();
            return outcome.is_ok();
        };
        let line = telemetry::line(&metrics);
        writeln!(std::io::stdout(), "{}", one_line(&line)).is_ok()
    });
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_view_reads_fields_that_exist() {
        let fields = |value: serde_json::Value| match value {
            serde_json::Value::Object(fields) => fields,
            other => panic!("{other}"),
        };
        let served = fields(serde_json::to_value(Metrics::default()).unwrap());
        let shown = fields(serde_json::to_value(Sample::default()).unwrap());
        let missing: Vec<_> = shown.keys().filter(|name| !served.contains_key(*name)).collect();
        assert!(missing.is_empty() && shown.len() > 20, "{missing:?}");
        let mut metrics = Metrics::default();
        metrics.take_fast_path(&Default::default());
        let sample: Sample =
            serde_json::from_value(serde_json::to_value(&metrics).unwrap()).unwrap();
        assert!(sample.tails.contains_key("wait_lat_critical"), "{sample:?}");
        assert!(sample.tails.contains_key("stage_running"), "{sample:?}");
    }
}
