//! Where a service stands, as one of three: ready, at work, or stuck until a person acts.

use jiff::SignedDuration;

use super::{Problem, Reason, Situation};
use crate::{
    ObservedPod,
    names::Conflict,
    plan::Mode,
    words::{count, verb},
};

/// How long the scheduler may refuse a pod before a person is called: volumes are bound and nodes are added meanwhile.
const SCHEDULING_GRACE: SignedDuration = SignedDuration::from_secs(15);
/// Names listed in a message.
const MAX_NAMES: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Ready {
        reason: Reason,
        message: String,
    },
    Waiting {
        reason: Reason,
        message: String,
    },
    Stalled {
        reason: Reason,
        message: String,
    },
    /// Nothing is done and nothing is wrong, but the spec is not met.
    Paused {
        message: String,
    },
}

pub(super) fn of(situation: &Situation<'_>) -> Verdict {
    invalid(situation).or_else(|| blocked(situation)).unwrap_or_else(|| progress(situation))
}

/// The text of a problem with the spec itself.
pub(super) fn spec_problem(problems: &[Problem]) -> Option<(Reason, String)> {
    problems.iter().find_map(|p| match p {
        Problem::SpecInvalid(why) => Some((Reason::SpecInvalid, why.clone())),
        Problem::PodTemplateRefused(why) => Some((
            Reason::PodTemplateRefused,
            format!("the API server refuses the pod: {why}; correct spec.podTemplate"),
        )),
        _ => None,
    })
}

fn invalid(situation: &Situation<'_>) -> Option<Verdict> {
    spec_problem(situation.problems).map(|(reason, message)| Verdict::Stalled { reason, message })
}

/// What waiting does not mend.
fn blocked(situation: &Situation<'_>) -> Option<Verdict> {
    if situation.mode != Mode::Run {
        return None;
    }
    let stalled = |(reason, message)| Verdict::Stalled { reason, message };
    name_conflict(situation.conflicts)
        .or_else(|| situation.problems.iter().find_map(problem))
        .or_else(|| trouble(situation))
        .or_else(|| unschedulable(situation))
        .map(stalled)
}

fn name_conflict(conflicts: &[Conflict]) -> Option<(Reason, String)> {
    let first = conflicts.first()?;
    let message = format!(
        "the served name '{}' belongs to the older service {}/{}; choose another in spec.model.servedNames",
        first.served_name, first.owner_namespace, first.owner_service,
    );
    Some((Reason::ServedNameTaken, message))
}

fn problem(problem: &Problem) -> Option<(Reason, String)> {
    match problem {
        Problem::ClaimMissing(claim) => Some((
            Reason::VolumeClaimMissing,
            format!(
                "PersistentVolumeClaim '{claim}' of spec.model.uri does not exist in this namespace; create it"
            ),
        )),
        Problem::NameTaken { kind, name } => Some((
            Reason::NameTaken,
            format!("{kind} '{name}' exists and is not of this service; delete it or rename the service"),
        )),
        Problem::PodRefused(why) => {
            Some((Reason::PodRefused, format!("the API server refuses to create pods: {why}")))
        }
        Problem::SpecInvalid(_) | Problem::PodTemplateRefused(_) | Problem::ApplyFailed(_) => None,
    }
}

fn trouble(situation: &Situation<'_>) -> Option<(Reason, String)> {
    // A pod that its node ended is replaced at once; only a replacement that ends too is worth a word.
    let counts = |p: &&ObservedPod| !p.finished || p.attempt > 0;
    let pods = current(situation).filter(counts);
    let troubled = pods.filter_map(|p| Some((p, p.trouble.as_ref().filter(|t| !t.passing)?)));
    let (pod, trouble) = troubled.min_by_key(|(_, t)| t.cause)?;
    Some((Reason::Pod(trouble.cause), format!("pod {}: {}", pod.name, trouble.message)))
}

fn unschedulable(situation: &Situation<'_>) -> Option<(Reason, String)> {
    let leaving = situation.pods.iter().any(|p| p.drain.is_some() || p.terminating);
    let old_enough = |p: &&ObservedPod| situation.now.duration_since(p.created) >= SCHEDULING_GRACE;
    let stuck =
        current(situation).filter(old_enough).find_map(|p| Some((&p.name, p.unschedulable.as_ref()?)));
    let (name, why) = stuck.filter(|_| !leaving)?;
    Some((Reason::Unschedulable, format!("no node takes pod {name}: {why}")))
}

fn current<'a>(situation: &'a Situation<'_>) -> impl Iterator<Item = &'a ObservedPod> {
    let of_revision = |p: &&ObservedPod| Some(p.revision.as_str()) == situation.revision;
    situation.pods.iter().filter(of_revision).filter(|p| !p.terminating && p.drain.is_none())
}

fn progress(situation: &Situation<'_>) -> Verdict {
    let wanted = match situation.mode {
        Mode::Run | Mode::Paused => usize::try_from(situation.service.spec.replicas).unwrap_or(0),
        Mode::Stopped | Mode::Deleting => 0,
    };
    let serving = current(situation).filter(|p| p.takes_requests()).count();
    let others = situation.pods.len() - current(situation).filter(|p| p.is_alive()).count();
    let alive = situation.pods.iter().filter(|p| p.is_alive()).count();
    let met = serving == wanted && alive == wanted && !draining(situation);
    match situation.mode {
        Mode::Deleting => {
            waiting(Reason::Deleting, "replicas are drained and removed, since the service is deleted".into())
        }
        Mode::Stopped if situation.pods.is_empty() => {
            ready(Reason::Stopped, "runPolicy is Stopped: no replica is kept".into())
        }
        Mode::Stopped => {
            let left = situation.pods.len();
            let message =
                format!("runPolicy is Stopped: {} {}", count(left, "pod"), verb(left, "remains", "remain"));
            waiting(Reason::Stopping, message)
        }
        Mode::Paused if !met => Verdict::Paused {
            message: format!(
                "runPolicy is Paused: {serving} of {} up to date and taking requests; nothing is changed",
                count(wanted, "replica"),
            ),
        },
        Mode::Run | Mode::Paused if met && wanted == 0 => {
            ready(Reason::ScaledToZero, "no replica is wanted".into())
        }
        Mode::Run | Mode::Paused if met => ready(Reason::ReplicasRoutable, all_routable(wanted)),
        Mode::Run | Mode::Paused => {
            waiting(phase(situation, wanted), working(situation, serving, wanted, others))
        }
    }
}

fn all_routable(wanted: usize) -> String {
    match wanted {
        1 => "the replica is up to date and takes requests".into(),
        _ => format!("all {wanted} replicas are up to date and take requests"),
    }
}

fn ready(reason: Reason, message: String) -> Verdict {
    Verdict::Ready { reason, message }
}

fn waiting(reason: Reason, message: String) -> Verdict {
    Verdict::Waiting { reason, message }
}

fn draining(situation: &Situation<'_>) -> bool {
    situation.pods.iter().any(|p| p.drain.is_some() && !p.terminating && !p.finished)
}

fn phase(situation: &Situation<'_>, wanted: usize) -> Reason {
    let of_old = |p: &&ObservedPod| p.is_alive() && Some(p.revision.as_str()) != situation.revision;
    if situation.problems.iter().any(|p| matches!(p, Problem::ApplyFailed(_))) {
        Reason::ApplyFailed
    } else if situation.pods.iter().filter(of_old).count() > 0 {
        Reason::RollingOut
    } else if current(situation).count() >= wanted && draining(situation) {
        Reason::Draining
    } else {
        Reason::ReplicasStarting
    }
}

fn working(situation: &Situation<'_>, serving: usize, wanted: usize, others: usize) -> String {
    let mut message = format!("{serving} of {} up to date and taking requests", count(wanted, "replica"));
    if others > 0 {
        let are = verb(others, "is", "are");
        message += &format!("; {} {are} being replaced or removed", count(others, "other pod"));
    }
    let starting: Vec<_> = current(situation).filter(|p| !p.takes_requests()).map(named).collect();
    if !starting.is_empty() {
        let shown = starting[..starting.len().min(MAX_NAMES)].join(", ");
        let more = starting.len().saturating_sub(MAX_NAMES);
        message += &format!("; waiting for {shown}");
        message += &if more > 0 { format!(" and {more} more") } else { String::new() };
    }
    let failed = situation.problems.iter().find_map(|p| match p {
        Problem::ApplyFailed(why) => Some(format!("; {why}; trying again")),
        _ => None,
    });
    message + &failed.unwrap_or_default()
}

/// A pod and what it is at.
fn named(pod: &ObservedPod) -> String {
    let stage = match &pod.trouble {
        Some(trouble) => format!("starts again: {}", trouble.message),
        None => pod.stage().to_owned(),
    };
    format!("{} ({stage})", pod.name)
}
