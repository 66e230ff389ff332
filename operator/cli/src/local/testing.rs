//! Services for tests.

use regatta_crds::{LLMService, LLMServiceSpec};
use regatta_planner::{Place, ValidatedService, validate};
use serde_json::json;

use super::resolve::Run;

pub(crate) fn service(namespace: &str, name: &str, replicas: u32, args: &[(&str, &str)]) -> ValidatedService {
    let args: Vec<_> = args.iter().map(|(name, value)| json!({"name": name, "values": [value]})).collect();
    let spec: LLMServiceSpec = serde_json::from_value(json!({
        "model": {"uri": "pvc://models/m.gguf"}, "replicas": replicas, "engine": {"args": args},
    }))
    .expect("a spec");
    let valid = validate(&LLMService::new(name, spec), Place::Local).expect("valid");
    ValidatedService { namespace: namespace.into(), ..valid }
}

pub(crate) fn run(name: &str, replicas: u32, args: &[(&str, &str)]) -> Run {
    Run {
        service: service("default", name, replicas, args),
        replicas,
        model: "/data/m.gguf".into(),
        download: None,
        env: Vec::new(),
        kv_share: None,
    }
}
