// SPDX-License-Identifier: GPL-2.0-only

//! Sentences and numbers that more than one output format shows.

use super::digest::Digest;
use super::results::{Clock, Results};
use pandemonium_host::print::is_unprintable;
use pandemonium_statistics::verdict::{LEVEL, NOTICED, Verdict, Why, iterations_needed};
use std::fmt::Write;

/// A ratio, with enough decimals to be useful.
pub fn times(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

/// What a reader needs to repeat the run.
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
        facts.push((
            "incomplete",
            "the run ended early; these are the results until then".to_owned(),
        ));
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

/// One sentence for each scheduler: its verdicts against the first one.
pub fn summaries(digest: &Digest) -> Vec<String> {
    let sentence = |at: usize| {
        let count =
            |wanted: Verdict| digest.verdicts(at).filter(|verdict| *verdict == wanted).count();
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
                ", {few} of them for too few iterations: with {} iterations, a single difference \
                 among {all} can be significant",
                iterations_needed(all)
            );
        }
        text + "."
    };
    (1..digest.schedulers.len()).map(sentence).collect()
}

/// Explains the marks in the tables.
pub fn legend(digest: &Digest) -> Vec<String> {
    let (base, percent) = (&digest.schedulers[0], |share: f64| (share * 100.0).round());
    vec![
        format!(
            "Medians over the iterations. +-: half the distance between the quartiles; x: ratio to \
             {base}; *: the best."
        ),
        format!(
            "better, worse: outside the noise; at most {} % of these are chance. noise: chance \
             cannot be excluded; small: a difference of at most {} %; same: no value differs; few: \
             too few iterations for a verdict; -: not measured.",
            percent(LEVEL),
            percent(NOTICED)
        ),
    ]
}

/// Seconds since 1970 as a UTC date in the proleptic Gregorian calendar: Howard Hinnant's
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

/// Replaces unprintable characters except newlines: text from a file must not control the terminal.
pub fn clean(text: &str) -> String {
    let odd = |c: char| is_unprintable(c) && c != '\n';
    text.chars().map(|c| if odd(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_since_1970_become_dates() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_735_689_599), "2024-12-31 23:59 UTC");
        // A hostile file may have any number.
        assert!(date(u64::MAX).ends_with("UTC"));
    }
}
