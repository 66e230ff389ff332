//! Percentiles of times.

use serde::Serialize;

/// The nearest-rank percentiles of a list: each is a value of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    #[allow(missing_docs)]
    pub p90: f64,
    #[allow(missing_docs)]
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Percentiles {
    /// Of these values; `None` when there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let max = *sorted.last()?;
        let rank = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100) - 1];
        Some(Self { p50: rank(50), p90: rank(90), p99: rank(99), max })
    }
}
