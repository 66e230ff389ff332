//! A namespace with the demo model on a volume, and services in it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use regatta_crds::LLMService;
use regatta_e2e::{TestNamespace, wait_for};
use serde_json::json;

/// From an applied manifest to Ready: scheduling, loading, and two probes.
pub(crate) const READY_WITHIN: Duration = Duration::from_secs(90);
pub(crate) const MODEL_FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// A test's namespace; its claim `models` holds the demo model.
pub(crate) struct World {
    pub(crate) namespace: TestNamespace,
    volume: String,
}

impl World {
    pub(crate) async fn create(purpose: &str) -> Result<Self> {
        let namespace = TestNamespace::create(purpose).await?;
        let volume = format!("models-{}", namespace.name);
        let folder = model()?.parent().context("the model is in a folder")?.to_owned();
        namespace
            .apply(&format!(
                r#"
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {volume}}}
spec:
  capacity: {{storage: 1Gi}}
  accessModes: [ReadOnlyMany]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  claimRef: {{namespace: {name}, name: models}}
  hostPath: {{path: {folder:?}, type: Directory}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: models}}
spec:
  accessModes: [ReadOnlyMany]
  storageClassName: ""
  volumeName: {volume}
  resources: {{requests: {{storage: 1Gi}}}}
"#,
                name = namespace.name,
            ))
            .await?;
        Ok(Self { namespace, volume })
    }

    /// A name that no other test's service has: names of models are shared by the whole cluster.
    pub(crate) fn model_name(&self) -> String {
        self.namespace.name.clone()
    }

    /// Applies a service `name` that serves [`World::model_name`], with `spec` merged over a small default.
    pub(crate) async fn apply(&self, name: &str, spec: serde_json::Value) -> Result<()> {
        let mut whole = json!({
            "model": {"uri": format!("pvc://models/{MODEL_FILE}"), "servedNames": [self.model_name()]},
            "engine": {"args": [
                {"name": "max-model-len", "values": ["2048"]},
                {"name": "num-gpu-blocks-override", "values": ["1024"]},
            ]},
        });
        merge(&mut whole, spec);
        let object = json!({"apiVersion": "regatta.dev/v1alpha1", "kind": "LLMService", "metadata": {"name": name}, "spec": whole});
        self.services()
            .patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object))
            .await
            .with_context(|| format!("the service {name} was refused"))?;
        Ok(())
    }

    pub(crate) fn services(&self) -> Api<LLMService> {
        self.namespace.api()
    }

    /// Pods of a service that are not on their way out.
    pub(crate) async fn pods(&self, service: &str) -> Result<Vec<Pod>, kube::Error> {
        let of_service = ListParams::default().labels(&format!("regatta.dev/service={service}"));
        let mut pods = self.namespace.api::<Pod>().list(&of_service).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(pods)
    }

    /// Waits for a condition of a service to have `status` and a message that contains `words`.
    pub(crate) async fn wait_condition(&self, service: &str, type_: &str, status: &str, words: &str) {
        let services = self.services();
        wait_for(&format!("{service}: {type_}={status} that says {words:?}"), READY_WITHIN, async || {
            let object = services.get(service).await.map_err(|error| json!(error.to_string()))?;
            let shown = serde_json::to_value(&object.status).unwrap_or_default();
            let current = shown["observedGeneration"].as_i64() == object.metadata.generation;
            let says =
                |is: &serde_json::Value| is["message"].as_str().is_some_and(|said| said.contains(words));
            let is_met = shown["conditions"].as_array().is_some_and(|conditions| {
                conditions.iter().any(|is| is["type"] == type_ && is["status"] == status && says(is))
            });
            if is_met && current { Ok(()) } else { Err(shown) }
        })
        .await;
    }

    pub(crate) async fn wait_ready(&self, service: &str) {
        self.wait_condition(service, "Ready", "True", "").await;
    }

    /// Waits until exactly `count` pods are left and none is terminating.
    pub(crate) async fn wait_pods(&self, service: &str, count: usize) {
        let pods = self.namespace.api::<Pod>();
        let of_service = ListParams::default().labels(&format!("regatta.dev/service={service}"));
        wait_for(&format!("{service}: {count} pods"), READY_WITHIN, async || {
            let list = pods.list(&of_service).await.map_err(|error| vec![error.to_string()])?;
            let names: Vec<String> =
                list.iter().map(|pod| format!("{} {:?}", pod.name_any(), pod.annotations())).collect();
            if names.len() == count { Ok(()) } else { Err(names) }
        })
        .await;
    }

    /// The gateway's address, `http://IP/v1`.
    pub(crate) async fn gateway(&self) -> Result<String> {
        let services: Api<Service> = Api::namespaced(self.namespace.client.clone(), "regatta-system");
        let service =
            services.get("regatta-gateway").await.context("the chart is not installed: run make test")?;
        let ip = service.spec.and_then(|spec| spec.cluster_ip).context("the gateway has no cluster IP")?;
        Ok(format!("http://{ip}/v1"))
    }

    /// Gives the first node one unit of an extended resource, as a device plugin would.
    pub(crate) async fn add_to_node(&self, resource: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.namespace.client.clone());
        let name = nodes.list(&ListParams::default()).await?.items[0].name_any();
        let patch = json!({"status": {"capacity": {resource: "1"}, "allocatable": {resource: "1"}}});
        nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// Removes what is not in the namespace.
    pub(crate) async fn end(self) -> Result<()> {
        Api::<PersistentVolume>::all(self.namespace.client.clone())
            .delete(&self.volume, &DeleteParams::default())
            .await?;
        Ok(())
    }
}

/// The demo model on this machine.
pub(crate) fn model() -> Result<PathBuf> {
    let path = std::env::var_os("REGATTA_MODEL").context("REGATTA_MODEL is not set: run make test")?;
    Ok(PathBuf::from(path))
}

fn merge(into: &mut serde_json::Value, from: serde_json::Value) {
    match (into, from) {
        (serde_json::Value::Object(into), serde_json::Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(serde_json::Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
