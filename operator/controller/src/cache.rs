//! What is watched, kept in memory: trimmed to what planning reads, so that ten thousand pods fit.

use backon::ExponentialBuilder;
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
        utils::{Backoff, ResetTimerBackoff},
        watcher::{self, ExponentialBackoff, watcher},
    },
};
use regatta_crds::LLMService;
use regatta_planner::contract::{MANAGED_BY_LABEL, MANAGED_BY_VALUE};
use serde::de::DeserializeOwned;
use std::{fmt::Debug, hash::Hash, sync::Mutex, time::Duration};

/// Load balancers drop watches that are idle for four minutes; end them earlier ourselves.
const WATCH_SECONDS: u32 = 200;
/// The first pause after a watch broke; each further one is twice as long, and jitter adds up to as much again.
const MIN_PAUSE: Duration = Duration::from_millis(800);
/// Services wait as long as their watches do; a handful of watches burdens no API server that comes back.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// A watch that lived this long without a word starts anew, as does one that brought a change.
const RESET_AFTER: Duration = Duration::from_secs(20);

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
        watcher(scoped(client, namespace), config.timeout(WATCH_SECONDS))
            .backoff(pauses())
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

/// Pauses before a broken watch is opened again.
fn pauses() -> impl Backoff + use<> {
    let growing = ExponentialBuilder::default()
        .with_min_delay(MIN_PAUSE)
        .with_max_delay(MAX_PAUSE)
        .with_jitter()
        .without_max_times();
    ResetTimerBackoff::new(ExponentialBackoff::from(growing), RESET_AFTER)
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
    watcher::Config::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGED_BY_VALUE}"))
}

/// Changes of our Services, which are applied anew whenever they differ; nothing of them is kept.
pub(crate) fn watch_services(
    client: &Client,
    namespace: Option<&str>,
) -> impl Stream<Item = Result<Service, watcher::Error>> + Send + use<> {
    watcher(scoped::<Service>(client, namespace), ours().timeout(WATCH_SECONDS))
        .backoff(pauses())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_tries_grow_differ_and_stay_short() {
        let some = || pauses().take(50).collect::<Vec<Duration>>();
        let (one, other) = (some(), some());
        assert!(one[0] < 2 * MIN_PAUSE && one[49] >= MAX_PAUSE);
        assert!(one.iter().all(|pause| (MIN_PAUSE..=2 * MAX_PAUSE).contains(pause)));
        assert_ne!(one, other, "clients that lost one server come back at different times");
    }
}
