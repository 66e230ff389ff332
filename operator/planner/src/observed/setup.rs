//! Why a pod's containers are not even made: volumes, network and sandbox come first, and what fails there stands in
//! events only.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{core::v1::PodStatus, events::v1::Event};

use super::{
    ObservedPod,
    trouble::{Cause, Trouble, names_what_is_missing, trouble},
};

/// Volumes are attached and networks made meanwhile; what takes longer is asked about.
const GRACE: SignedDuration = SignedDuration::from_secs(30);

/// Since when volumes, network and sandbox of a pod are awaited.
pub(super) fn awaited_since(status: &PodStatus) -> Option<Timestamp> {
    let awaited = |c: &&k8s_openapi::api::core::v1::PodCondition| {
        c.type_ == "PodReadyToStartContainers" && c.status == "False"
    };
    let ended = matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"));
    let condition = status.conditions.iter().flatten().find(awaited).filter(|_| !ended)?;
    condition.last_transition_time.as_ref().map(|time| time.0)
}

impl ObservedPod {
    /// Whether its volumes, network and sandbox have been awaited for so long that its events may tell why.
    pub fn is_stuck_before_its_containers(&self, now: Timestamp) -> bool {
        let long_ago = |since| now.duration_since(since) >= GRACE;
        !self.terminating && self.trouble.is_none() && self.setup_since.is_some_and(long_ago)
    }
}

/// What the newest of the pod's `events` says that keeps its containers from being made.
pub fn setup_trouble(events: &[Event]) -> Option<Trouble> {
    let told = events.iter().filter_map(|event| Some((time_of(event)?, cause_of(event)?, event)));
    let (_, cause, event) = told.max_by_key(|(time, ..)| *time)?;
    let note = event.note.as_deref().unwrap_or("no message").trim();
    let message = match cause {
        Cause::VolumeMountFailed if names_what_is_missing(note) => {
            format!("{note}; create it in this namespace, or correct spec.podTemplate")
        }
        Cause::VolumeMountFailed => format!("{note}; mend what it names, or correct spec.podTemplate"),
        _ => format!("{note}; look after the node's network and container runtime"),
    };
    Some(trouble(cause, &message))
}

fn cause_of(event: &Event) -> Option<Cause> {
    match event.reason.as_deref()? {
        "FailedMount" | "FailedAttachVolume" | "FailedMapVolume" => Some(Cause::VolumeMountFailed),
        "FailedCreatePodSandBox" | "NetworkNotReady" => Some(Cause::PodSandboxFailed),
        _ => None,
    }
}

/// When the event was last seen, in whichever of its three forms it was written.
fn time_of(event: &Event) -> Option<Timestamp> {
    let of_series = event.series.as_ref().map(|s| s.last_observed_time.0);
    let old_form = || event.deprecated_last_timestamp.as_ref().map(|t| t.0);
    of_series.or_else(old_form).or_else(|| event.event_time.as_ref().map(|t| t.0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(reason: &str, note: &str, time: Value) -> Event {
        let mut object = json!({"metadata": {}, "reason": reason, "note": note, "eventTime": null});
        object.as_object_mut().expect("an object").extend(time.as_object().expect("times").clone());
        serde_json::from_value(object).expect("an event")
    }

    fn last_seen(second: u32) -> Value {
        json!({"deprecatedLastTimestamp": format!("2026-01-01T00:00:{second:02}Z")})
    }

    #[test]
    fn the_newest_event_that_holds_a_pod_up_is_told() {
        let events = [
            event("FailedMount", "configmap \"a\" not found", last_seen(1)),
            event("FailedMount", "secret \"b\" not found", last_seen(3)),
            event("Scheduled", "to node", last_seen(5)),
            event("FailedScheduling", "0/1 nodes", last_seen(6)),
            event("FailedToRetrieveImagePullSecret", "only a warning", last_seen(7)),
        ];
        let found = setup_trouble(&events).expect("told");
        assert_eq!(found.cause, Cause::VolumeMountFailed);
        assert!(
            found.message.starts_with(
                "secret \"b\" not found; create it in this namespace, or correct spec.podTemplate"
            ),
            "{}",
            found.message
        );
        assert!(!found.passing);
        assert_eq!(setup_trouble(&events[2..]), None);
    }

    #[test]
    fn each_form_of_an_events_time_is_read() {
        let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:09.000000Z"},
            "eventTime": "2026-01-01T00:00:00.000000Z"});
        let events = [
            event("FailedMount", "old", last_seen(5)),
            event("FailedCreatePodSandBox", "no network", series),
            event("FailedAttachVolume", "older", json!({"eventTime": "2026-01-01T00:00:03.000000Z"})),
        ];
        assert_eq!(setup_trouble(&events).expect("told").cause, Cause::PodSandboxFailed);
        assert!(setup_trouble(&events[2..]).expect("told").message.starts_with("older"));
    }

    #[test]
    fn a_long_note_is_cut() {
        let found = setup_trouble(&[event("FailedMount", &"x".repeat(5000), last_seen(1))]).expect("told");
        assert_eq!(found.message.chars().count(), 1024);
    }

    #[test]
    fn events_are_asked_for_once_a_pod_has_waited_long_for_its_volumes_and_network() {
        let pod = |status: &str, phase: &str, deleted: Option<&str>| {
            let pod = json!({
                "metadata": {"name": "p", "uid": "u", "deletionTimestamp": deleted},
                "status": {"phase": phase, "conditions": [{"type": "PodReadyToStartContainers", "status": status,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            });
            ObservedPod::read(&serde_json::from_value(pod).expect("a pod")).expect("named")
        };
        let at = |text: &str| -> Timestamp { text.parse().expect("a time") };
        let (soon, later) = (at("2026-01-01T00:00:29Z"), at("2026-01-01T00:00:30Z"));
        let waiting = pod("False", "Pending", None);
        assert!(
            !waiting.is_stuck_before_its_containers(soon) && waiting.is_stuck_before_its_containers(later)
        );
        for other in [
            pod("True", "Pending", None),
            pod("False", "Failed", None),
            pod("False", "Pending", Some("2026-01-01T00:00:05Z")),
        ] {
            assert!(!other.is_stuck_before_its_containers(later), "{other:?}");
        }
    }
}
