use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Engine arguments that the operator renders itself, without the leading `--`; `engine.args` may not hold them.
pub const OWNED_ARGS: [&str; 9] = [
    "model",
    "served-model-name",
    "host",
    "port",
    "uds",
    "internal-port",
    "pod-info",
    "shutdown-timeout",
    "model-sha256",
];

/// Environment variables that the operator sets itself; `engine.env` may not hold them.
pub const OWNED_ENV: [&str; 1] = ["REGATTA_ACCELERATOR"];

/// The engine program.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EngineSpec {
    /// Image of the engine; absent: the image that the operator was installed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new(r"self.matches('^[a-zA-Z0-9][-a-zA-Z0-9._:/@]*$')")
        .message("engine.image must be an image reference such as registry/name:tag, without spaces"))]
    pub image: Option<String>,

    /// Arguments of the engine, merged by name: `{name: max-model-len, values: ["4096"]}` becomes
    /// `--max-model-len 4096`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::keyed_by_name::<EngineArg, 64>")]
    pub args: Option<Vec<EngineArg>>,

    /// Environment variables of the engine, merged by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::keyed_by_name::<EngineEnv, 64>")]
    pub env: Option<Vec<EngineEnv>>,
}

/// One argument of the engine.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EngineArg {
    /// Name of the argument without the leading `--`.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(
        validation = Rule::new("self.matches('^[a-z0-9]+(-[a-z0-9]+)*$')")
            .message("an engine argument is named in lower case without leading dashes, as in max-model-len"),
        validation = Rule::new("!(self in ['model', 'served-model-name', 'host', 'port', 'uds', 'internal-port', 'pod-info', 'shutdown-timeout', 'model-sha256'])")
            .message("this engine argument is set by Regatta itself: use spec.model, spec.rollout and spec.resources instead")
    )]
    pub name: String,

    /// Values that follow the argument; absent or empty for a switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::string_list::<32, 1024>")]
    #[x_kube(validation = Rule::new("self.all(v, !v.startsWith('-') || v.matches('^-[0-9]'))")
        .message("the value of an engine argument must not start with '-' unless it is a number: give each argument its own entry"))]
    pub values: Option<Vec<String>>,
}

/// One environment variable of the engine.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(validation = Rule::new("!(has(self.value) && has(self.valueFrom))")
    .message("an environment variable has either a value or a valueFrom, not both"))]
#[serde(rename_all = "camelCase")]
pub struct EngineEnv {
    /// Name of the variable.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(
        validation = Rule::new("self.matches('^[A-Za-z_][A-Za-z0-9_]*$')")
            .message("an environment variable is named with letters, digits and '_', and does not start with a digit"),
        validation = Rule::new("!(self in ['REGATTA_ACCELERATOR'])")
            .message("this environment variable is set by Regatta itself: use spec.accelerator instead")
    )]
    pub name: String,

    /// The value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub value: Option<String>,

    /// Takes the value from a Secret or ConfigMap of the namespace; the operator never reads it, the kubelet does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvSource>,
}

/// Where the value of an environment variable comes from.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(validation = Rule::new("has(self.secretKeyRef) != has(self.configMapKeyRef)")
    .message("valueFrom must name exactly one of secretKeyRef and configMapKeyRef"))]
#[serde(rename_all = "camelCase")]
pub struct EnvSource {
    /// A key of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<ConfigKeyRef>,
    /// A key of a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigKeyRef>,
}

/// A key of a Secret or ConfigMap in the namespace of the service.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ConfigKeyRef {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the object.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// Whether the pod may start when the object or key is missing; absent: it may not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}
