//! The pods of a service, sorted by what can happen to them.

use std::collections::HashSet;

use super::Desired;
use crate::{ObservedPod, names, observed::EngineView};

pub(super) struct Fleet<'a> {
    /// Alive and of the desired revision.
    pub(super) current: Vec<&'a ObservedPod>,
    /// Alive and of another revision.
    pub(super) old: Vec<&'a ObservedPod>,
    /// Told to drain, and neither terminating nor finished.
    pub(super) draining: Vec<&'a ObservedPod>,
    /// Ended for good, not yet deleted.
    pub(super) finished: Vec<&'a ObservedPod>,
    /// Being deleted.
    pub(super) terminating: Vec<&'a ObservedPod>,
    taken: HashSet<&'a str>,
}

impl<'a> Fleet<'a> {
    pub(super) fn sort(desired: &Desired<'_>, pods: &'a [ObservedPod]) -> Self {
        let taken = pods.iter().map(|p| p.name.as_str()).collect();
        let mut fleet = Self {
            current: vec![],
            old: vec![],
            draining: vec![],
            finished: vec![],
            terminating: vec![],
            taken,
        };
        for pod in pods.iter().filter(|p| p.owner_uid.as_deref() == Some(desired.uid)) {
            let group = match pod {
                p if p.terminating => &mut fleet.terminating,
                p if p.finished => &mut fleet.finished,
                p if p.drain.is_some() => &mut fleet.draining,
                p if p.revision == desired.revision => &mut fleet.current,
                _ => &mut fleet.old,
            };
            group.push(pod);
        }
        fleet.current.sort_by_key(|p| victim_order(p));
        fleet.old.sort_by_key(|p| victim_order(p));
        fleet
    }

    pub(super) fn routable(&self) -> usize {
        self.current.iter().chain(&self.old).filter(|p| p.takes_requests()).count()
    }

    /// Names for new pods: the lowest slots that no pod has.
    pub(super) fn free_names(&self, desired: &Desired<'_>) -> impl Iterator<Item = String> {
        let name = |slot| names::pod_name(desired.service, desired.revision, slot);
        (0..).map(name).filter(|n| !self.taken.contains(n.as_str()))
    }
}

/// Who goes first: those without requests, then the least loaded, then the coldest cache, then the youngest.
fn victim_order(pod: &ObservedPod) -> impl Ord + use<> {
    let (in_flight, cached) = match &pod.engine {
        EngineView::State(state) => (state.in_flight, state.kv.cached),
        EngineView::Unasked | EngineView::Silent => (u64::MAX, u64::MAX),
    };
    (pod.takes_requests(), in_flight, cached, std::cmp::Reverse(pod.created), pod.name.clone())
}
