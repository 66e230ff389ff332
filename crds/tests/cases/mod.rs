//! For each CEL rule a manifest that it refuses, and what the message says. `base` is accepted.

use serde_json::{Value, json};

/// One refused manifest.
pub(crate) struct Case {
    /// A part of the rule's message, unlike any other rule's.
    pub(crate) message: &'static str,
    /// The manifest; wrong in one way only.
    pub(crate) refused: Value,
    /// The same manifest, set right.
    pub(crate) accepted: Value,
}

/// A manifest that uses every field and breaks no rule.
pub(crate) fn base() -> Value {
    json!({
        "apiVersion": "regatta.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": "demo"},
        "spec": {
            "model": {"uri": "pvc://models/folder/model.gguf", "sha256": "0".repeat(64), "servedNames": ["org/name:1"]},
            "replicas": 2,
            "runPolicy": "Paused",
            "resources": {"cpu": 2, "memory": "8Gi", "sharedMemory": "1Gi"},
            "accelerator": {"resourceName": "nvidia.com/gpu", "perPod": 2},
            "scheduling": {
                "nodeSelector": {"pool": "gpu"},
                "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
                "priorityClassName": "high"
            },
            "engine": {
                "image": "registry.example/engine:1",
                "args": [{"name": "max-model-len", "values": ["-1"]}],
                "env": [
                    {"name": "REGATTA_LOG", "value": "debug"},
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
                ]
            },
            "podTemplate": {"spec": {"hostNetwork": true}},
            "rollout": {"drainTimeout": "1h30m"}
        }
    })
}

fn case(message: &'static str, pointer: &str, refused: Value, accepted: Value) -> Case {
    let with = |value: Value| {
        let mut manifest = base();
        *manifest.pointer_mut(pointer).expect("the base holds every field") = value;
        manifest
    };
    Case { message, refused: with(refused), accepted: with(accepted) }
}

/// Every rule at least once.
pub(crate) fn cases() -> Vec<Case> {
    let model = |uri: &str| json!({"uri": uri});
    let plain = "/spec/model";
    let arg = "/spec/engine/args/0";
    let env = "/spec/engine/env/0";
    let memory = "/spec/resources";
    vec![
        case("at most 40 characters", "/metadata/name", json!("a".repeat(41)), json!("a".repeat(40))),
        case("must start with a letter", "/metadata/name", json!("llama3.1"), json!("llama3-1")),
        case(
            "names a folder",
            plain,
            json!({"uri": "pvc://c/d/", "sha256": "0".repeat(64)}),
            model("pvc://c/d/"),
        ),
        case("must start with pvc://", plain, model("s3://bucket/m"), model("file:///m")),
        case("must name a claim and a path", plain, model("pvc://claim"), model("pvc://claim/m")),
        case(
            "must name one file on a host",
            plain,
            model("https://u:p@host/m"),
            model("https://host/m?sig=1"),
        ),
        case("must hold an absolute path", plain, model("file://m"), model("file:///m")),
        case("path segments", plain, model("pvc://c/a/../m"), model("pvc://c/a/m..gguf")),
        case("64 lower-case hexadecimal", "/spec/model/sha256", json!("A".repeat(64)), json!("a".repeat(64))),
        case("may hold letters", "/spec/model/servedNames", json!(["a b"]), json!(["a-b"])),
        case(
            "must be an image reference",
            "/spec/engine/image",
            json!("a image"),
            json!("a:5000/b@sha256:0"),
        ),
        case("without leading dashes", arg, json!({"name": "--seed"}), json!({"name": "seed"})),
        case("this engine argument is set by Regatta", arg, json!({"name": "port"}), json!({"name": "seed"})),
        case(
            "must not start with '-'",
            arg,
            json!({"name": "a", "values": ["--port"]}),
            json!({"name": "a", "values": ["-0.5"]}),
        ),
        case(
            "either a value or a valueFrom",
            env,
            json!({"name": "A", "value": "1", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}),
            json!({"name": "A", "value": ""}),
        ),
        case("is named with letters, digits and '_'", env, json!({"name": "A-B"}), json!({"name": "A_B"})),
        case(
            "this environment variable is set by Regatta",
            env,
            json!({"name": "REGATTA_ACCELERATOR"}),
            json!({"name": "REGATTA_ISA"}),
        ),
        case(
            "exactly one of secretKeyRef",
            env,
            json!({"name": "A", "valueFrom": {}}),
            json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": true}}}),
        ),
        case(
            "must not exceed it",
            memory,
            json!({"memory": "1Gi", "sharedMemory": "2Gi"}),
            json!({"memory": "2Gi", "sharedMemory": "2Gi"}),
        ),
        case("resources.cpu must be", memory, json!({"cpu": "many"}), json!({"cpu": "500m"})),
        case("resources.memory must be", memory, json!({"memory": 0}), json!({"memory": 1})),
        case(
            "resources.sharedMemory must be",
            memory,
            json!({"sharedMemory": "-1Gi"}),
            json!({"sharedMemory": "1Gi"}),
        ),
        case(
            "must be an extended resource",
            "/spec/accelerator/resourceName",
            json!("gpu"),
            json!("amd.com/gpu"),
        ),
        case("accelerator.perPod must be", "/spec/accelerator/perPod", json!(0), json!(1)),
        case("name of a PriorityClass", "/spec/scheduling/priorityClassName", json!("High"), json!("high")),
        case("must be a duration such as", "/spec/rollout/drainTimeout", json!("5 minutes"), json!("0s")),
        case("must be at most 24h", "/spec/rollout/drainTimeout", json!("25h"), json!("24h")),
    ]
}
