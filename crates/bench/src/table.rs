// SPDX-License-Identifier: GPL-2.0-only

//! A results file on a terminal, and the words that all forms share.

use super::digest::{Cell, Digest, Group, show, show_like};
use super::report::Report;
use super::results::{Clock, Results};
use pandemonium_statistics::grid;
use pandemonium_statistics::verdict::{LEVEL, NOTICED, Verdict, Why, iterations_needed};
use std::fmt::Write;

/// For so many columns, or for as many as it takes.
pub fn text(report: &Report, columns: Option<usize>) -> String {
    let Report { results, digest, bars } = report;
    let mut text = String::new();
    let facts = facts(results);
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in facts {
        text += &format!("{name:width$}  {value}\n");
    }
    text += &tables(digest, columns);
    if let Some(bars) = bars {
        let (title, columns, rows) = bars.table();
        text += "\n";
        text += &grid::text(&title, &columns, &rows);
        text += &format!("{}\n", bars.summary());
    }
    for failure in &results.failures {
        text += &format!("\nFAILED: {}\n", failure.sentence());
    }
    text += "\n";
    for sentence in [summaries(digest), legend(digest)].concat() {
        text += &wrapped(&sentence, columns.unwrap_or(usize::MAX));
    }
    clean(&text)
}

/// Schedulers side by side if all tables fit so, else below each other.
fn tables(digest: &Digest, columns: Option<usize>) -> String {
    let all = |table: fn(&Group, &[String]) -> String| -> String {
        let tables = digest.groups.iter().map(|group| table(group, &digest.schedulers));
        tables.map(|table| format!("\n{table}")).collect()
    };
    let wide = all(side_by_side);
    match columns {
        Some(columns) if wide.lines().any(|line| line.chars().count() > columns) => all(listed),
        _ => wide,
    }
}

/// Four columns for each scheduler, so that equal things stand under each other.
fn side_by_side(group: &Group, schedulers: &[String]) -> String {
    let mut columns = vec![""];
    for (at, name) in schedulers.iter().enumerate() {
        columns.extend_from_slice(&[name, "+-"]);
        columns.extend_from_slice(if at > 0 { &["x", ""] } else { &[] });
    }
    let mut rows = Vec::new();
    for row in &group.rows {
        let mut cells = vec![row.label()];
        for (at, cell) in row.cells.iter().enumerate() {
            cells.extend(shown(cell));
            cells.extend(if at > 0 { compared(cell).to_vec() } else { Vec::new() });
        }
        rows.push(cells);
    }
    grid::text(&group.title(), &columns, &rows)
}

/// A line for each scheduler under each figure.
fn listed(group: &Group, schedulers: &[String]) -> String {
    let mut rows = Vec::new();
    for row in &group.rows {
        rows.push(vec![row.label(), String::new(), String::new(), String::new(), String::new()]);
        for (name, cell) in schedulers.iter().zip(&row.cells) {
            let name = vec![format!("  {name}")];
            let said = if cell.verdict.is_some() { compared(cell) } else { Default::default() };
            rows.push([name, shown(cell).to_vec(), said.to_vec()].concat());
        }
    }
    grid::text(&group.title(), &["", "median", "+-", "x", ""], &rows)
}

/// Ratio and verdict.
fn compared(cell: &Cell) -> [String; 2] {
    [ratio(cell), cell.verdict.map_or("", Verdict::word).to_owned()]
}

/// Lines of whole words.
fn wrapped(sentence: &str, columns: usize) -> String {
    let mut text = String::new();
    let mut line = 0;
    for word in sentence.split(' ') {
        let length = word.chars().count();
        if line > 0 && line + 1 + length > columns {
            text += "\n";
            line = 0;
        }
        text += if line > 0 { " " } else { "" };
        text += word;
        line += length + usize::from(line > 0);
    }
    text + "\n"
}

fn shown(cell: &Cell) -> [String; 2] {
    if cell.sample.count() == 0 {
        return ["-".into(), String::new()];
    }
    let (median, mark) = (cell.sample.median(), if cell.best { "*" } else { "" });
    [format!("{mark}{}", show(median)), show_like(cell.spread(), median)]
}

pub fn ratio(cell: &Cell) -> String {
    cell.ratio.map_or(String::new(), times)
}

/// How many times as much.
pub fn times(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

/// What somebody has to know to repeat it.
pub fn facts(results: &Results) -> Vec<(String, String)> {
    let machine = &results.machine;
    let clock = match machine.clock {
        Clock::Exact => "exact: virtual time, which counts instructions",
        Clock::Real => "real time",
    };
    let mut facts = vec![
        ("command", results.command.clone()),
        ("seed", results.seed.to_string()),
        ("started", date(results.started)),
        ("kernel", format!("Linux {}, {} Hz", machine.kernel, machine.hz)),
        ("machine", format!("{}, {} CPUs", machine.cpu_model, machine.cpus)),
        ("clock", clock.to_owned()),
    ];
    if !results.complete {
        facts.push(("incomplete", "the run ended early; this is what it had measured".to_owned()));
    }
    let mut facts: Vec<(String, String)> =
        facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    for scheduler in &results.schedulers {
        let command = Some(scheduler.command.as_str()).filter(|command| !command.is_empty());
        let command = command.map_or(String::new(), |command| format!(": {command}"));
        facts.push((scheduler.name.clone(), format!("{}{command}", scheduler.version)));
    }
    facts.extend(machine.versions.iter().map(|(name, version)| (name.clone(), version.clone())));
    if !machine.config.is_empty() {
        facts.push(("config".to_owned(), machine.config.join(" ")));
    }
    facts
}

/// A sentence about each scheduler beside the first.
pub fn summaries(digest: &Digest) -> Vec<String> {
    let sentence = |at: usize| {
        let count = |wanted: Verdict| digest.verdicts(at).filter(|said| *said == wanted).count();
        let (better, worse) = (count(Verdict::Better), count(Verdict::Worse));
        let all = digest.verdicts(at).count();
        let mut text = format!(
            "{} beside {}: {better} better, {worse} worse, {} without a verdict",
            digest.schedulers[at],
            digest.schedulers[0],
            all - better - worse
        );
        let few = count(Verdict::None(Why::Few));
        if few > 0 {
            let _ = write!(
                text,
                ", {few} of them for want of iterations: with {} a single difference among {all} \
                 can be told from chance",
                iterations_needed(all)
            );
        }
        text + "."
    };
    (1..digest.schedulers.len()).map(sentence).collect()
}

/// What the marks mean.
pub fn legend(digest: &Digest) -> Vec<String> {
    let (base, percent) = (&digest.schedulers[0], |share: f64| (share * 100.0).round());
    vec![
        format!(
            "Medians over the iterations. +-: half the distance between the quartiles; x: ratio to \
             {base}; *: the best."
        ),
        format!(
            "better, worse: outside the noise; of these at most {} % are chance. noise: chance \
             cannot be excluded; small: a difference of at most {} %; same: no value differs; few: \
             too few iterations to say anything; -: not measured.",
            percent(LEVEL),
            percent(NOTICED)
        ),
    ]
}

/// Seconds since 1970 as a date, by the proleptic Gregorian calendar of Howard Hinnant's
/// `civil_from_days`.
fn date(seconds: u64) -> String {
    let (days, minutes) = (seconds / 86_400, seconds % 86_400 / 60);
    let shifted = days.saturating_add(719_468);
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    let year = year + 400 * era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

/// Text from a file without what could command a terminal.
pub fn clean(text: &str) -> String {
    let odd = |c: char| c.is_control() && c != '\n';
    text.chars().map(|c| if odd(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::results;

    fn report(results: Results) -> Report {
        Report { digest: Digest::new(&results), results, bars: None }
    }

    /// At a width, what a report with these schedulers looks like between facts and legend.
    fn tables_at(columns: Option<usize>) -> String {
        tables(&Digest::new(&results(8, 0.5, 3)), columns)
    }

    #[test]
    fn a_table_fits_the_terminal() {
        let wide = tables_at(None);
        let most = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
        assert_eq!(tables_at(Some(most(&wide))), wide);
        let narrow = tables_at(Some(most(&wide) - 1));
        assert!(most(&narrow) <= 72, "{narrow}");
        let wake = narrow.split("\n\n").next().unwrap();
        let lines: Vec<Vec<&str>> =
            wake.trim().lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["median", "+-", "x"]);
        assert_eq!(lines[6], ["p99,", "us"]);
        assert_eq!((lines[7][0], lines[7].len()), ("kernel", 3));
        assert!(lines[8][0] == "ours" && lines[8][3..] == ["0.50", "better"], "{wake}");
        assert!(lines[9][0] == "peer" && lines[9][4] == "noise", "{wake}");
        // Nothing that the wide one says is lost.
        let words = |text: &str| -> std::collections::BTreeSet<String> {
            text.split_whitespace().map(str::to_string).collect()
        };
        assert!(words(&wide).is_subset(&words(&narrow)));
    }

    #[test]
    fn sentences_break_between_words() {
        assert_eq!(wrapped("one two three", 7), "one two\nthree\n");
        assert_eq!(wrapped("one two three", 6), "one\ntwo\nthree\n");
        assert_eq!(wrapped("unbreakable word", 3), "unbreakable\nword\n");
    }

    #[test]
    fn a_table_says_how_everybody_did_beside_the_first() {
        let text = text(&report(results(8, 0.5, 3)), None);
        let wake = text.split("\n\n").nth(1).unwrap();
        let lines: Vec<&str> = wake.lines().collect();
        assert_eq!(lines[0], "wake, 2 CPUs");
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            ["kernel", "+-", "ours", "+-", "x", "peer", "+-", "x"]
        );
        let p99: Vec<&str> = lines[3].split_whitespace().collect();
        assert_eq!((p99[0], p99[1]), ("p99,", "us"));
        assert!(p99[4].starts_with('*') && p99[6] == "0.50" && p99[7] == "better", "{p99:?}");
        assert_eq!(p99.last(), Some(&"noise"));
        assert!(text.contains("ours beside kernel: 4 better, 0 worse, 4 without a verdict."));
        let ends = |line: &&&str| line.ends_with("noise") || line.ends_with("same");
        assert!(lines[2..].iter().filter(ends).all(|line| line.len() == lines[3].len()), "{wake}");
    }

    #[test]
    fn equal_results_give_equal_text() {
        let text = |seed| text(&report(results(5, 0.5, seed)), None);
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }

    #[test]
    fn too_few_iterations_are_named() {
        let text = text(&report(results(3, 0.5, 3)), None);
        assert!(text.contains("6 of them for want of iterations: with 6 a single"), "{text}");
    }

    #[test]
    fn everything_that_repeats_the_run_is_said() {
        let mut all = results(1, 1.0, 77);
        all.complete = false;
        all.failures.push(crate::results::Failure {
            scheduler: "peer".into(),
            cpus: Some(2),
            phase: Some("burst".into()),
            words: "first line\nsecond \u{1b}[2Jline".into(),
        });
        let text = text(&report(all), None);
        for word in [
            "bench run",
            "77",
            "2023-11-14 22:13 UTC",
            "7.3.4-cloud",
            "250 Hz",
            "A <CPU> & more",
            "ours --fast",
            "1.2.3",
            "10.0.2",
            "CONFIG_PREEMPT=y",
            "ended early",
            "virtual time",
            "FAILED: peer in burst on 2 CPUs\n  first line\n  second \u{fffd}[2Jline",
        ] {
            assert!(text.contains(word), "{word} is missing in\n{text}");
        }
    }

    #[test]
    fn seconds_become_dates() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_735_689_599), "2024-12-31 23:59 UTC");
        // A hostile file may say anything.
        assert!(date(u64::MAX).ends_with("UTC"));
    }
}
