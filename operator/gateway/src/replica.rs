use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use regatta_planner::contract::{
    DRAINING_ANNOTATION, ENGINE_CONTAINER, HTTP_PORT, HTTP_PORT_NAME, SERVICE_LABEL,
};

/// What the gateway knows of one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Unique over time: a pod that comes back under the same name is another replica.
    pub id: String,
    /// Namespace of the service.
    pub namespace: String,
    /// Name of the service.
    pub service: String,
    /// Name of the pod, for logs.
    pub name: String,
    /// Where its API listens, once that is known.
    pub address: Option<SocketAddr>,
    /// It says that it can serve.
    pub ready: bool,
    /// It was asked to finish its requests and take no more.
    pub draining: bool,
    /// It is being deleted.
    pub terminating: bool,
}

impl Replica {
    /// Reads a pod; `None` when it belongs to no service.
    pub fn from_pod(pod: &Pod) -> Option<Self> {
        let meta = &pod.metadata;
        let service = meta.labels.as_ref()?.get(SERVICE_LABEL)?.clone();
        let status = pod.status.as_ref();
        Some(Self {
            id: meta.uid.clone()?,
            namespace: meta.namespace.clone()?,
            service,
            name: meta.name.clone()?,
            address: status
                .and_then(|s| s.pod_ip.as_deref())
                .and_then(|ip| ip.parse::<IpAddr>().ok())
                .map(|ip| SocketAddr::new(ip, port(pod))),
            ready: status.is_some_and(is_ready),
            draining: meta.annotations.as_ref().is_some_and(|a| a.contains_key(DRAINING_ANNOTATION)),
            terminating: meta.deletion_timestamp.is_some(),
        })
    }

    /// Whether new requests may go to it.
    pub fn is_routable(&self) -> bool {
        self.ready && !self.draining && !self.terminating && self.address.is_some()
    }
}

/// The pod's condition Ready covers its readiness gates.
fn is_ready(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

fn port(pod: &Pod) -> u16 {
    let containers = pod.spec.iter().flat_map(|s| &s.containers).filter(|c| c.name == ENGINE_CONTAINER);
    let mut ports = containers.flat_map(|c| c.ports.iter().flatten());
    let named =
        ports.find(|p| p.name.as_deref() == Some(HTTP_PORT_NAME)).map_or(HTTP_PORT, |p| p.container_port);
    u16::try_from(named).unwrap_or(HTTP_PORT as u16)
}
