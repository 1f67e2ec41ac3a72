// SPDX-License-Identifier: GPL-2.0-only

//! The verdict on a set of mixes for a person: one line for each mix, where the ratios lie, and a
//! picture in which each mix is a dot.

use super::judge::{Distribution, Line, Pair, summary};
use crate::picture::{Dot, Scale, dots};
use crate::table;
use anyhow::Result;

const COLUMNS: [&str; 12] = [
    "",
    "CPUs",
    "p99",
    "worst p99",
    "base us",
    "us",
    "of",
    "worst p99.9",
    "missed",
    "work",
    "fair",
    "weights",
];

/// The lines of a set of mixes as a table, then their distribution. `repeat` is the command that
/// repeats a mix.
pub fn text(title: &str, lines: &[Line], repeat: impl Fn(&Line) -> String) -> String {
    let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
    let mut text = table::text(title, &COLUMNS, &rows);
    if let [_, _, ..] = lines {
        text += &format!("\n{}", distribution(lines));
    }
    if let Some((line, pair)) = worst(lines) {
        let (part, notice) = (&pair.part, pair.notice.name());
        text += &format!(
            "\nworst: {part} ({notice}) of {} on {} CPUs, {:.2} times the base's p99; to \
             repeat:\n  {}\n",
            line.mix,
            line.cpus,
            pair.ratio(),
            repeat(line)
        );
    }
    text
}

fn row(line: &Line) -> Vec<String> {
    let none = || "-".to_owned();
    let ratio = |value: f64| format!("{value:.2}");
    let median = Distribution::lower(line.p99.iter().map(Pair::ratio)).map(|it| it.median);
    let of = |pair: &Pair| format!("{} {}", pair.part, pair.notice.name());
    let worst = line.worst();
    vec![
        line.mix.clone(),
        line.cpus.to_string(),
        median.map_or_else(none, ratio),
        worst.map_or_else(none, |pair| ratio(pair.ratio())),
        worst.map_or_else(none, |pair| format!("{:.0}", pair.base_us)),
        worst.map_or_else(none, |pair| format!("{:.0}", pair.us)),
        worst.map_or_else(none, of),
        line.worst_p999().map_or_else(none, |pair| ratio(pair.ratio())),
        format!("{} -> {}", line.missed[0], line.missed[1]),
        line.work.map_or_else(none, |work| format!("{work:.3}")),
        line.fairness.map_or_else(none, |[base, ours]| format!("{base:.2} -> {ours:.2}")),
        line.weights.map_or_else(none, |change| format!("{:.0} %", change * 100.0)),
    ]
}

/// Where the ratios of all mixes lie.
fn distribution(lines: &[Line]) -> String {
    let sum = summary(lines);
    let row = |name: &str, of: Option<Distribution>| {
        let of = of?;
        let cells = [of.median, of.nine_of_ten, of.worst].map(|value| format!("{value:.3}"));
        Some([vec![name.to_owned(), of.count.to_string()], cells.to_vec()].concat())
    };
    let rows: Vec<Vec<String>> = [
        row("p99 of the parts that are noticed", sum.p99),
        row("p99.9 of them", sum.p999),
        row("work of the loads", sum.work),
        row("fairness among equals", sum.fairness),
        row("change of shares by weight", sum.weights),
    ]
    .into_iter()
    .flatten()
    .collect();
    let title = format!("{} mixes, judged by base", lines.len());
    let columns = ["", "of", "median", "nine of ten", "worst"];
    let [base, ours] = sum.missed;
    table::text(&title, &columns, &rows) + &format!("missed deadlines: {base} -> {ours}\n")
}

/// The mix and the part with the worst ratio of p99.
fn worst(lines: &[Line]) -> Option<(&Line, &Pair)> {
    let all = lines.iter().filter_map(|line| Some((line, line.worst()?)));
    all.max_by(|one, other| one.1.ratio().total_cmp(&other.1.ratio()))
}

/// Draws a dot for each mix: its worst ratio of p99 to the right, its ratio of work upwards. Left
/// of 1 nothing that is noticed is later than under the base. The worst mix has its name.
pub fn picture(lines: &[Line]) -> Result<String> {
    let named = worst(lines).map(|(line, _)| line);
    let dot = |line: &Line| {
        let is_named = named.is_some_and(|named| std::ptr::eq(named, line));
        let at = (line.worst()?.ratio(), line.work.unwrap_or(1.0));
        Some(Dot { at, name: is_named.then(|| line.mix.clone()) })
    };
    let all: Vec<Dot> = lines.iter().filter_map(dot).collect();
    let title = "worst p99, ours by the base's";
    let right = Scale { title, covers: (0.1, 2.0), limits: (1e-6, 1e9) };
    let up = Scale { title: "work", covers: (0.8, 1.05), limits: (0.0, 1e6) };
    dots(&all, &right, &up)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Notice;
    use crate::mix::judge::judge;
    use crate::mix::judge::tests::{measured, part};

    fn lines(ratios: &[(f64, f64)]) -> Vec<Line> {
        let one = |(number, (p99, work)): (usize, &(f64, f64))| {
            let base = [part("hog", Notice::Work, 0.0, 1.0), part("a<b", Notice::Frame, 1e3, 0.0)];
            let mut ours = base.clone();
            (ours[0].work, ours[1].p99_us) = (*work, 1e3 * p99);
            let name = format!("mix-{}", 2 * number);
            judge(measured(&name, &base), measured(&name, &ours)).unwrap()
        };
        ratios.iter().enumerate().map(one).collect()
    }

    #[test]
    fn a_mix_is_one_line_and_the_worst_is_named_with_its_command() {
        let text =
            text("T", &lines(&[(0.1, 0.99), (1.5, 0.97)]), |line| format!("go {}", line.mix));
        assert_eq!(text.lines().filter(|line| line.starts_with("mix-")).count(), 2, "{text}");
        assert!(text.contains("worst: a<b (frame) of mix-2 on 2 CPUs, 1.50"), "{text}");
        assert!(text.contains("  go mix-2\n") && text.contains("0.970"), "{text}");
    }

    #[test]
    fn every_mix_is_a_dot_whatever_its_figures_are() {
        let odd = lines(&[(0.1, 0.99), (1e-9, 0.0), (1e12, 1e9), (1.0, 1.0)]);
        for count in [0, 1, 4] {
            let svg = picture(&odd[..count]).unwrap();
            let picture = roxmltree::Document::parse(&svg).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            let dots = picture
                .descendants()
                .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "circle")));
            assert_eq!(dots.count(), count);
        }
    }
}
