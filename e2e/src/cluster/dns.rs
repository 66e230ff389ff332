//! CoreDNS as a pod, under the address that the kubelets give to their pods.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client};

use super::network::DNS_IP;
use super::{Cluster, HOME};
use crate::apply::apply_yaml;
use crate::image;

const MANIFEST: &str = include_str!("coredns.yaml");
const NAMESPACE: &str = "kube-system";
const DEADLINE: Duration = Duration::from_secs(120);

/// Applies the manifest. Names outside the cluster go to the host's own servers, where it has any.
pub(crate) async fn install(client: &Client) -> Result<()> {
    let resolv_conf = fs::read_to_string(Path::new(HOME).join("resolv.conf")).unwrap_or_default();
    let forward = if resolv_conf.contains("nameserver") { "forward . /etc/resolv.conf" } else { "" };
    let manifest = MANIFEST
        .replace("FORWARD", forward)
        .replace("IMAGE", image::COREDNS)
        .replace("ADDRESS", &DNS_IP.to_string());
    apply_yaml(client, NAMESPACE, &manifest).await.context("cannot install CoreDNS")?;
    Ok(())
}

/// Waits until names resolve.
pub(crate) async fn wait(cluster: &mut Cluster) -> Result<()> {
    cluster
        .wait("CoreDNS to answer", DEADLINE, async |client| {
            let deployments: Api<Deployment> = Api::namespaced(client, NAMESPACE);
            let coredns = deployments.get("coredns").await.map_err(|error| error.to_string())?;
            match coredns.status.and_then(|status| status.ready_replicas) {
                Some(1..) => Ok(()),
                _ => Err("its pod is not Ready".into()),
            }
        })
        .await
}
