//! Letting a replica in and letting it go.

use jiff::{SignedDuration, Timestamp};

use super::{Action, Desired, Fleet, Mode, Plan};
use crate::{ObservedPod, observed::EngineView};

/// Between two looks at an engine, and how long it must stay idle before it is deleted.
const POLL: SignedDuration = SignedDuration::from_secs(1);

/// Sets the gate of each pod whose containers are ready and whose engine says that it accepts work. The gate is
/// never taken back. A pod that goes is not let in.
pub(super) fn open_gates(fleet: &Fleet<'_>, now: Timestamp, plan: &mut Plan) {
    for pod in fleet.current.iter().chain(&fleet.old).filter(|p| p.containers_ready && !p.routable) {
        if plan.deletes(pod) {
            continue;
        }
        let (name, uid) = (pod.name.clone(), pod.uid.clone());
        match &pod.engine {
            EngineView::State(state) if state.ready => {
                plan.push(
                    Action::SetRoutable { name, uid },
                    "containers are ready and the engine accepts work",
                );
            }
            _ => plan.push(Action::Wait { until: after(now, POLL) }, format!("{name} does not answer yet")),
        }
    }
}

/// Deletes what has drained and waits for the rest.
pub(super) fn finish(desired: &Desired<'_>, fleet: &Fleet<'_>, now: Timestamp, plan: &mut Plan) {
    for pod in &fleet.draining {
        let Some(since) = pod.drain.and_then(|d| d.since) else {
            plan.push(Action::mark_draining(pod), "marked by someone else: the drain timeout starts now");
            continue;
        };
        let timeout = SignedDuration::try_from(desired.drain_timeout).unwrap_or(SignedDuration::MAX);
        let deadline = after(since, timeout);
        match drained(desired, pod, since, deadline, now) {
            Some(reason) => plan.push(Action::delete(pod), reason),
            None => plan.push(
                Action::Wait { until: deadline.min(after(now, POLL)) },
                format!("{} finishes its requests", pod.name),
            ),
        }
    }
}

fn drained(
    desired: &Desired<'_>,
    pod: &ObservedPod,
    since: Timestamp,
    deadline: Timestamp,
    now: Timestamp,
) -> Option<&'static str> {
    let idle = pod.idle_since.is_some_and(|idle| idle >= since && now.duration_since(idle) >= POLL);
    match pod {
        p if !p.routable => Some("it never took requests"),
        p if !p.engine_running => Some("its engine does not run"),
        _ if idle => Some("no request is in flight"),
        _ if now >= deadline => Some("the drain timeout is over"),
        p if desired.mode == Mode::Deleting && p.engine == EngineView::Silent => {
            Some("the service is deleted and the engine does not answer")
        }
        _ => None,
    }
}

fn after(time: Timestamp, delay: SignedDuration) -> Timestamp {
    time.checked_add(delay).unwrap_or(Timestamp::MAX)
}
