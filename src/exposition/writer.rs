// SPDX-License-Identifier: GPL-2.0-only

//! The text formats of Prometheus. They differ in the name of a counter's family and in the end.

use std::fmt::Write;

/// All names begin so.
const PREFIX: &str = "pandemonium_";

/// Which format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Version 0.0.4, without what only OpenMetrics has.
    Text,
}

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
}

/// A value with its labels.
pub struct Sample {
    labels: String,
    value: f64,
}

impl Sample {
    pub fn new(labels: &[(&str, &str)], value: f64) -> Sample {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
        Sample { labels: labels.join(","), value }
    }
}

/// Writes families, one after the other.
pub struct Writer {
    format: Format,
    text: String,
}

impl Writer {
    pub fn new(format: Format) -> Writer {
        Writer { format, text: String::new() }
    }

    /// A family of one value without labels.
    pub fn one(&mut self, kind: Kind, name: &str, help: &str, value: f64) {
        self.family(kind, name, help, &[Sample::new(&[], value)]);
    }

    /// A family of values that differ in their labels. One without values is left out.
    pub fn family(&mut self, kind: Kind, name: &str, help: &str, samples: &[Sample]) {
        if samples.is_empty() {
            return;
        }
        let (word, suffix) = match kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
        };
        // The older format has no suffixes: the name of a sample is that of its family.
        let of_family = if self.format == Format::Text { suffix } else { "" };
        self.head(&format!("{name}{of_family}"), word, help);
        for Sample { labels, value } in samples {
            self.sample(&format!("{name}{suffix}"), labels, *value);
        }
    }

    /// A family of histograms that differ in `label`: of each the label's value, and the counts up
    /// to each edge, the last of which is infinite. It has no sums: only buckets are counted.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        histograms: &[(&str, Vec<(f64, u64)>)],
    ) {
        self.head(name, "histogram", help);
        for (value, buckets) in histograms {
            for (edge, count) in buckets {
                let edge = if edge.is_finite() { edge.to_string() } else { "+Inf".into() };
                let labels = Sample::new(&[(label, value), ("le", &edge)], 0.0).labels;
                self.sample(&format!("{name}_bucket"), &labels, *count as f64);
            }
        }
    }

    /// The whole text.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text += "# EOF\n";
        }
        self.text
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# TYPE {PREFIX}{name} {kind}");
        let _ = writeln!(self.text, "# HELP {PREFIX}{name} {help}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let _ = match labels {
            "" => writeln!(self.text, "{PREFIX}{name} {value}"),
            _ => writeln!(self.text, "{PREFIX}{name}{{{labels}}} {value}"),
        };
    }
}

/// The value of a label between its quotes.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
