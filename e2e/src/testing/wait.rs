//! Waiting for the cluster to reach a state.

use std::fmt::Debug;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(50);

/// Calls `observe` until it gives `Ok`, and returns what that holds.
///
/// `observe` gives `Err` with what it saw (an object, a list, a reason) while the condition does not hold.
///
/// # Panics
/// After `deadline`, with `what` and the last thing seen.
pub async fn wait_for<T, E: Debug>(
    what: &str,
    deadline: Duration,
    mut observe: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let start = Instant::now();
    let mut last = None;
    loop {
        let left = deadline.saturating_sub(start.elapsed());
        match tokio::time::timeout(left, observe()).await {
            Ok(Ok(value)) => return value,
            Ok(Err(seen)) => last = Some(seen),
            Err(_) => {}
        }
        assert!(
            start.elapsed() < deadline,
            "{what} did not come within {} seconds; last seen: {last:#?}",
            deadline.as_secs()
        );
        tokio::time::sleep(POLL).await;
    }
}
