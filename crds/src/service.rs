use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    AcceleratorSpec, EngineSpec, LLMServiceStatus, ModelSpec, ResourcesSpec, RolloutSpec, SchedulingSpec,
    schema,
};

/// What a person asks for: one model, served by a number of replicas.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "regatta.dev",
    version = "v1alpha1",
    kind = "LLMService",
    plural = "llmservices",
    shortname = "llm",
    category = "regatta",
    namespaced,
    status = "LLMServiceStatus",
    derive = "PartialEq",
    doc = "An LLMService serves one model, under one or more names, from a number of engine replicas.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Model",
        type_ = "string",
        json_path = ".status.servedNames[0]",
        description = "First of the names under which clients ask for the model"
    ),
    printcolumn(
        name = "Ready",
        type_ = "integer",
        json_path = ".status.readyReplicas",
        description = "Replicas that are ready"
    ),
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".spec.replicas",
        description = "Replicas asked for"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Why the service is ready or not"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("size(self.metadata.name) <= 40")
        .message("metadata.name must be at most 40 characters, so that the names of pods fit in 63"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message(
        "metadata.name must start with a letter and hold only a-z, 0-9 and '-', since a Service takes the same name"
    )
)]
#[cfg_attr(feature = "cel", kube(cel))]
#[serde(rename_all = "camelCase")]
pub struct LLMServiceSpec {
    /// The model: where its weights come from and under which names it is served.
    pub model: ModelSpec,

    /// Number of replicas. 0 keeps the service without pods; absent means 1. `kubectl scale` writes this field.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,

    /// Run (default) keeps the replicas up; Paused leaves everything as it is and changes nothing; Stopped drains
    /// and removes the pods but keeps the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_policy: Option<RunPolicy>,

    /// Processor and memory of each engine pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesSpec>,

    /// The accelerator that each engine pod asks for; absent: the engine runs on the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<AcceleratorSpec>,

    /// Where the engine pods may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<SchedulingSpec>,

    /// The engine program: its image, arguments and environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineSpec>,

    /// How replicas are replaced and removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutSpec>,

    /// A PodTemplateSpec laid over the generated pod, merged by name; the container of the engine is `engine`.
    /// Checked by a dry run against the API server, which reports in the condition SpecValid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::preserved_object")]
    pub pod_template: Option<serde_json::Value>,
}

impl LLMService {
    /// Names under which clients ask for the model, valid or not: those of the spec, else its own.
    pub fn served_names(&self) -> Vec<String> {
        let own = || vec![self.metadata.name.clone().unwrap_or_default()];
        self.spec.model.served_names.clone().unwrap_or_else(own)
    }
}

fn one() -> i32 {
    1
}

/// Run (default) keeps the replicas up; Paused leaves everything as it is and changes nothing; Stopped drains and
/// removes the pods but keeps the service.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunPolicy {
    /// Replicas are kept up.
    #[default]
    Run,
    /// Nothing is created, changed or removed.
    Paused,
    /// Pods are drained and removed; the service stays.
    Stopped,
}
