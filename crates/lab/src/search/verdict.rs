// SPDX-License-Identifier: GPL-2.0-only

//! What is sure of the settings that a search found.

use super::Means;
use super::halving::SURVIVORS;
use super::metric::{Hold, Metric};
use crate::cli::SearchArgs;
use crate::mean::{Mean, student};
use crate::table::{self, Cell, Format, Table};
use pandemonium_print::print as print_line;

/// The quantile of the normal distribution that holds for all [`SURVIVORS`] at once in 95 of 100
/// searches (Bonferroni: 1 - 0.05 / 6).
const NORMAL: f64 = 2.394;
const _: () = assert!(SURVIVORS == 3);

/// So many standard errors hold the true mean of so many values.
pub fn errors(count: usize) -> f64 {
    student(NORMAL, count)
}

/// Prints what was tried, what is left, and what is sure of it.
pub fn print(
    args: &SearchArgs,
    tried: &Table,
    seeds: usize,
    settings: &[String],
    judged: &[Option<Means>],
) {
    let title = format!("checked on {seeds} odd seeds: ratios by the defaults, with intervals");
    let columns = [&["setting"], &Metric::ALL.map(Metric::name)[..], &["verdict"]].concat();
    let mut table = Table::new(title, &columns);
    let mut better = Vec::new();
    for (setting, means) in settings.iter().zip(judged) {
        let word = word(means.as_ref(), args.objective, &args.hold);
        better.extend((word == BETTER).then_some(setting));
        let cell = |metric: Metric| match means.as_ref().and_then(|it| it[metric as usize]) {
            Some(mean) => interval(metric, mean).into(),
            None => Cell::None,
        };
        let mut row = vec![Cell::from(setting.as_str())];
        row.extend(Metric::ALL.map(cell));
        row.push(word.into());
        table.row(row);
    }
    table::print(&[tried.clone(), table], args.format);
    if args.format == Format::Text {
        let what = args.objective.name();
        print_line(&match better.first() {
            Some(setting) => {
                format!("\nbetter than the defaults in {what}, beyond chance: {setting}")
            }
            None => format!("\nno setting is better than the defaults in {what} beyond chance"),
        });
    }
}

/// A ratio, and the interval in which the true one is.
fn interval(metric: Metric, mean: Mean) -> String {
    let mut ends = [mean.of - mean.spread, mean.of + mean.spread].map(|loss| metric.ratio(loss));
    ends.sort_by(f64::total_cmp);
    format!("{:.3} ({:.3} to {:.3})", metric.ratio(mean.of), ends[0], ends[1])
}

const BETTER: &str = "better";

/// What is sure of a setting.
fn word(means: Option<&Means>, objective: Metric, holds: &[Hold]) -> String {
    let Some(means) = means else { return "a checker complains".to_owned() };
    let held = |hold: &&Hold, spread: f64| {
        means[hold.metric as usize].is_none_or(|it| it.of + spread * it.spread <= hold.allowed())
    };
    if let Some(hold) = holds.iter().find(|hold| !held(hold, 0.0)) {
        return format!("breaks {hold}");
    }
    match means[objective as usize] {
        Some(mean) if mean.of + mean.spread < 0.0 => {}
        Some(mean) if mean.of - mean.spread > 0.0 => return "worse".to_owned(),
        _ => return "chance".to_owned(),
    }
    match holds.iter().find(|hold| !held(hold, 1.0)) {
        Some(hold) => format!("better, but {hold} is not sure"),
        None => BETTER.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::metric::hold;

    #[test]
    fn a_setting_is_better_only_if_all_of_its_interval_is_and_it_surely_holds_the_rest() {
        let judged = |p99: (f64, f64), work: (f64, f64)| {
            let mean = |(of, spread)| Some(Mean { of, spread });
            let means = [mean(p99), None, None, mean(work), None];
            word(Some(&means), Metric::P99, &[hold("work>=0.99").unwrap()])
        };
        let same = (0.0, 0.0);
        assert_eq!(judged((-0.10, 0.09), same), BETTER);
        assert_eq!(judged((-0.10, 0.11), same), "chance");
        assert_eq!(judged((0.10, 0.09), same), "worse");
        assert_eq!(judged((-0.10, 0.09), (0.02, 0.001)), "breaks work>=0.99");
        assert_eq!(judged((-0.10, 0.09), (0.009, 0.002)), "better, but work>=0.99 is not sure");
        assert_eq!(judged((-0.10, 0.11), (0.009, 0.002)), "chance");
        assert_eq!(word(None, Metric::P99, &[]), "a checker complains");
    }

    #[test]
    fn an_interval_goes_upwards_in_either_direction() {
        let mean = Mean { of: 0.1, spread: 0.1 };
        assert_eq!(interval(Metric::P99, mean), "1.105 (1.000 to 1.221)");
        assert_eq!(interval(Metric::Work, mean), "0.905 (0.819 to 1.000)");
    }
}
