use k8s_openapi::api::{apps::v1::ControllerRevision, core::v1::Pod};
use kube::{
    Client,
    runtime::{events::Recorder, reflector::Store},
};
use regatta_crds::LLMService;
use std::sync::Arc;

use crate::{
    Error, RunOptions, backoff::Backoff, cache::Caches, engines::Engines, events, metrics::Metrics,
    restarts::Seen, written::Written,
};

/// What every reconcile shares.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) watch_namespace: Option<String>,
    pub(crate) engine_image: String,
    pub(crate) gateway_url: Option<String>,
    pub(crate) caches: Caches,
    pub(crate) engines: Engines,
    pub(crate) written: Written,
    pub(crate) backoff: Backoff,
    pub(crate) restarts: Seen,
    /// Name of this process in events.
    pub(crate) identity: String,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Arc<Metrics>,
}

impl Context {
    pub(crate) fn new(client: Client, options: &RunOptions, metrics: Arc<Metrics>) -> Result<Self, Error> {
        Ok(Self {
            watch_namespace: options.watch_namespace.clone(),
            engine_image: options.engine_image.clone(),
            gateway_url: options.gateway_url.clone(),
            caches: Caches::default(),
            engines: Engines::new().map_err(Error::HttpClient)?,
            written: Written::default(),
            backoff: Backoff::default(),
            restarts: Seen::default(),
            identity: options.identity.clone(),
            recorder: events::recorder(client.clone(), &options.identity),
            client,
            metrics,
        })
    }

    pub(crate) fn services(&self) -> &Store<LLMService> {
        self.caches.services.reader()
    }

    pub(crate) fn pods(&self) -> &Store<Pod> {
        self.caches.pods.reader()
    }

    pub(crate) fn revisions(&self) -> &Store<ControllerRevision> {
        self.caches.revisions.reader()
    }
}
