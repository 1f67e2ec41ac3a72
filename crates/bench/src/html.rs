// SPDX-License-Identifier: GPL-2.0-only

//! The report as one self-contained HTML file, for screens of any size, light or dark.

use super::contents::Contents;
use super::digest::{Cell, Digest, Group, Row, show, show_like};
use super::{ratios, words};
use anyhow::Result;
use pandemonium_statistics::page::{self, escape};
use pandemonium_statistics::picture::{self, Line, swatch};
use pandemonium_statistics::verdict::{Verdict, Why};

const STYLE: &str = include_str!("report.css");

/// The whole page.
pub fn page(contents: &Contents) -> Result<String> {
    let Contents { results, digest, bars } = contents;
    let facts = words::facts(results);
    let mut body = String::new();
    body += &header(digest, &facts);
    body += &overview(digest);
    if let Some(bars) = bars {
        let (title, columns, rows) = bars.table();
        let all = page::table(&title, &columns, &rows);
        let summary = escape(&bars.summary());
        body += &section("bars", "The bars", &format!("<p>{summary}</p>{}", scrolled(&all)));
    }
    if !results.failures.is_empty() {
        let failures = results.failures.iter().map(|failure| escape(&failure.sentence()));
        let failures: String = failures.map(|text| format!("<pre>{text}</pre>")).collect();
        body +=
            &section("failures", "Failures, with the output of the scheduler or phase", &failures);
    }
    for (number, group) in digest.groups.iter().enumerate() {
        body += &section(&format!("g{number}"), &group.title(), &phase(group, digest)?);
    }
    let rows: Vec<Vec<String>> = facts.into_iter().map(|(name, value)| vec![name, value]).collect();
    let repeat = format!("<div class=\"facts\">{}</div>", page::table("", &["", ""], &rows));
    body += &section("repeat", "To repeat it", &scrolled(&repeat));
    let legend: String =
        words::legend(digest).iter().map(|text| format!("<p>{}</p>", escape(text))).collect();
    body += &section("legend", "How to read it", &legend);
    Ok(format!(
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head>\
         <meta charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\"/><title>Schedulers side by side</title><style>{STYLE}</style></head>\
         <body>{body}</body></html>\n"
    ))
}

fn section(id: &str, title: &str, inside: &str) -> String {
    format!("<section id=\"{id}\"><h2>{}</h2>{inside}</section>\n", escape(title))
}

/// Content that scrolls horizontally by itself if it is wider than the screen.
fn scrolled(inside: &str) -> String {
    format!("<div class=\"wide\">{inside}</div>")
}

fn header(digest: &Digest, facts: &[(String, String)]) -> String {
    let fact = |wanted: &str| {
        let found = facts.iter().find(|(name, _)| name == wanted);
        found.map_or(String::new(), |(_, value)| escape(value))
    };
    let mut html = format!(
        "<header><h1>Schedulers side by side</h1><p>{}<br/>{}<br/>{}</p>",
        fact("started"),
        fact("kernel"),
        fact("machine")
    );
    let incomplete = fact("incomplete");
    if !incomplete.is_empty() {
        html += &format!("<p class=\"worse\">Incomplete: {incomplete}.</p>");
    }
    for sentence in words::summaries(digest) {
        html += &format!("<p>{}</p>", escape(&sentence));
    }
    html + "</header>\n"
}

/// For each phase and scheduler, how many figures are better and worse.
fn overview(digest: &Digest) -> String {
    if digest.schedulers.len() < 2 {
        return String::new();
    }
    let mut html = "<table class=\"overview\"><tr><th></th>".to_owned();
    for (number, name) in digest.schedulers.iter().enumerate().skip(1) {
        html += &format!("<th>{}{}</th>", swatch(number), breakable(name));
    }
    for (number, group) in digest.groups.iter().enumerate() {
        html += "</tr><tr>";
        html += &format!("<td><a href=\"#g{number}\">{}</a></td>", escape(&group.title()));
        for at in 1..digest.schedulers.len() {
            let verdicts = group.rows.iter().filter_map(|row| row.cells[at].verdict);
            let count = |wanted| verdicts.clone().filter(|verdict| *verdict == wanted).count();
            let (better, worse) = (count(Verdict::Better), count(Verdict::Worse));
            let class = match (better, worse) {
                (0, 0) => "",
                (_, 0) => "better",
                (0, _) => "worse",
                _ => "mixed",
            };
            let part = |count: usize, word: &str| match count {
                0 => None,
                count => Some(format!("{count} {word}")),
            };
            let parts: Vec<String> =
                [part(better, "better"), part(worse, "worse")].into_iter().flatten().collect();
            let text = if parts.is_empty() { "no verdict".into() } else { parts.join(", ") };
            html += &format!("<td class=\"{class}\">{text}</td>");
        }
    }
    let title = format!("Beside {}", digest.schedulers[0]);
    section("overview", &title, &scrolled(&(html + "</tr></table>")))
}

fn phase(group: &Group, digest: &Digest) -> Result<String> {
    let mut pictures = String::new();
    if let Some(svg) = ratios::draw(group)? {
        let base = escape(&digest.schedulers[0]);
        let caption = format!(
            "Medians relative to {base}, with the worst and the best iteration; pale: no verdict"
        );
        pictures += &figure(&caption, &svg);
    }
    for curves in &group.curves {
        let line = |buckets: &Vec<(u64, u64)>| Line { buckets: buckets.clone() };
        let lines: Vec<Line> = curves.lines.iter().map(line).collect();
        let caption = format!("{}: duration by percentile", escape(&curves.name));
        pictures += &figure(&caption, &picture::curves(&lines)?);
    }
    Ok(format!("{}<div class=\"pictures\">{pictures}</div>", scrolled(&figures(group, digest))))
}

fn figure(caption: &str, svg: &str) -> String {
    format!("<figure><figcaption>{caption}</figcaption>{svg}</figure>")
}

fn figures(group: &Group, digest: &Digest) -> String {
    let mut html = "<table><tr><th></th>".to_owned();
    for (number, name) in digest.schedulers.iter().enumerate() {
        html += &format!("<th>{}{}</th>", swatch(number), breakable(name));
    }
    for row in &group.rows {
        html += &format!("</tr><tr><td>{}</td>", label(row));
        row.cells.iter().for_each(|cell| html += &cell_html(cell));
    }
    html + "</tr></table>"
}

fn label(row: &Row) -> String {
    let label = row.label();
    match label.split_once(" (") {
        Some((name, rest)) => format!("{}<small>({}</small>", breakable(name), escape(rest)),
        None => breakable(&label),
    }
}

/// A name that a narrow screen may break after each underscore.
fn breakable(name: &str) -> String {
    escape(name).replace('_', "_<wbr/>")
}

fn cell_html(cell: &Cell) -> String {
    if cell.sample.count() == 0 {
        return "<td>-</td>".into();
    }
    let median = cell.sample.median();
    let class = if cell.best { "best" } else { "" };
    let spread = show_like(cell.spread(), median);
    let mut html = format!("<td><b class=\"{class}\">{}</b> &#177; {spread}", show(median));
    let verdict = cell.verdict.filter(|verdict| *verdict != Verdict::None(Why::Missing));
    if let Some(verdict) = verdict {
        let ratio = cell.ratio.map_or(String::new(), |it| format!("&#215; {} ", words::times(it)));
        let class = match verdict {
            Verdict::None(_) => "none",
            word => word.word(),
        };
        html += &format!("<small class=\"{class}\">{ratio}{}</small>", verdict.word());
    }
    html + "</td>"
}
