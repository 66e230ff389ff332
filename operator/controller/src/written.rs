//! What was written and may not be in the caches yet.
//!
//! A plan made from pods as they were before our own last write could pick a second victim for one place. So a
//! service is not planned until its cache shows all that was written for it. The service itself is read as we wrote
//! it last: a new status that equals an outdated one in the cache would not be written, though the server has another.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt, runtime::reflector::ObjectRef};
use regatta_crds::LLMService;
use regatta_planner::contract::SERVICE_LABEL;

/// After this time a created pod that is not in the cache is taken to be gone again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Namespace and name of a service, and name of a pod.
type Key = (String, String, String);

#[derive(Default)]
pub(crate) struct Written {
    pods: Mutex<HashMap<Key, Write>>,
    /// Each until the cache shows it.
    services: Mutex<HashMap<ObjectRef<LLMService>, Arc<LLMService>>>,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    version: u64,
    created: bool,
    at: Instant,
}

impl Written {
    /// Notes a pod as the API server returned it from a create.
    pub(crate) fn created(&self, pod: &Pod) {
        self.note(pod, true);
    }

    /// Notes a pod as the API server returned it from a patch.
    pub(crate) fn patched(&self, pod: &Pod) {
        self.note(pod, false);
    }

    /// Whether the cache is behind our writes to pods of a service. `cached` gives the resource version of a pod in
    /// the cache.
    pub(crate) fn is_ahead(
        &self,
        namespace: &str,
        service: &str,
        cached: impl Fn(&str) -> Option<u64>,
    ) -> bool {
        let mut pods = self.pods.lock().expect("never poisoned");
        let mut ahead = false;
        pods.retain(|(ns, owner, name), write| {
            if ns != namespace || owner != service {
                return write.at.elapsed() < PATIENCE;
            }
            let behind = match cached(name) {
                Some(version) => version < write.version,
                None => write.created,
            };
            let waits = behind && write.at.elapsed() < PATIENCE;
            ahead |= waits;
            waits
        });
        ahead
    }

    /// Notes a service as the API server returned it from a patch.
    pub(crate) fn service(&self, service: LLMService) {
        let key = ObjectRef::from_obj(&service);
        self.services.lock().expect("never poisoned").insert(key, Arc::new(service));
    }

    /// The service as we wrote it last, if `cached` is older.
    pub(crate) fn newest(&self, cached: Arc<LLMService>) -> Arc<LLMService> {
        let mut services = self.services.lock().expect("never poisoned");
        let key = ObjectRef::from_obj(&*cached);
        match services.get(&key) {
            Some(ours) if ours.uid() == cached.uid() && version(&**ours) > version(&*cached) => ours.clone(),
            _ => {
                services.remove(&key);
                cached
            }
        }
    }

    /// Forgets a service that is on its way out.
    pub(crate) fn forget(&self, service: &LLMService) {
        self.services.lock().expect("never poisoned").remove(&ObjectRef::from_obj(service));
    }

    fn note(&self, pod: &Pod, created: bool) {
        let service = pod.labels().get(SERVICE_LABEL).cloned().unwrap_or_default();
        let key = (pod.namespace().unwrap_or_default(), service, pod.name_any());
        let write = Write { version: version(pod), created, at: Instant::now() };
        self.pods.lock().expect("never poisoned").insert(key, write);
    }
}

/// Resource versions count up; a server that does otherwise is waited for as long as [`PATIENCE`].
pub(crate) fn version(object: &impl Resource) -> u64 {
    object.meta().resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(version: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some("a".into());
        pod.metadata.namespace = Some("ns".into());
        pod.metadata.labels = Some([(SERVICE_LABEL.to_owned(), "llm".to_owned())].into());
        pod.metadata.resource_version = Some(version.into());
        pod
    }

    #[test]
    fn a_service_is_read_as_we_wrote_it_until_the_cache_shows_it() {
        let service = |version: &str, uid: &str| {
            let spec = serde_json::json!({"model": {"uri": "pvc://c/m"}});
            let mut service = LLMService::new("llm", serde_json::from_value(spec).expect("a spec"));
            service.metadata.resource_version = Some(version.into());
            service.metadata.uid = Some(uid.into());
            Arc::new(service)
        };
        let written = Written::default();
        let newest = |number, uid| version(&*written.newest(service(number, uid)));
        assert_eq!(newest("99", "a"), 99);
        written.service((*service("100", "a")).clone());
        assert_eq!(newest("99", "a"), 100, "older than what we wrote");
        assert_eq!(newest("101", "a"), 101);
        assert_eq!(newest("99", "a"), 99, "seen once is enough");
        written.service((*service("100", "a")).clone());
        assert_eq!(newest("99", "b"), 99, "a namesake");
    }

    #[test]
    fn a_patch_is_awaited_until_the_cache_shows_it_or_the_pod_is_gone() {
        let written = Written::default();
        written.patched(&pod("7"));
        assert!(written.is_ahead("ns", "llm", |_| Some(6)));
        assert!(!written.is_ahead("ns", "llm-2", |_| Some(6)));
        assert!(!written.is_ahead("ns", "llm", |_| Some(7)));
        written.patched(&pod("8"));
        assert!(!written.is_ahead("ns", "llm", |_| None));
    }

    #[test]
    fn a_created_pod_is_awaited_until_the_cache_has_it() {
        let written = Written::default();
        written.created(&pod("7"));
        assert!(written.is_ahead("ns", "llm", |_| None));
        assert!(!written.is_ahead("ns", "llm", |_| Some(9)));
        assert!(!written.is_ahead("ns", "llm", |_| None), "seen once is enough");
    }
}
