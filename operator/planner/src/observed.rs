//! What is seen of a pod: its object, and what its engine says.

mod last_words;
mod restart;
mod setup;
mod trouble;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde::Deserialize;

pub use restart::{RestartCounts, Restarts, news};
pub use setup::setup_trouble;
pub use trouble::{Cause, Trouble};

use crate::contract::{
    ATTEMPT_ANNOTATION, DRAINING_ANNOTATION, ENGINE_CONTAINER, REVISION_LABEL, ROUTABLE_GATE,
};

/// One pod as planning sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedPod {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// UID of the controlling owner.
    pub owner_uid: Option<String>,
    /// Hash of the template that it was made from.
    pub revision: String,
    /// How often its replica was replaced after a failure.
    pub attempt: u32,
    /// When it was created.
    pub created: Timestamp,
    /// When it failed or someone asked to delete it.
    pub ended: Option<Timestamp>,
    /// Whether it ended for good: phase Failed or Succeeded.
    pub finished: bool,
    /// Whether it has a deletion timestamp.
    pub terminating: bool,
    /// Whether it was told to drain.
    pub drain: Option<Drain>,
    /// Whether it has a node.
    pub scheduled: bool,
    /// Since when its volumes, network and sandbox are awaited, before any container is made.
    pub setup_since: Option<Timestamp>,
    /// Whether its init containers are done.
    pub initialized: bool,
    /// Whether the engine's container runs.
    pub engine_running: bool,
    /// Whether all containers are ready.
    pub containers_ready: bool,
    /// Whether the pod is Ready, gates included.
    pub ready: bool,
    /// Whether the routable gate is true: it took requests once, and may still have some.
    pub routable: bool,
    /// IP address.
    pub address: Option<String>,
    /// Why no node takes it, in the scheduler's words.
    pub unschedulable: Option<String>,
    /// What keeps it from running.
    pub trouble: Option<Trouble>,
    /// How often its engine was started again.
    pub restarts: Restarts,
    /// What its engine says.
    pub engine: EngineView,
    /// Since when every answer after the drain began said that nothing is in flight.
    pub idle_since: Option<Timestamp>,
}

/// An order to drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// When it was given; unknown when someone else wrote the annotation.
    pub since: Option<Timestamp>,
}

/// What is known of the engine from its internal state.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum EngineView {
    /// Not asked.
    #[default]
    Unasked,
    /// Asked, without an answer in time.
    Silent,
    /// The answer.
    State(EngineState),
}

/// Answer of `/internal/state`, as far as planning uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct EngineState {
    /// Whether it accepts work.
    pub ready: bool,
    /// Requests that are admitted and not finished.
    pub in_flight: u64,
    /// KV blocks.
    #[serde(default)]
    pub kv: KvState,
}

/// KV blocks of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct KvState {
    /// Free blocks whose contents can be hit by a prefix.
    #[serde(default)]
    pub cached: u64,
}

impl ObservedPod {
    /// Reads a pod; what its engine says is added by the caller. None for an object without a name or UID.
    pub fn read(pod: &Pod) -> Option<Self> {
        let meta = &pod.metadata;
        let none = PodStatus::default();
        let status = pod.status.as_ref().unwrap_or(&none);
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|a| a.get(key));
        let finished = matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"));
        let terminating = meta.deletion_timestamp.is_some();
        let created = meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
        let owner = meta.owner_references.iter().flatten().find(|o| o.controller == Some(true));
        Some(Self {
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
            owner_uid: owner.map(|o| o.uid.clone()),
            revision: meta.labels.as_ref().and_then(|l| l.get(REVISION_LABEL)).cloned().unwrap_or_default(),
            attempt: annotation(ATTEMPT_ANNOTATION).and_then(|a| a.parse().ok()).unwrap_or(0),
            created,
            ended: ended(pod, status, created, finished, terminating),
            finished,
            terminating,
            drain: annotation(DRAINING_ANNOTATION).map(|at| Drain { since: at.parse().ok() }),
            scheduled: condition(status, "PodScheduled"),
            setup_since: setup::awaited_since(status),
            initialized: condition(status, "Initialized"),
            engine_running: engine_running(status),
            containers_ready: condition(status, "ContainersReady"),
            ready: condition(status, "Ready"),
            routable: condition(status, ROUTABLE_GATE),
            address: status.pod_ip.clone(),
            unschedulable: trouble::unschedulable(status),
            trouble: trouble::of(status, finished, condition(status, ROUTABLE_GATE)),
            restarts: restart::of(status),
            engine: EngineView::Unasked,
            idle_since: None,
        })
    }

    /// Whether it is meant to stay: neither draining, nor terminating, nor finished.
    pub fn is_alive(&self) -> bool {
        self.drain.is_none() && !self.terminating && !self.finished
    }

    /// What it still has to do before it takes requests.
    pub fn stage(&self) -> &'static str {
        match self {
            p if !p.scheduled => "waits for a node",
            p if !p.initialized => "fetches the model",
            p if !p.engine_running => "its container is being made",
            p if !p.containers_ready && p.routable => "its readiness probe fails",
            p if !p.containers_ready => "loads the model",
            p if !p.routable => "waits for an answer to the operator",
            _ => "its node does not report it as ready",
        }
    }

    /// Whether gateways send it new requests. The gate alone is not enough: they look at Ready, which the kubelet
    /// sets some time after the gate.
    pub fn takes_requests(&self) -> bool {
        self.is_alive() && self.routable && self.ready
    }
}

fn condition(status: &PodStatus, type_: &str) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == type_ && c.status == "True")
}

fn engine_running(status: &PodStatus) -> bool {
    let mut engines = status.container_statuses.iter().flatten().filter(|c| c.name == ENGINE_CONTAINER);
    engines.any(|c| c.state.as_ref().is_some_and(|s| s.running.is_some()))
}

fn ended(
    pod: &Pod,
    status: &PodStatus,
    created: Timestamp,
    finished: bool,
    terminating: bool,
) -> Option<Timestamp> {
    if finished {
        let terminated = |c: &k8s_openapi::api::core::v1::ContainerStatus| {
            c.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref().map(|t| t.0)
        };
        let last_condition =
            status.conditions.iter().flatten().filter_map(|c| c.last_transition_time.as_ref());
        let of_containers = status.container_statuses.iter().flatten().filter_map(terminated).max();
        return of_containers.or_else(|| last_condition.map(|t| t.0).max()).or(Some(created));
    }
    let deletion = pod.metadata.deletion_timestamp.as_ref().filter(|_| terminating)?;
    let grace = jiff::SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
    deletion.0.checked_sub(grace).ok()
}

#[cfg(test)]
mod tests;
