// SPDX-License-Identifier: GPL-2.0-only

//! Means, and what chance does to them.

/// So many standard errors hold the true mean in 95 of 100 cases.
pub const USUAL: f64 = 1.96;

/// A mean, and how far it may be off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    pub of: f64,
    /// So many standard errors as were asked for.
    pub spread: f64,
}

impl Mean {
    /// Of these values, with a spread of `errors` standard errors; `None` if there are none.
    pub fn of(values: &[f64], errors: f64) -> Option<Mean> {
        let count = values.len() as f64;
        let of = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - of).powi(2)).sum();
        let spread = errors * (squares / (count - 1.0).max(1.0) / count).sqrt();
        (!values.is_empty()).then_some(Mean { of, spread })
    }
}

/// The quantile of Student's distribution for the mean of `count` values that belongs to the
/// quantile `normal` of the normal one (Cornish and Fisher's series, within 1 % from 10 values on).
pub fn student(normal: f64, count: usize) -> f64 {
    let (z, freedom) = (normal, count.saturating_sub(1).max(1) as f64);
    let second = (z.powi(3) + z) / (4.0 * freedom);
    let third = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * freedom.powi(2));
    z + second + third
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_a_spread_that_shrinks_with_the_number_of_values() {
        let mean = |times: usize| Mean::of(&[1.0, 3.0].repeat(times), USUAL).unwrap();
        assert!((mean(1).of - 2.0).abs() < 1e-9 && (mean(1).spread - 1.96).abs() < 1e-9);
        assert!((mean(200).of - 2.0).abs() < 1e-9 && mean(200).spread < 0.1);
        assert!(Mean::of(&[], USUAL).is_none());
    }

    /// Table values for 9 and for 49 degrees of freedom.
    #[test]
    fn few_values_make_a_spread_wider() {
        assert!((student(1.95996, 10) - 2.2622).abs() < 0.01);
        assert!((student(1.95996, 50) - 2.0096).abs() < 0.001);
    }
}
