use serde_json::json;

use super::template;
use crate::build::fixtures::{self, from_spec};

#[test]
fn the_smallest_service_mounts_its_claim_read_only() {
    insta::assert_yaml_snapshot!(template(&fixtures::service(), "engine:1"));
}

#[test]
fn every_field_finds_its_place() {
    insta::assert_yaml_snapshot!(template(&fixtures::full_service(), "engine:1"));
}

#[test]
fn a_claim_with_a_checksum_is_checked_by_the_engine() {
    let sum = "b".repeat(64);
    let service = from_spec(json!({"model": {"uri": "pvc://models/m.gguf", "sha256": sum}}));
    let spec = template(&service, "engine:1").spec.expect("a spec");
    let args = spec.containers[0].args.clone().expect("args");
    assert!(args.windows(2).any(|w| w == ["--model-sha256".to_owned(), sum.clone()]));
    assert_eq!(spec.init_containers, None);
}

#[test]
fn an_overlay_is_merged_by_name_and_cannot_take_the_contract_away() {
    let service = from_spec(json!({
        "model": {"uri": "pvc://models/m.gguf"},
        "podTemplate": {
            "metadata": {"name": "stolen", "labels": {"team": "a", "regatta.dev/service": "other"}},
            "spec": {
                "readinessGates": [{"conditionType": "example.org/gate"}],
                "containers": [
                    {"name": "engine", "env": [{"name": "A", "value": "1"}], "resources": {"limits": {"cpu": "4"}}},
                    {"name": "sidecar", "image": "sidecar:1"},
                ],
                "volumes": [{"name": "scratch", "emptyDir": {}}],
            },
        },
    }));
    let template = template(&service, "engine:1");
    let meta = template.metadata.expect("metadata");
    let labels = meta.labels.expect("labels");
    assert_eq!(
        (labels["team"].as_str(), labels["regatta.dev/service"].as_str(), meta.name),
        ("a", "smollm2", None)
    );
    let spec = template.spec.expect("a spec");
    let names: Vec<_> = spec.containers.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["engine", "sidecar"]);
    assert!(
        spec.containers[0].args.is_some() && spec.containers[0].env.as_ref().is_some_and(|e| e.len() == 1)
    );
    let gates: Vec<_> = spec.readiness_gates.iter().flatten().map(|g| g.condition_type.as_str()).collect();
    assert_eq!(gates, ["example.org/gate", "regatta.dev/routable"]);
    assert_eq!(spec.volumes.map(|v| v.len()), Some(3));
}

#[test]
fn liveness_asks_only_whether_the_process_lives() {
    let spec = template(&fixtures::full_service(), "engine:1").spec.expect("a spec");
    let engine = &spec.containers[0];
    let path = |p: &Option<k8s_openapi::api::core::v1::Probe>| {
        p.as_ref().and_then(|p| Some((p.http_get.as_ref()?.path.clone()?, p.timeout_seconds?)))
    };
    assert_eq!(path(&engine.liveness_probe), Some(("/livez".to_owned(), 5)));
    assert_eq!(path(&engine.readiness_probe), Some(("/readyz".to_owned(), 5)));
    assert_eq!(path(&engine.startup_probe), Some(("/readyz".to_owned(), 5)));
}
