//! Conditions, read together as kstatus does: Ready, Reconciling and Stalled are never true two at a time.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use regatta_crds::ConditionType;

use super::{
    Reason, Situation,
    verdict::{self, Verdict},
};
use crate::{ObservedPod, plan::Mode, words};

struct Value {
    holds: bool,
    reason: Reason,
    message: String,
}

/// All conditions in their fixed order. A condition that did not change keeps its transition time.
pub(super) fn all(situation: &Situation<'_>) -> Vec<Condition> {
    let verdict = verdict::of(situation);
    ConditionType::ALL
        .iter()
        .map(|type_| timed(situation, *type_, value(situation, &verdict, *type_)))
        .collect()
}

fn value(situation: &Situation<'_>, verdict: &Verdict, type_: ConditionType) -> Value {
    match type_ {
        ConditionType::Ready => ready(verdict),
        ConditionType::Available => available(situation),
        ConditionType::Reconciling => match verdict {
            Verdict::Waiting { reason, message } => {
                Value { holds: true, reason: *reason, message: message.clone() }
            }
            Verdict::Ready { .. } => no(Reason::Done, "the spec is met"),
            Verdict::Stalled { .. } => no(Reason::Stalled, "see the condition Stalled"),
            Verdict::Paused { message } => no(Reason::Paused, message),
        },
        ConditionType::Stalled => match verdict {
            Verdict::Stalled { reason, message } => {
                Value { holds: true, reason: *reason, message: message.clone() }
            }
            _ => no(Reason::NotStalled, "nothing waits for a person"),
        },
        ConditionType::SpecValid => match verdict::spec_problem(situation.problems) {
            Some((reason, message)) => no(reason, &message),
            None => {
                let message = "no field breaks a rule, and the API server did not refuse the pod template";
                Value { holds: true, reason: Reason::SpecValid, message: message.into() }
            }
        },
    }
}

fn ready(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Ready { reason, message } => {
            Value { holds: true, reason: *reason, message: message.clone() }
        }
        Verdict::Waiting { reason, message } | Verdict::Stalled { reason, message } => no(*reason, message),
        Verdict::Paused { message } => no(Reason::Paused, message),
    }
}

fn available(situation: &Situation<'_>) -> Value {
    let count = situation.pods.iter().filter(|p| p.takes_requests() && p.ready).count();
    match (count, situation.mode) {
        (0, Mode::Stopped) => no(Reason::Stopped, "runPolicy is Stopped"),
        (0, _) if situation.pods.iter().any(ObservedPod::is_alive) => {
            no(Reason::NoRoutableReplica, "no replica takes requests yet")
        }
        (0, _) => no(Reason::NoReplica, "there is no replica"),
        (count, _) => Value {
            holds: true,
            reason: Reason::ReplicasRoutable,
            message: format!(
                "{} {} requests",
                words::count(count, "replica"),
                words::verb(count, "takes", "take")
            ),
        },
    }
}

fn no(reason: Reason, message: &str) -> Value {
    Value { holds: false, reason, message: message.to_owned() }
}

fn timed(situation: &Situation<'_>, type_: ConditionType, value: Value) -> Condition {
    let status = if value.holds { "True" } else { "False" };
    let before = situation.service.status.as_ref().and_then(|s| s.conditions.as_ref());
    let same = before.into_iter().flatten().find(|c| c.type_ == type_.as_str() && c.status == status);
    Condition {
        type_: type_.as_str().to_owned(),
        status: status.to_owned(),
        reason: value.reason.to_string(),
        message: value.message,
        observed_generation: situation.service.metadata.generation,
        last_transition_time: same.map_or(Time(situation.now), |c| c.last_transition_time.clone()),
    }
}
