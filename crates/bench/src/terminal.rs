// SPDX-License-Identifier: GPL-2.0-only

//! The report as text for a terminal.

use super::contents::Contents;
use super::digest::{Cell, Digest, Group, show, show_like};
use super::words::{clean, facts, legend, summaries, times};
use pandemonium_statistics::table;
use pandemonium_statistics::verdict::Verdict;

/// The whole report. `columns` is the width of the terminal; `None` means unlimited.
pub fn text(contents: &Contents, columns: Option<usize>) -> String {
    let Contents { results, digest, bars } = contents;
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
        text += &table::text(&title, &columns, &rows);
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

/// Schedulers in columns if all tables fit the width that way, else in rows.
fn tables(digest: &Digest, columns: Option<usize>) -> String {
    let all = |table: fn(&Group, &[String]) -> String| -> String {
        let tables = digest.groups.iter().map(|group| table(group, &digest.schedulers));
        tables.map(|table| format!("\n{table}")).collect()
    };
    let wide = all(side_by_side);
    match columns {
        Some(columns) if wide.lines().any(|line| line.chars().count() > columns) => all(stacked),
        _ => wide,
    }
}

/// Median, spread, ratio and verdict of each scheduler in columns of their own.
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
    table::text(&group.title(), &columns, &rows)
}

/// Under each figure, one row for each scheduler.
fn stacked(group: &Group, schedulers: &[String]) -> String {
    let mut rows = Vec::new();
    for row in &group.rows {
        rows.push(vec![row.label(), String::new(), String::new(), String::new(), String::new()]);
        for (name, cell) in schedulers.iter().zip(&row.cells) {
            let name = vec![format!("  {name}")];
            let comparison =
                if cell.verdict.is_some() { compared(cell) } else { Default::default() };
            rows.push([name, shown(cell).to_vec(), comparison.to_vec()].concat());
        }
    }
    table::text(&group.title(), &["", "median", "+-", "x", ""], &rows)
}

/// The ratio and verdict cells.
fn compared(cell: &Cell) -> [String; 2] {
    [ratio(cell), cell.verdict.map_or("", Verdict::word).to_owned()]
}

/// Breaks a sentence between words.
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

/// The median and spread cells.
fn shown(cell: &Cell) -> [String; 2] {
    if cell.sample.count() == 0 {
        return ["-".into(), String::new()];
    }
    let (median, mark) = (cell.sample.median(), if cell.best { "*" } else { "" });
    [format!("{mark}{}", show(median)), show_like(cell.spread(), median)]
}

fn ratio(cell: &Cell) -> String {
    cell.ratio.map_or(String::new(), times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::results;
    use crate::results::Results;

    fn report(results: Results) -> Contents {
        Contents { digest: Digest::new(&results), results, bars: None }
    }

    /// The tables of a report at this width.
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
        // The narrow tables have every word of the wide ones.
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
    fn a_table_compares_every_scheduler_with_the_first() {
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
    fn the_needed_number_of_iterations_is_shown() {
        let text = text(&report(results(3, 0.5, 3)), None);
        assert!(
            text.contains("6 of them for too few iterations: with 6 iterations, a single"),
            "{text}"
        );
    }

    #[test]
    fn the_text_has_everything_needed_to_repeat_the_run() {
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
}
