//! Applies manifests as `kubectl apply --server-side` does.

use anyhow::{Context, Result};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;

/// Field manager of everything that the harness applies.
const MANAGER: &str = "regatta-e2e";

/// Applies every document of `yaml`, in order, and returns the objects as the API server has them.
/// Objects without a namespace of their own go to `namespace`.
///
/// # Errors
/// When a document is no Kubernetes object, its kind is unknown, or the API server refuses it.
pub async fn apply_yaml(client: &Client, namespace: &str, yaml: &str) -> Result<Vec<DynamicObject>> {
    let documents: Vec<Option<serde_json::Value>> =
        serde_saphyr::from_multiple(yaml).context("the manifest is not valid YAML")?;
    let mut applied = Vec::new();
    for document in documents.into_iter().flatten() {
        let object = DynamicObject::deserialize(document).context("a document is not a Kubernetes object")?;
        applied.push(apply(client, namespace, &object).await?);
    }
    Ok(applied)
}

async fn apply(client: &Client, namespace: &str, object: &DynamicObject) -> Result<DynamicObject> {
    let types = object.types.as_ref().context("a document has no apiVersion and kind")?;
    let name = object.metadata.name.as_deref().with_context(|| format!("a {} has no name", types.kind))?;
    let what = format!("{} {name}", types.kind);
    let gvk = GroupVersionKind::try_from(types).with_context(|| format!("{what}: bad apiVersion"))?;
    let (resource, capabilities) = pinned_kind(client, &gvk)
        .await
        .with_context(|| format!("{what}: its kind is unknown to the API server"))?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object.namespace().unwrap_or_else(|| namespace.to_owned());
            Api::namespaced_with(client.clone(), &namespace, &resource)
        }
    };
    api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object))
        .await
        .with_context(|| format!("{what} was refused"))
}
