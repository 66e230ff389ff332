//! What a cluster consists of.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How much of Kubernetes runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// etcd and the API server: objects can be made and watched, nothing acts on them (4 s)
    Api,
    /// and the controller-manager: garbage collection, service accounts, disruption budgets
    Controllers,
    /// and whole nodes: scheduler, containerd, kubelet, kube-proxy, DNS; pods run (15 s)
    Node,
}

/// The network that the cluster lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Network {
    /// A network namespace that ends with the cluster.
    Own,
    /// The host's, so that a person's shell reaches pods and Services.
    Host,
}

/// What to start; written to a file so that the process inside the namespaces reads it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// Names the cluster's cgroups.
    pub id: String,
    /// How much of Kubernetes.
    pub size: Size,
    /// Number of nodes, 1 to 9; only [`Size::Node`] has any.
    pub nodes: u8,
    /// Where it is reached.
    pub network: Network,
    /// The folder of built programs.
    pub bin: PathBuf,
    /// OCI image archives to load into every node before it counts as ready.
    pub images: Vec<PathBuf>,
}
