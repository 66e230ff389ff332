//! Tells of engines that ended and were started again: an event for each restart, once.

use std::{collections::HashMap, sync::Mutex};

use k8s_openapi::{
    api::events::v1::Event,
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Resource, ResourceExt, api::PostParams, runtime::reflector::ObjectRef};
use regatta_crds::LLMService;
use regatta_planner::{
    ObservedPod,
    contract::FIELD_MANAGER,
    observed::{RestartCounts, news},
};

use crate::{context::Context, dereference::Observed, events};

/// What was seen of each service. Forgotten when the process ends: what it told lately is then known by the names of
/// the events.
#[derive(Default)]
pub(crate) struct Seen(Mutex<HashMap<ObjectRef<LLMService>, RestartCounts>>);

impl Seen {
    fn news<'a>(&self, service: &LLMService, observed: &'a Observed) -> Vec<&'a ObservedPod> {
        let key = ObjectRef::from_obj(service);
        let owned = observed.pods.iter().filter(|p| p.owner_uid == service.metadata.uid);
        let mut all = self.0.lock().expect("never poisoned");
        let before = all.remove(&key).unwrap_or_default();
        let (counts, news) = news(&before, owned, observed.now);
        if !counts.is_empty() {
            all.insert(key, counts);
        }
        news
    }
}

/// Warns of each engine that was started again since the service was looked at last.
pub(crate) async fn tell(ctx: &Context, service: &LLMService, observed: &Observed) {
    let api: Api<Event> = Api::namespaced(ctx.client.clone(), &service.namespace().unwrap_or_default());
    for pod in ctx.restarts.news(service, observed) {
        match api.create(&PostParams::default(), &event(ctx, service, pod, observed)).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => tracing::debug!(%error, pod = pod.name, "a restart was not recorded"),
            Ok(_) => {}
        }
    }
}

/// Its name holds which restart it is, so that the API server takes it once, whoever sends it. The recorder of other
/// events would repeat the first one's note.
fn event(ctx: &Context, service: &LLMService, pod: &ObservedPod, observed: &Observed) -> Event {
    let restarts = &pod.restarts;
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{}.restart-{}", pod.name, pod.uid, restarts.count)),
            namespace: service.namespace(),
            ..ObjectMeta::default()
        },
        type_: Some("Warning".into()),
        reason: Some("EngineRestarted".into()),
        note: Some(events::cut(&restarts.note(&pod.name))),
        action: Some(events::ACTION.into()),
        event_time: Some(MicroTime(observed.now)),
        regarding: Some(service.object_ref(&())),
        related: Some(events::pod_ref(service, &pod.name, pod.uid.clone())),
        reporting_controller: Some(FIELD_MANAGER.into()),
        reporting_instance: Some(ctx.identity.clone()),
        ..Event::default()
    }
}
