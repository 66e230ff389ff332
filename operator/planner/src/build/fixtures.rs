//! Named services for tests of builders.

use regatta_crds::LLMService;
use serde_json::{Value, json};

use crate::{Place, ValidatedService, validate};

pub(crate) fn from_spec(spec: Value) -> ValidatedService {
    validate(&object(spec), Place::Cluster).expect("a valid spec")
}

pub(crate) fn object(spec: Value) -> LLMService {
    let object = json!({
        "apiVersion": "regatta.dev/v1alpha1", "kind": "LLMService",
        "metadata": {"name": "smollm2", "namespace": "default", "uid": "service-uid", "generation": 3},
        "spec": spec,
    });
    serde_json::from_value(object).expect("an LLMService")
}

/// The smallest service.
pub(crate) fn service() -> ValidatedService {
    from_spec(json!({"model": {"uri": "pvc://models/smollm2.gguf"}}))
}

/// As [`service`], with an argument more.
pub(crate) fn changed_service() -> ValidatedService {
    let args = json!([{"name": "max-num-seqs", "values": ["8"]}]);
    from_spec(json!({"model": {"uri": "pvc://models/smollm2.gguf"}, "engine": {"args": args}}))
}

/// A service that uses every field that shapes a pod.
pub(crate) fn full_service() -> ValidatedService {
    from_spec(json!({
        "model": {
            "uri": "https://host/models/m.gguf?download=1", "sha256": "a".repeat(64), "servedNames": ["m", "alias"],
        },
        "resources": {"cpu": "2", "memory": "8Gi", "sharedMemory": "1Gi"},
        "accelerator": {"resourceName": "nvidia.com/gpu", "perPod": 8},
        "scheduling": {
            "nodeSelector": {"pool": "gpu"}, "priorityClassName": "high",
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
        "engine": {
            "image": "registry/engine:2",
            "args": [{"name": "max-num-seqs", "values": ["8"]}, {"name": "enable-prefix-caching"}],
            "env": [{"name": "REGATTA_LOG", "value": "debug"},
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        },
        "rollout": {"drainTimeout": "90s"},
    }))
}
