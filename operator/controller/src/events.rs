//! Events on the LLMService. Losing one loses nothing: they are for people.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource, ResourceExt,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use regatta_crds::{LLMService, LLMServiceStatus};
use regatta_planner::{contract::FIELD_MANAGER, plan::Action};

use crate::context::Context;

/// Longest note that the API server takes.
const MAX_NOTE_BYTES: usize = 1024;
/// What the operator does when it finds what its events tell.
pub(crate) const ACTION: &str = "Reconcile";

pub(crate) fn recorder(client: Client, identity: &str) -> Recorder {
    let reporter = Reporter { controller: FIELD_MANAGER.into(), instance: Some(identity.to_owned()) };
    Recorder::new(client, reporter)
}

/// Tells that a step was taken on the pod `uid`. Repeats about one pod are counted in one event; each pod has its own.
pub(crate) async fn step(ctx: &Context, service: &LLMService, action: &Action, uid: String, why: &str) {
    let (reason, pod) = match action {
        Action::Create { name, .. } => ("ReplicaCreated", name),
        Action::MarkDraining { name, .. } => ("ReplicaDraining", name),
        Action::Delete { name, .. } => ("ReplicaDeleted", name),
        Action::SetRoutable { name, .. } => ("ReplicaRoutable", name),
        Action::Wait { .. } => return,
    };
    let related = pod_ref(service, pod, uid);
    publish(ctx, service, EventType::Normal, reason, format!("{pod}: {why}"), Some(related)).await;
}

/// A pod of `service`.
pub(crate) fn pod_ref(service: &LLMService, pod: &str, uid: String) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: service.namespace(),
        name: Some(pod.to_owned()),
        uid: Some(uid),
        ..ObjectReference::default()
    }
}

/// The start of `note`, as much as an event holds.
pub(crate) fn cut(note: &str) -> String {
    let fits = |(at, c): &(usize, char)| at + c.len_utf8() <= MAX_NOTE_BYTES;
    note.char_indices().take_while(fits).map(|(_, c)| c).collect()
}

/// Warns when the condition Stalled has become true, or true for another reason.
pub(crate) async fn stalled(ctx: &Context, service: &LLMService, status: &LLMServiceStatus) {
    let find = |status: &LLMServiceStatus| {
        let conditions = status.conditions.iter().flatten();
        conditions.clone().find(|c| c.type_ == "Stalled" && c.status == "True").cloned()
    };
    let Some(now) = find(status) else { return };
    let before = service.status.as_ref().and_then(find);
    if before.is_none_or(|b| b.reason != now.reason) {
        publish(ctx, service, EventType::Warning, &now.reason, now.message, None).await;
    }
}

async fn publish(
    ctx: &Context,
    service: &LLMService,
    type_: EventType,
    reason: &str,
    note: String,
    related: Option<ObjectReference>,
) {
    let event = Event {
        type_,
        reason: reason.to_owned(),
        note: Some(cut(&note)),
        action: ACTION.into(),
        secondary: related,
    };
    let regarding: ObjectReference = service.object_ref(&());
    if let Err(error) = ctx.recorder.publish(&event, &regarding).await {
        tracing::debug!(%error, reason, "an event was not recorded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&format!("x{}", "\u{1f6a2}".repeat(500))).len(), 1 + 4 * 255);
    }
}
