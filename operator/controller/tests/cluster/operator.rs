//! An operator on a namespace of its own, and the hand that plays the kubelet.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use regatta_controller::{Error, RunOptions, Timings};
use regatta_crds::{LLMService, definition};
use regatta_e2e::{TestNamespace, install_crd, wait_for};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A namespace and the operator that watches it.
pub(crate) struct World {
    pub(crate) ns: TestNamespace,
    pub(crate) engines: BTreeMap<String, Engine>,
    pub(crate) operator: Operator,
}

/// An operator process, as a task.
pub(crate) struct Operator {
    pub(crate) shutdown: CancellationToken,
    pub(crate) task: JoinHandle<Result<(), Error>>,
}

impl Operator {
    pub(crate) fn start(ns: &TestNamespace, identity: &str) -> Self {
        Self::start_with(ns.client.clone(), &ns.name, identity, "engine:1")
    }

    pub(crate) fn start_with(client: kube::Client, namespace: &str, identity: &str, image: &str) -> Self {
        Self::run(client, namespace, Some(namespace), identity, image)
    }

    /// Watches all namespaces; its Lease is in `ns`.
    pub(crate) fn start_everywhere(ns: &TestNamespace, identity: &str) -> Self {
        Self::run(ns.client.clone(), &ns.name, None, identity, "engine:1")
    }

    fn run(client: kube::Client, lease: &str, watch: Option<&str>, identity: &str, image: &str) -> Self {
        let shutdown = CancellationToken::new();
        let options = RunOptions {
            watch_namespace: watch.map(ToOwned::to_owned),
            lease_namespace: lease.to_owned(),
            identity: identity.to_owned(),
            lease_timings: Timings {
                duration: Duration::from_secs(6),
                renew_deadline: Duration::from_secs(4),
                retry_period: Duration::from_millis(500),
            },
            admin_addr: ([127, 0, 0, 1], 0).into(),
            engine_image: image.to_owned(),
            gateway_url: Some("http://gateway.test".into()),
            shutdown: shutdown.clone(),
        };
        Self { shutdown, task: tokio::spawn(regatta_controller::run(client, options)) }
    }

    pub(crate) async fn stop(self) -> Result<(), Error> {
        self.shutdown.cancel();
        self.task.await.expect("does not panic")
    }
}

impl World {
    pub(crate) async fn new(purpose: &str) -> Self {
        let ns = TestNamespace::create(purpose).await.expect("a cluster is around");
        install_crd(&ns.client, &definition()).await.expect("the definition is taken");
        let operator = Operator::start(&ns, "first");
        Self { ns, engines: BTreeMap::new(), operator }
    }

    pub(crate) fn services(&self) -> Api<LLMService> {
        self.ns.api()
    }

    pub(crate) async fn apply(&self, name: &str, spec: Value) {
        let object = json!({"apiVersion": "regatta.dev/v1alpha1", "kind": "LLMService",
            "metadata": {"name": name}, "spec": spec});
        let params = PatchParams::apply("test").force();
        self.services().patch(name, &params, &Patch::Apply(object)).await.expect("the service is taken");
    }

    pub(crate) async fn pods(&self) -> Vec<Pod> {
        let api: Api<Pod> = self.ns.api();
        api.list(&ListParams::default()).await.expect("pods are listed").items
    }

    pub(crate) async fn wait_for_pods(&self, what: &str, holds: impl Fn(&[Pod]) -> bool) -> Vec<Pod> {
        wait_for(what, PATIENCE, async || {
            let pods = self.pods().await;
            let seen = || pods.iter().map(|p| (p.name_any(), p.annotations().clone())).collect::<Vec<_>>();
            let ended = if self.operator.task.is_finished() { "; the operator has ended" } else { "" };
            if holds(&pods) { Ok(pods.clone()) } else { Err(format!("{:?}{ended}", seen())) }
        })
        .await
    }

    /// Waits until the condition reads `Status/Reason`; gives its message.
    pub(crate) async fn wait_for_condition(&self, name: &str, type_: &str, expected: &str) -> String {
        wait_for(&format!("{name} {type_}={expected}"), PATIENCE, async || {
            let service = self.services().get(name).await.map_err(|e| e.to_string())?;
            let status = service.status.clone().unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            let current = status.observed_generation == service.metadata.generation;
            let found = conditions.iter().find(|c| c.type_ == type_);
            match found {
                Some(c) if current && format!("{}/{}", c.status, c.reason) == expected => {
                    Ok(c.message.clone())
                }
                _ => Err(format!("{conditions:#?}")),
            }
        })
        .await
    }

    /// Plays scheduler and kubelet: the engine of `pod` runs and its containers are ready.
    pub(crate) async fn bring_up(&mut self, pod: &str) {
        let engine = Engine::start().await;
        self.patch_status(pod, running(&engine, false)).await;
        self.engines.insert(pod.to_owned(), engine);
        let gate = |p: &Pod| {
            let conditions = p.status.iter().flat_map(|s| s.conditions.iter().flatten());
            conditions.clone().any(|c| c.type_ == "regatta.dev/routable" && c.status == "True")
        };
        self.wait_for_pods("the gate to open", |pods| pods.iter().any(|p| p.name_any() == pod && gate(p)))
            .await;
        let ready = running(&self.engines[pod], true);
        self.patch_status(pod, ready).await;
    }

    pub(crate) async fn patch_status(&self, pod: &str, status: Value) {
        let api: Api<Pod> = self.ns.api();
        let patch = Patch::Strategic(json!({"status": status}));
        api.patch_status(pod, &PatchParams::default(), &patch).await.expect("the status is taken");
    }

    /// Plays the kubelet of a node that has waited in vain for a volume of `pod`.
    pub(crate) async fn fail_mount(&self, pod: &Pod, note: &str) {
        let events: Api<Event> = self.ns.api();
        let name = pod.name_any();
        let event = json!({
            "metadata": {"name": format!("{name}.mount")}, "type": "Warning", "reason": "FailedMount", "message": note,
            "involvedObject": {"kind": "Pod", "namespace": self.ns.name, "name": name, "uid": pod.uid()},
            "source": {"component": "kubelet"}, "count": 3, "lastTimestamp": "2026-01-01T00:00:00Z",
        });
        let event = serde_json::from_value(event).expect("an event");
        events.create(&PostParams::default(), &event).await.expect("the event is taken");
        let since = "2026-01-01T00:00:00Z";
        let waits = json!({"conditions": [{"type": "PodScheduled", "status": "True"},
            {"type": "PodReadyToStartContainers", "status": "False", "lastTransitionTime": since}]});
        self.patch_status(&name, waits).await;
    }

    pub(crate) fn engine_of(&self, pod: &str) -> &Engine {
        &self.engines[pod]
    }
}

fn running(engine: &Engine, ready: bool) -> Value {
    let status = |holds: bool| if holds { "True" } else { "False" };
    json!({
        "phase": "Running", "podIP": engine.ip, "podIPs": [{"ip": engine.ip}],
        "conditions": [{"type": "PodReadyToStartContainers", "status": "True"},
            {"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": status(ready)}],
        "containerStatuses": [{"name": "engine", "image": "engine:1", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {}}}],
    })
}

pub(crate) fn is_draining(pod: &Pod) -> bool {
    pod.annotations().contains_key("regatta.dev/draining")
}

pub(crate) fn small() -> Value {
    json!({"model": {"uri": "http://models.example.org/m.gguf"}, "rollout": {"drainTimeout": "30s"}})
}

pub(crate) fn with(replicas: u32) -> Value {
    let mut spec = small();
    spec["replicas"] = replicas.into();
    spec
}
