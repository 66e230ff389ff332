//! The next steps for one service, computed from what is observed.
//!
//! Nothing is remembered between calls: revisions, marks and attempts are read from the pods. So a plan that was cut
//! off after any step is continued by the next one.
//!
//! - A changed spec replaces replicas one at a time: one more pod than wanted is made, and an old one drains only
//!   once more replicas take requests than wanted. When the scheduler has no room for the new pod, an old one makes
//!   room first, so that at most one replica is missing.
//! - A replica that takes requests is only deleted after a drain. One that never did, or whose engine does not run,
//!   has nothing to lose.

mod backoff;
mod drain;
mod fleet;
mod rollout;

use jiff::Timestamp;

use crate::ObservedPod;
use fleet::Fleet;

/// What a service is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Desired<'a> {
    /// Name of the LLMService.
    pub service: &'a str,
    /// UID of the LLMService; pods of other owners are left alone.
    pub uid: &'a str,
    /// Revision to bring replicas to.
    pub revision: &'a str,
    /// Replicas while the mode is [`Mode::Run`].
    pub replicas: u32,
    /// Whether the service runs.
    pub mode: Mode,
    /// How long a replica may finish its requests.
    pub drain_timeout: std::time::Duration,
}

/// Whether a service runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Replicas are kept up.
    Run,
    /// Pods are left alone.
    Paused,
    /// All replicas are drained and removed.
    Stopped,
    /// As [`Mode::Stopped`], but an engine that does not answer is not waited for.
    Deleting,
}

/// Steps in the order in which they are to be taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
}

/// One step and why it is taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What to do.
    pub action: Action,
    /// Why, for events and logs.
    pub reason: String,
}

/// What a step does. Pods are named together with their UID, so that a step never hits a namesake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create a pod of the desired revision.
    Create {
        /// Its name, which no pod has.
        name: String,
        /// How often its replica was replaced after a failure.
        attempt: u32,
    },
    /// Tell a pod to drain.
    MarkDraining {
        /// The pod.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Delete a pod.
    Delete {
        /// The pod.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Set the routable gate of a pod.
    SetRoutable {
        /// The pod.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Look again at a time.
    Wait {
        /// When.
        until: Timestamp,
    },
}

impl Plan {
    /// When to look again, if a step waits.
    pub fn wake(&self) -> Option<Timestamp> {
        let until = |s: &Step| if let Action::Wait { until } = s.action { Some(until) } else { None };
        self.steps.iter().filter_map(until).min()
    }

    /// Whether a step changes a pod.
    pub fn changes(&self) -> bool {
        self.steps.iter().any(|s| !matches!(s.action, Action::Wait { .. }))
    }

    fn deletes(&self, pod: &ObservedPod) -> bool {
        self.steps.iter().any(|s| matches!(&s.action, Action::Delete { uid, .. } if *uid == pod.uid))
    }

    fn push(&mut self, action: Action, reason: impl Into<String>) {
        self.steps.push(Step { action, reason: reason.into() });
    }
}

impl Action {
    fn delete(pod: &ObservedPod) -> Self {
        Self::Delete { name: pod.name.clone(), uid: pod.uid.clone() }
    }

    fn mark_draining(pod: &ObservedPod) -> Self {
        Self::MarkDraining { name: pod.name.clone(), uid: pod.uid.clone() }
    }
}

/// The next steps. Pods whose controlling owner is not `desired.uid` only keep their names.
pub fn plan(desired: &Desired<'_>, pods: &[ObservedPod], now: Timestamp) -> Plan {
    let fleet = Fleet::sort(desired, pods);
    let mut plan = Plan::default();
    match desired.mode {
        Mode::Paused => {}
        Mode::Run => {
            drain::finish(desired, &fleet, now, &mut plan);
            rollout::remove(desired, &fleet, &mut plan);
            rollout::create(desired, &fleet, now, &mut plan);
        }
        Mode::Stopped | Mode::Deleting => {
            drain::finish(desired, &fleet, now, &mut plan);
            rollout::stop(&fleet, &mut plan);
        }
    }
    drain::open_gates(&fleet, now, &mut plan);
    plan
}

/// The pods whose engines the next plan wants to hear: those that are let in or let go, and all while there is a
/// choice of whom to remove.
pub fn questions(replicas: u32, pods: &[ObservedPod]) -> Vec<&ObservedPod> {
    let alive = || pods.iter().filter(|p| p.is_alive());
    let first = alive().next();
    let mixed = alive().any(|p| first.is_some_and(|f| f.revision != p.revision));
    let choice = mixed || alive().count() > replicas as usize;
    let answers = |p: &&ObservedPod| p.address.is_some() && !p.terminating && p.engine_running;
    let asked = |p: &&ObservedPod| choice || p.drain.is_some() || (p.containers_ready && !p.routable);
    pods.iter().filter(answers).filter(asked).collect()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
