use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Toleration, apimachinery::pkg::api::resource::Quantity};
use kube::{KubeSchema, core::Duration};
use serde::{Deserialize, Serialize};

use crate::schema;

/// Processor and memory of one engine pod. Requests equal limits for memory; the processor is a request only.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(validation = Rule::new("!has(self.sharedMemory) || !has(self.memory) || !isQuantity(string(self.memory)) || !isQuantity(string(self.sharedMemory)) || quantity(string(self.sharedMemory)).compareTo(quantity(string(self.memory))) <= 0")
    .message("resources.sharedMemory counts against resources.memory and must not exceed it"))]
#[serde(rename_all = "camelCase")]
pub struct ResourcesSpec {
    /// Processor time that the scheduler sets aside, in cores, as in 2 or 500m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    #[x_kube(validation = Rule::new("isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))")
        .message("resources.cpu must be a positive quantity such as 2 or 500m"))]
    pub cpu: Option<Quantity>,

    /// Memory of the engine in bytes, as in 8Gi: weights, KV cache and working space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    #[x_kube(validation = Rule::new("isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))")
        .message("resources.memory must be a positive quantity such as 8Gi"))]
    pub memory: Option<Quantity>,

    /// Size of /dev/shm in bytes, as in 1Gi; absent: what the node gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    #[x_kube(validation = Rule::new("isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))")
        .message("resources.sharedMemory must be a positive quantity such as 1Gi"))]
    pub shared_memory: Option<Quantity>,
}

/// The accelerator of one engine pod.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorSpec {
    /// Extended resource that the node offers, as in nvidia.com/gpu.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$') && !self.startsWith('kubernetes.io/')")
        .message("accelerator.resourceName must be an extended resource with a domain, as in nvidia.com/gpu"))]
    pub resource_name: String,

    /// Accelerators of each pod; absent means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 64))]
    #[x_kube(validation = Rule::new("self >= 1")
        .message("accelerator.perPod must be at least 1: remove spec.accelerator to run on the CPU"))]
    pub per_pod: Option<i32>,
}

/// Where engine pods may run.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingSpec {
    /// Labels that a node must carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::node_selector")]
    pub node_selector: Option<BTreeMap<String, String>>,

    /// Taints of nodes that the pods tolerate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Option<Vec<Toleration>>,

    /// PriorityClass of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')")
        .message("scheduling.priorityClassName must be the name of a PriorityClass, in lower case"))]
    pub priority_class_name: Option<String>,
}

/// How replicas are replaced and removed.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RolloutSpec {
    /// How long a replica that is being removed may finish its requests, as in 90s, 10m or 1h30m; absent: 5m.
    /// 0s removes it at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 24))]
    #[x_kube(
        validation = Rule::new("self.matches('^([0-9]{1,9}(h|m|s|ms))+$')")
            .message("rollout.drainTimeout must be a duration such as 90s, 10m or 1h30m"),
        validation = Rule::new("!self.matches('^([0-9]{1,9}(h|m|s|ms))+$') || duration(self) <= duration('24h')")
            .message("rollout.drainTimeout must be at most 24h")
    )]
    pub drain_timeout: Option<Duration>,
}
