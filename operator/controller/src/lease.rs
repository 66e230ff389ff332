//! Leader election on a Lease, as client-go does it.
//!
//! Guarantees: a leader that could not renew for [`Timings::renew_deadline`] stops by itself, earlier than anyone
//! else may take the Lease ([`Timings::duration`] after the last change that they saw). Both are measured with each
//! process's own monotonic clock; times in the Lease are for people.
//!
//! Assumptions: a request that was sent before the deadline reaches the API server within the difference of both.

mod decide;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use tokio_util::sync::CancellationToken;

use crate::{RunOptions, metrics::Metrics};
use decide::{Decision, Seen, decide};

/// Name of the Lease.
pub(crate) const LEASE: &str = "regatta-operator";

/// Pace of leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// How long others wait after the last renewal before they take the Lease; whole seconds.
    pub duration: Duration,
    /// How long a leader works on without a renewal; less than `duration`.
    pub renew_deadline: Duration,
    /// Time between two tries, before jitter.
    pub retry_period: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Why a leader no longer leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was not renewed in time, or someone else has it.
    Lost,
    /// It was asked to end and still holds the Lease.
    Shutdown,
}

/// Proof that the Lease was taken, with the time before the request that took it.
pub(crate) struct Held {
    renewed: Instant,
}

pub(crate) struct Elector {
    api: Api<Lease>,
    identity: String,
    timings: Timings,
    metrics: Arc<Metrics>,
}

impl Elector {
    pub(crate) fn new(client: Client, options: &RunOptions, metrics: Arc<Metrics>) -> Self {
        Self {
            api: Api::namespaced(client, &options.lease_namespace),
            identity: options.identity.clone(),
            timings: options.lease_timings,
            metrics,
        }
    }

    /// Tries until the Lease is taken; none when asked to end.
    pub(crate) async fn acquire(&self, shutdown: &CancellationToken) -> Option<Held> {
        let mut seen = Seen::default();
        loop {
            let started = Instant::now();
            match self.attempt(&mut seen).await {
                Ok(taken) => {
                    self.metrics.set_reached();
                    if taken {
                        return Some(Held { renewed: started });
                    }
                }
                Err(error) => tracing::warn!(%error, "cannot read or take the lease; trying again"),
            }
            if self.pause(shutdown).await {
                return None;
            }
        }
    }

    /// Renews until the Lease is lost or the process is asked to end.
    pub(crate) async fn keep(&self, held: Held, shutdown: &CancellationToken) -> End {
        let mut seen = Seen::default();
        let mut renewed = held.renewed;
        loop {
            if self.pause(shutdown).await {
                return End::Shutdown;
            }
            let started = Instant::now();
            let deadline = renewed + self.timings.renew_deadline;
            match tokio::time::timeout_at(deadline.into(), self.attempt(&mut seen)).await {
                Ok(Ok(true)) => renewed = started,
                Ok(Ok(false)) => return End::Lost,
                Ok(Err(error)) => tracing::warn!(%error, "cannot renew the lease; trying again"),
                Err(_) => return End::Lost,
            }
        }
    }

    /// Gives the Lease back, so that the next leader need not wait.
    pub(crate) async fn release(&self) {
        let giving = async {
            let mut lease = self.api.get(LEASE).await?;
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() == Some(&self.identity) {
                spec.holder_identity = Some(String::new());
                self.api.replace(LEASE, &PostParams::default(), &lease).await?;
            }
            Ok::<_, kube::Error>(())
        };
        match tokio::time::timeout(self.timings.retry_period, giving).await {
            Ok(Ok(())) => tracing::info!("released the lease"),
            Ok(Err(error)) => {
                tracing::warn!(%error, "could not release the lease; the next leader waits for its end")
            }
            Err(_) => {
                tracing::warn!("could not release the lease in time; the next leader waits for its end")
            }
        }
    }

    /// One try; whether the Lease is ours after it.
    async fn attempt(&self, seen: &mut Seen) -> Result<bool, kube::Error> {
        let lease = self.api.get_opt(LEASE).await?;
        let decision = decide(lease.as_ref(), seen, &self.identity, self.timings.duration, Instant::now());
        let now = MicroTime(Timestamp::now());
        let written = match (decision, lease) {
            (Decision::Hold, _) => return Ok(false),
            (_, None) => self.api.create(&PostParams::default(), &self.first(now)).await,
            (decision, Some(mut lease)) => {
                let spec = lease.spec.get_or_insert_default();
                if decision == Decision::Take {
                    spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + 1);
                    spec.acquire_time = Some(now.clone());
                    spec.holder_identity = Some(self.identity.clone());
                }
                spec.renew_time = Some(now);
                spec.lease_duration_seconds = Some(self.duration_seconds());
                self.api.replace(LEASE, &PostParams::default(), &lease).await
            }
        };
        match written {
            Ok(_) => Ok(true),
            // Someone else was faster; whose it is now shows at the next try.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                Ok(decision == Decision::Renew && self.is_mine().await?)
            }
            Err(error) => Err(error),
        }
    }

    async fn is_mine(&self) -> Result<bool, kube::Error> {
        let lease = self.api.get_opt(LEASE).await?;
        let holder = lease.and_then(|l| l.spec).and_then(|s| s.holder_identity);
        Ok(holder.as_deref() == Some(&self.identity))
    }

    fn first(&self, now: MicroTime) -> Lease {
        Lease {
            metadata: ObjectMeta { name: Some(LEASE.into()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: Some(self.duration_seconds()),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            }),
        }
    }

    fn duration_seconds(&self) -> i32 {
        i32::try_from(self.timings.duration.as_secs()).unwrap_or(i32::MAX)
    }

    /// Waits one period, or less by up to a fifth, so that several processes do not try in step; true when asked
    /// to end.
    async fn pause(&self, shutdown: &CancellationToken) -> bool {
        let spread = Timestamp::now().subsec_nanosecond().unsigned_abs() % 1000;
        let period = self.timings.retry_period.mul_f64(1.0 - 0.2 * f64::from(spread) / 1000.0);
        tokio::time::timeout(period, shutdown.cancelled()).await.is_ok()
    }
}
