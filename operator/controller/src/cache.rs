//! What is watched, kept in memory: trimmed to what planning reads, so that ten thousand pods fit.

use futures::{Stream, StreamExt};
use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    core::v1::{Pod, Service},
};
use kube::{
    Api, Client, Resource,
    core::NamespaceResourceScope,
    runtime::{
        WatchStreamExt,
        reflector::{self, Store, store::Writer},
        watcher::{self, watcher},
    },
};
use regatta_crds::LLMService;
use regatta_planner::contract::{MANAGED_BY_LABEL, MANAGED_BY_VALUE};
use serde::de::DeserializeOwned;
use std::{fmt::Debug, hash::Hash, sync::Mutex};

/// A store and, until its watch starts, the writer that fills it.
pub(crate) struct Cache<K: Resource<DynamicType = ()> + Clone + 'static>
where
    K::DynamicType: Hash + Eq,
{
    reader: Store<K>,
    writer: Mutex<Option<Writer<K>>>,
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Default for Cache<K> {
    fn default() -> Self {
        let (reader, writer) = reflector::store();
        Self { reader, writer: Mutex::new(Some(writer)) }
    }
}

impl<K> Cache<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + Sync
        + 'static,
{
    pub(crate) fn reader(&self) -> &Store<K> {
        &self.reader
    }

    /// Watches into the store. The stream yields every object that was added, changed or deleted.
    ///
    /// # Panics
    /// When called twice: a store has one writer.
    pub(crate) fn watch(
        &self,
        client: &Client,
        namespace: Option<&str>,
        config: watcher::Config,
        trim: fn(&mut K),
    ) -> impl Stream<Item = Result<K, watcher::Error>> + Send + use<K> {
        let writer = self.writer.lock().expect("never poisoned").take().expect("one writer");
        watcher(scoped(client, namespace), config)
            .backoff(regatta_watch::pauses())
            .modify(trim)
            .reflect(writer)
            .touched_objects()
            .boxed()
    }
}

/// All that reconciles read without asking the API server.
#[derive(Default)]
pub(crate) struct Caches {
    pub(crate) services: Cache<LLMService>,
    pub(crate) pods: Cache<Pod>,
    pub(crate) revisions: Cache<ControllerRevision>,
}

/// The API of one namespace, or of all.
pub(crate) fn scoped<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Watches only what we made.
pub(crate) fn ours() -> watcher::Config {
    regatta_watch::config().labels(&format!("{MANAGED_BY_LABEL}={MANAGED_BY_VALUE}"))
}

/// Changes of our Services, which are applied anew whenever they differ; nothing of them is kept.
pub(crate) fn watch_services(
    client: &Client,
    namespace: Option<&str>,
) -> impl Stream<Item = Result<Service, watcher::Error>> + Send + use<> {
    watcher(scoped::<Service>(client, namespace), ours())
        .backoff(regatta_watch::pauses())
        .touched_objects()
        .boxed()
}

/// The template of a running pod is in its ControllerRevision; here only its state counts.
pub(crate) fn trim_pod(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
    pod.spec = None;
}

pub(crate) fn trim_service(service: &mut LLMService) {
    service.metadata.managed_fields = None;
}

pub(crate) fn trim_revision(revision: &mut ControllerRevision) {
    revision.metadata.managed_fields = None;
}
