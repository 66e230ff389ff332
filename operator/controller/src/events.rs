//! Events on the LLMService. Losing one loses nothing: they are for people.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource, ResourceExt,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use regatta_crds::{LLMService, LLMServiceStatus};
use regatta_planner::{contract::FIELD_MANAGER, plan::Action};

use crate::context::Context;

/// The API server takes notes of up to 1024 bytes; a character of a message has four at most.
const MAX_NOTE_CHARS: usize = 255;

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
    let related = ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: service.namespace(),
        name: Some(pod.clone()),
        uid: Some(uid),
        ..ObjectReference::default()
    };
    publish(ctx, service, EventType::Normal, reason, format!("{pod}: {why}"), Some(related)).await;
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
        note: Some(note.chars().take(MAX_NOTE_CHARS).collect()),
        action: "Reconcile".into(),
        secondary: related,
    };
    let regarding: ObjectReference = service.object_ref(&());
    if let Err(error) = ctx.recorder.publish(&event, &regarding).await {
        tracing::debug!(%error, reason, "an event was not recorded");
    }
}
