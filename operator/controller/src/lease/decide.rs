//! The decision of one try, apart from its requests.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;

/// The record as this process last saw it change.
#[derive(Debug, Default)]
pub(super) struct Seen {
    change: Option<(String, Instant)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Ours: renew.
    Renew,
    /// Nobody's, or expired: take.
    Take,
    /// Someone else's: leave.
    Hold,
}

/// What to do with `lease` at `now`.
pub(super) fn decide(
    lease: Option<&Lease>,
    seen: &mut Seen,
    identity: &str,
    duration: Duration,
    now: Instant,
) -> Decision {
    let Some(lease) = lease else { return Decision::Take };
    let version = lease.metadata.resource_version.clone().unwrap_or_default();
    if seen.change.as_ref().is_none_or(|(v, _)| *v != version) {
        seen.change = Some((version, now));
    }
    let holder = lease.spec.as_ref().and_then(|s| s.holder_identity.as_deref()).unwrap_or_default();
    let expired = seen.change.as_ref().is_some_and(|(_, at)| now.duration_since(*at) > duration);
    match holder {
        h if h == identity => Decision::Renew,
        "" => Decision::Take,
        _ if expired => Decision::Take,
        _ => Decision::Hold,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::LeaseSpec;

    use super::*;

    const DURATION: Duration = Duration::from_secs(15);

    fn lease(version: &str, holder: &str) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.resource_version = Some(version.into());
        lease.spec = Some(LeaseSpec { holder_identity: Some(holder.into()), ..LeaseSpec::default() });
        lease
    }

    fn after(seen: &mut Seen, lease: &Lease, start: Instant, seconds: u64) -> Decision {
        decide(Some(lease), seen, "me", DURATION, start + Duration::from_secs(seconds))
    }

    #[test]
    fn a_missing_or_released_lease_is_taken() {
        let now = Instant::now();
        assert_eq!(decide(None, &mut Seen::default(), "me", DURATION, now), Decision::Take);
        assert_eq!(after(&mut Seen::default(), &lease("1", ""), now, 0), Decision::Take);
    }

    #[test]
    fn our_own_lease_is_renewed() {
        assert_eq!(after(&mut Seen::default(), &lease("1", "me"), Instant::now(), 0), Decision::Renew);
    }

    #[test]
    fn a_lease_of_another_is_taken_only_after_its_duration_without_a_change() {
        let (mut seen, start) = (Seen::default(), Instant::now());
        assert_eq!(after(&mut seen, &lease("1", "you"), start, 0), Decision::Hold);
        assert_eq!(after(&mut seen, &lease("1", "you"), start, 15), Decision::Hold);
        assert_eq!(after(&mut seen, &lease("2", "you"), start, 16), Decision::Hold, "it was renewed");
        assert_eq!(after(&mut seen, &lease("2", "you"), start, 31), Decision::Hold);
        assert_eq!(after(&mut seen, &lease("2", "you"), start, 32), Decision::Take);
    }
}
