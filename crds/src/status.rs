use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What the operator last saw of a service.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LLMServiceStatus {
    /// Generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Replicas that exist, in whatever state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,

    /// Replicas whose pods are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ready_replicas: Option<i32>,

    /// Replicas that get new requests: ready, not draining and not terminating.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub routable_replicas: Option<i32>,

    /// Replicas that finish their requests before they are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub draining_replicas: Option<i32>,

    /// Label selector of the pods of this service, in the form that `kubectl get pods -l` takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub selector: Option<String>,

    /// State of the service, one entry for each type: Ready, Available, Reconciling, Stalled, SpecValid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Option<Vec<Condition>>,

    /// Names under which clients ask for the model: those of the spec, else the name of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::served_names")]
    pub served_names: Option<Vec<String>>,

    /// Where clients reach the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::keyed_by_name::<Address, 8>")]
    pub addresses: Option<Vec<Address>>,

    /// Name of the revision that the replicas are brought to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub revision: Option<String>,
}

/// One way to reach a service.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    /// What answers there, as in service or gateway.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Base URL, to which clients add /v1.
    #[schemars(length(min = 1, max = 512))]
    pub url: String,
}

/// The types of condition in [`LLMServiceStatus::conditions`]; kstatus reads Ready, Reconciling and Stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// Every replica asked for is up to date and routable.
    Ready,
    /// At least one replica gets requests.
    Available,
    /// The operator is at work on the current spec.
    Reconciling,
    /// The operator cannot go on without a person.
    Stalled,
    /// No field of the spec breaks a rule, and the API server takes the pod.
    SpecValid,
}

impl ConditionType {
    /// Every type, in the order in which status lists them.
    pub const ALL: [Self; 5] =
        [Self::Ready, Self::Available, Self::Reconciling, Self::Stalled, Self::SpecValid];

    /// The `type` of the condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Available => "Available",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
            Self::SpecValid => "SpecValid",
        }
    }
}
