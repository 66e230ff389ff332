//! Replicas made and removed, so that never more than one is missing.

use jiff::Timestamp;

use super::{Action, Desired, Fleet, Plan, backoff};
use crate::{
    ObservedPod,
    words::{count, verb},
};

/// Drains and deletes everything.
pub(super) fn stop(fleet: &Fleet<'_>, plan: &mut Plan) {
    for pod in fleet.current.iter().chain(&fleet.old) {
        retire(pod, "the service is stopped", plan);
    }
    for pod in &fleet.finished {
        plan.push(Action::delete(pod), "it has ended");
    }
}

/// Removes what is too many: replicas of other revisions, and the least loaded ones when fewer are wanted.
pub(super) fn remove(desired: &Desired<'_>, fleet: &Fleet<'_>, plan: &mut Plan) {
    let wanted = desired.replicas as usize;
    let surplus = fleet.current.len().saturating_sub(wanted);
    for pod in fleet.old.iter().filter(|p| !p.takes_requests()) {
        retire(pod, "it is of another revision and takes no requests", plan);
    }
    let idle_surplus = fleet.current.iter().filter(|p| !p.takes_requests()).take(surplus);
    let num_idle = idle_surplus.clone().count();
    for pod in idle_surplus {
        retire(pod, &format!("{} and it takes no requests", are_wanted(wanted)), plan);
    }
    let spare = fleet.routable().saturating_sub(wanted);
    let old = || fleet.old.iter().filter(|p| p.takes_requests());
    let num_old = old().count().min(spare);
    for pod in old().take(spare) {
        plan.push(Action::mark_draining(pod), format!("revision {} takes its place", desired.revision));
    }
    let routable_current = fleet.current.iter().filter(|p| p.takes_requests());
    for pod in routable_current.take((surplus - num_idle).min(spare - num_old)) {
        plan.push(Action::mark_draining(pod), format!("{}; it has the least work", are_wanted(wanted)));
    }
    if num_old == 0 && fleet.routable() >= wanted {
        make_room(fleet, old().next(), plan);
    }
}

/// In place: a new pod that does not fit gets the place of an old one. Whatever leaves already makes room first.
fn make_room(fleet: &Fleet<'_>, oldest: Option<&&ObservedPod>, plan: &mut Plan) {
    let leaving = !fleet.draining.is_empty() || !fleet.terminating.is_empty();
    let stuck = fleet.current.iter().find_map(|p| p.unschedulable.as_deref().filter(|m| lacks_capacity(m)));
    if let (Some(message), Some(pod), false) = (stuck, oldest, leaving) {
        plan.push(Action::mark_draining(pod), format!("makes room for its successor: {message}"));
    }
}

/// Whether the scheduler would take the pod if another one left.
pub(crate) fn lacks_capacity(message: &str) -> bool {
    message.contains("Insufficient ") || message.contains("Too many pods")
}

/// Makes what is missing, and one more during a rollout.
pub(super) fn create(desired: &Desired<'_>, fleet: &Fleet<'_>, now: Timestamp, plan: &mut Plan) {
    let wanted = desired.replicas as usize;
    let old = fleet.old.iter().filter(|p| p.takes_requests()).count();
    let missing = wanted.saturating_sub(fleet.current.len() + old);
    let all_new_routable = fleet.current.iter().all(|p| p.takes_requests());
    let total = fleet.current.len() + old + fleet.draining.len();
    let surge = usize::from(missing == 0 && old > 0 && all_new_routable && total <= wanted);
    let count = (missing + surge).min(wanted.saturating_sub(fleet.current.len()));

    let mut failures = failures(desired, fleet).into_iter();
    let mut names = fleet.free_names(desired);
    for _ in 0..count {
        let failed = failures.next();
        let (not_before, attempt) = failed.map_or((now, 0), backoff::replacement);
        if now < not_before {
            plan.push(
                Action::Wait { until: not_before },
                "a replica failed again and is replaced after a pause",
            );
            continue;
        }
        let Some(name) = names.next() else { return };
        let reason = match (failed, surge) {
            (Some(failed), _) => format!("replaces {}, which ended", failed.name),
            (None, 1) => format!("first to revision {}, then an old replica goes", desired.revision),
            (None, _) => are_wanted(wanted),
        };
        plan.push(Action::Create { name, attempt }, reason);
    }
    // What is left over has its replacement already.
    for pod in failures.filter(|p| p.finished && !p.terminating) {
        plan.push(Action::delete(pod), "it has ended");
    }
    for pod in fleet.finished.iter().filter(|p| p.revision != desired.revision) {
        plan.push(Action::delete(pod), "it has ended and is of another revision");
    }
}

fn are_wanted(wanted: usize) -> String {
    format!("{} {} wanted", count(wanted, "replica"), verb(wanted, "is", "are"))
}

/// Replicas of the desired revision that ended without our asking, those that stay visible first.
fn failures<'a>(desired: &Desired<'_>, fleet: &Fleet<'a>) -> Vec<&'a ObservedPod> {
    let ours = |p: &&&ObservedPod| p.revision == desired.revision && p.drain.is_none();
    let finished = fleet.finished.iter().filter(|p| p.revision == desired.revision);
    finished.chain(fleet.terminating.iter().filter(ours)).copied().collect()
}

fn retire(pod: &ObservedPod, reason: &str, plan: &mut Plan) {
    let action = if pod.routable { Action::mark_draining(pod) } else { Action::delete(pod) };
    plan.push(action, reason);
}
