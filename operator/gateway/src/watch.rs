//! Watches of LLMServices and Pods, and the table that follows from them.

use std::{convert::Infallible, fmt::Debug, hash::Hash, pin::pin, sync::Arc};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::{
    Api, Client, Resource,
    api::DynamicObject,
    runtime::{
        WatchStreamExt,
        reflector::{self, Store},
        watcher::{self, Event, watcher},
    },
};
use regatta_crds::{LLMService, RunPolicy};
use regatta_planner::{
    contract::{NAME_LABEL, NAME_VALUE},
    validate,
};
use tracing::{debug, warn};

use crate::{Gateway, Replica, Service, Table, build_table};

/// Changes taken together into one table.
const BATCH: usize = 1024;

/// Publishes a table to `gateway` after each change; ends only when dropped. A failing watch keeps the last table.
pub(crate) async fn run(client: Client, namespace: Option<&str>, gateway: &Gateway) -> Infallible {
    let config = regatta_watch::config();
    // Read untyped, so that one object of a newer API does not end the watch of all others.
    let kind = kube::api::ApiResource::erase::<LLMService>(&());
    let services: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    };
    let pods: Api<Pod> = match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let engines = config.clone().labels(&format!("{NAME_LABEL}={NAME_VALUE}"));
    let (service_store, service_writer) = {
        let writer = reflector::store::Writer::new(kind);
        (writer.as_reader(), writer)
    };
    let (pod_store, pod_writer) = reflector::store();
    let service_events = watcher(services, config)
        .backoff(regatta_watch::pauses())
        .modify(|s| s.metadata.managed_fields = None);
    let pod_events = watcher(pods, engines).backoff(regatta_watch::pauses()).modify(trim);
    let mut changes = pin!(
        stream::select(
            changes("LLMServices", service_events.reflect(service_writer)),
            changes("Pods", pod_events.reflect(pod_writer)),
        )
        .ready_chunks(BATCH)
    );
    let synced = async {
        // Cannot fail while the streams that own the writers live.
        let _ = service_store.wait_until_ready().await;
        let _ = pod_store.wait_until_ready().await;
    };
    let mut synced = pin!(synced);
    let mut is_synced = false;
    loop {
        tokio::select! {
            () = &mut synced, if !is_synced => is_synced = true,
            batch = changes.next() => if batch.is_none() { std::future::pending::<()>().await },
        }
        if is_synced {
            gateway.publish(table(&service_store, &pod_store));
        }
    }
}

/// One item for each event after which the store shows something new.
fn changes<K: Resource + Debug>(
    kind: &'static str,
    events: impl Stream<Item = watcher::Result<Event<K>>>,
) -> impl Stream<Item = ()> {
    events.filter_map(move |event| {
        let changed = match event {
            // A relist shows in the store when it is done.
            Ok(Event::Init | Event::InitApply(_)) => false,
            Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => true,
            Err(error) => {
                warn!(%error, "the watch of {kind} failed and starts again; routes stay as they are");
                false
            }
        };
        std::future::ready(changed.then_some(()))
    })
}

fn table(services: &Store<DynamicObject>, pods: &Store<Pod>) -> Table {
    let services: Vec<Service> = states(services).iter().filter_map(|object| service(object)).collect();
    let replicas: Vec<Replica> = states(pods).iter().filter_map(|pod| Replica::from_pod(pod)).collect();
    build_table(&services, &replicas)
}

fn states<K>(store: &Store<K>) -> Vec<Arc<K>>
where
    K: Clone + Resource,
    K::DynamicType: Eq + Hash + Clone,
{
    store.state()
}

fn service(object: &DynamicObject) -> Option<Service> {
    let typed: Result<LLMService, _> = object.clone().try_parse();
    let service = typed
        .inspect_err(|error| debug!(%error, name = ?object.metadata.name, "cannot read an LLMService"))
        .ok()?;
    let stopped = service.spec.run_policy == Some(RunPolicy::Stopped) || service.spec.replicas == 0;
    Some(Service { claim: validate::claim(&service)?, wanted: !stopped })
}

/// Keeps what [`Replica::from_pod`] reads, so that thousands of pods fit in memory.
fn trim(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
    pod.metadata.owner_references = None;
    if let Some(spec) = pod.spec.take() {
        let containers = spec.containers.into_iter().map(|c| k8s_openapi::api::core::v1::Container {
            name: c.name,
            ports: c.ports,
            ..Default::default()
        });
        pod.spec = Some(PodSpec { containers: containers.collect(), ..PodSpec::default() });
    }
    if let Some(status) = &mut pod.status {
        status.container_statuses = None;
        status.init_container_statuses = None;
        status.ephemeral_container_statuses = None;
    }
}
