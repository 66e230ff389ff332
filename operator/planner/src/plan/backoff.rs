//! How long a replica that failed waits for its replacement.

use jiff::{SignedDuration, Timestamp};

use crate::ObservedPod;

/// A replica that lived this long starts anew without a wait.
const STABLE: SignedDuration = SignedDuration::from_mins(10);
const FIRST: SignedDuration = SignedDuration::from_secs(10);
const MAX: SignedDuration = SignedDuration::from_mins(5);

/// When `ended` may be replaced, and the attempt of its replacement. The first replacement is immediate; each
/// further one waits twice as long.
pub(super) fn replacement(ended: &ObservedPod) -> (Timestamp, u32) {
    let end = ended.ended.unwrap_or(ended.created);
    let attempt = if end.duration_since(ended.created) >= STABLE { 0 } else { ended.attempt };
    let delay = match attempt {
        0 => SignedDuration::ZERO,
        n => FIRST.checked_mul(1 << (n - 1).min(16)).map_or(MAX, |d| d.min(MAX)),
    };
    (end.checked_add(delay).unwrap_or(end), attempt.saturating_add(1))
}
