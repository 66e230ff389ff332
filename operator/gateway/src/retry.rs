//! A budget for retries, so that an outage is not multiplied by the requests that run into it.

use std::sync::atomic::{AtomicI64, Ordering};

/// Retries are counted in tenths.
const COST: i64 = 10;
/// Each request earns a fifth of a retry.
const EARNED: i64 = 2;
const CAPACITY: i64 = 100 * COST;

/// Retries that may still be made.
#[derive(Debug)]
pub(crate) struct RetryBudget(AtomicI64);

impl Default for RetryBudget {
    fn default() -> Self {
        Self(AtomicI64::new(CAPACITY))
    }
}

impl RetryBudget {
    /// A request came in.
    pub(crate) fn earn(&self) {
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some((left + EARNED).min(CAPACITY)));
    }

    /// Takes one retry; false when none is left.
    pub(crate) fn spend(&self) -> bool {
        let take = |left: i64| (left >= COST).then_some(left - COST);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_end_with_the_budget_and_requests_earn_new_ones() {
        let budget = RetryBudget::default();
        let spent = std::iter::from_fn(|| budget.spend().then_some(())).count();
        assert_eq!(spent, 100);
        (0..5).for_each(|_| budget.earn());
        assert!(budget.spend());
        assert!(!budget.spend());
    }
}
