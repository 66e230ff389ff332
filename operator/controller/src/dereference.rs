//! Everything that a reconcile reads, gathered before it decides. Talks to the API server and to engines.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{PersistentVolumeClaim, Pod},
    events::v1::Event,
};
use kube::{Api, ResourceExt, api::ListParams, runtime::reflector::Store};
use regatta_crds::LLMService;
use regatta_planner::{
    ObservedPod,
    contract::SERVICE_LABEL,
    names::{Conflict, Owners},
    observed::setup_trouble,
    revision::Revision,
    validate::{ModelSource, claim, source_of},
};

use crate::{context::Context, written};

/// Pods of one service whose events are read: they rarely fail for different causes.
const MAX_STUCK: usize = 3;
/// Events that are read of a pod; repeats are one event.
const MAX_EVENTS: u32 = 50;

/// What was seen of one service.
pub(crate) struct Observed {
    /// Pods that carry its label, with what their engines say.
    pub(crate) pods: Vec<ObservedPod>,
    /// Templates that its pods were made from.
    pub(crate) revisions: Vec<Revision>,
    /// Served names that it lost to services of other namespaces.
    pub(crate) conflicts: Vec<Conflict>,
    /// The claim of its model, if there is none of that name.
    pub(crate) missing_claim: Option<String>,
    /// When all this was seen.
    pub(crate) now: Timestamp,
}

/// None while the caches are behind our own writes.
pub(crate) async fn dereference(
    ctx: &Context,
    service: &LLMService,
) -> Result<Option<Observed>, kube::Error> {
    let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
    let cached = pods_of(ctx, &namespace, &name);
    if is_behind(ctx, &namespace, &name, &cached) {
        return Ok(None);
    }
    let mut pods: Vec<_> = cached.iter().filter_map(|p| ObservedPod::read(p)).collect();
    let replicas = u32::try_from(service.spec.replicas).unwrap_or(0);
    ctx.engines.ask(&namespace, &name, replicas, &mut pods).await;
    let now = Timestamp::now();
    explain_stuck(ctx, &namespace, &mut pods, now).await;
    Ok(Some(Observed {
        pods,
        revisions: revisions_of(ctx, service),
        conflicts: conflicts_of(ctx, service),
        missing_claim: missing_claim(ctx, service, &namespace).await?,
        now,
    }))
}

fn pods_of(ctx: &Context, namespace: &str, name: &str) -> Vec<Arc<Pod>> {
    ctx.pods().state_filter(|pod| {
        let label = pod.metadata.labels.as_ref().and_then(|l| l.get(SERVICE_LABEL));
        pod.metadata.namespace.as_deref() == Some(namespace) && label.is_some_and(|l| l == name)
    })
}

fn is_behind(ctx: &Context, namespace: &str, name: &str, cached: &[Arc<Pod>]) -> bool {
    let version = |pod: &str| cached.iter().find(|p| p.name_any() == pod).map(|p| written::version(&**p));
    ctx.written.is_ahead(namespace, name, version)
}

fn revisions_of(ctx: &Context, service: &LLMService) -> Vec<Revision> {
    let uid = service.uid();
    let owned = ctx.revisions().state_filter(|stored| {
        let mut owners = stored.metadata.owner_references.iter().flatten();
        stored.metadata.namespace == service.metadata.namespace
            && owners.any(|o| Some(&o.uid) == uid.as_ref())
    });
    owned.iter().filter_map(|stored| Revision::read(stored)).collect()
}

fn conflicts_of(ctx: &Context, service: &LLMService) -> Vec<Conflict> {
    let Some(mine) = claim(service) else { return Vec::new() };
    let claims: Vec<_> = rivals(ctx.services(), service).iter().filter_map(|other| claim(other)).collect();
    Owners::settle(claims.iter().chain([&mine])).conflicts(&mine)
}

/// Other services that ask for one of the same names, valid or not.
pub(crate) fn rivals(services: &Store<LLMService>, service: &LLMService) -> Vec<Arc<LLMService>> {
    let mine = service.served_names();
    services.state_filter(|other| {
        other.uid() != service.uid() && other.served_names().iter().any(|name| mine.contains(name))
    })
}

async fn missing_claim(
    ctx: &Context,
    service: &LLMService,
    namespace: &str,
) -> Result<Option<String>, kube::Error> {
    let Some(ModelSource::Claim { claim, .. }) = source_of(service) else { return Ok(None) };
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), namespace);
    Ok(claims.get_metadata_opt(&claim).await?.is_none().then_some(claim))
}

/// What keeps a pod's volumes or its network from being there stands in its events alone. Without them planning goes on:
/// they are for people.
async fn explain_stuck(ctx: &Context, namespace: &str, pods: &mut [ObservedPod], now: Timestamp) {
    let events: Api<Event> = Api::namespaced(ctx.client.clone(), namespace);
    for pod in pods.iter_mut().filter(|p| p.is_stuck_before_its_containers(now)).take(MAX_STUCK) {
        let warnings = format!("regarding.uid={},type=Warning", pod.uid);
        match events.list(&ListParams::default().fields(&warnings).limit(MAX_EVENTS)).await {
            Ok(found) => pod.trouble = setup_trouble(&found.items),
            Err(error) => tracing::warn!(namespace, pod = pod.name, %error, "cannot list the pod's events"),
        }
    }
}
