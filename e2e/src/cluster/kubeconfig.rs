//! Kubeconfig files with everything inside, so that they work from any folder.

use std::path::Path;

use anyhow::Result;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::network::api_url;
use super::pki::{Identity, Pki, write_private};

/// Writes a kubeconfig for `identity`. It is JSON, which every reader of YAML takes.
pub(crate) fn write(path: &Path, pki: &Pki, identity: &Identity) -> Result<()> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "regatta",
        "contexts": [{"name": "regatta", "context": {"cluster": "regatta", "user": "regatta"}}],
        "clusters": [{"name": "regatta", "cluster": {
            "server": api_url(),
            "certificate-authority-data": base64(&pki.cluster.certificate),
        }}],
        "users": [{"name": "regatta", "user": {
            "client-certificate-data": base64(&identity.certificate),
            "client-key-data": base64(&identity.key),
        }}],
    });
    write_private(path, &format!("{config:#}\n"))
}

/// Kubernetes writes bytes in JSON as base64, and its types know how.
fn base64(text: &str) -> Value {
    json!(ByteString(text.as_bytes().to_vec()))
}
