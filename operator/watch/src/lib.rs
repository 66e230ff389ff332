//! How operator and gateway watch the API server: how long a watch lives, and how soon a broken one is opened again.

use std::time::Duration;

use backon::ExponentialBuilder;
use kube::runtime::{
    utils::{Backoff, ResetTimerBackoff},
    watcher::{self, ExponentialBackoff},
};

/// Load balancers in front of API servers drop watches that are idle for four minutes; end them earlier ourselves.
const WATCH_SECONDS: u32 = 200;
/// The first pause after a watch broke; each further one is twice as long, and jitter adds up to as much again.
const MIN_PAUSE: Duration = Duration::from_millis(800);
/// Services and routes wait as long as their watches do; a handful of watches burdens no API server that comes back.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// A watch that lived this long without a word starts anew, as does one that brought a change.
const RESET_AFTER: Duration = Duration::from_secs(20);

/// What every watch begins with.
pub fn config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS)
}

/// Pauses before a broken watch is opened again.
pub fn pauses() -> impl Backoff + use<> {
    let growing = ExponentialBuilder::default()
        .with_min_delay(MIN_PAUSE)
        .with_max_delay(MAX_PAUSE)
        .with_jitter()
        .without_max_times();
    ResetTimerBackoff::new(ExponentialBackoff::from(growing), RESET_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_tries_grow_differ_and_stay_short() {
        let some = || pauses().take(50).collect::<Vec<Duration>>();
        let (one, other) = (some(), some());
        assert!(one[0] < 2 * MIN_PAUSE && one[49] >= MAX_PAUSE);
        assert!(one.iter().all(|pause| (MIN_PAUSE..=2 * MAX_PAUSE).contains(pause)));
        assert_ne!(one, other, "clients that lost one server come back at different times");
    }
}
