use serde_json::{Value, json};

use super::*;
use crate::build::fixtures::object;

fn with(field: &str, value: Value) -> Value {
    let mut spec = json!({"model": {"uri": "pvc://models/m.gguf"}});
    match field.split_once('.') {
        Some((outer, inner)) => spec[outer][inner] = value,
        None => spec[field] = value,
    }
    spec
}

fn refused(field: &str, value: Value) -> SpecError {
    validate(&object(with(field, value)), Place::Cluster).expect_err("refused")
}

fn source_of(uri: &str, place: Place) -> Result<ModelSource, SpecError> {
    validate(&object(with("model.uri", uri.into())), place).map(|v| v.source)
}

#[test]
fn a_small_spec_gets_its_defaults() {
    let valid =
        validate(&object(json!({"model": {"uri": "pvc://models/a/m.gguf"}})), Place::Cluster).expect("valid");
    assert_eq!(valid.source, ModelSource::Claim { claim: "models".into(), path: "a/m.gguf".into() });
    assert_eq!(
        (valid.served_names, valid.replicas, valid.drain_timeout.as_secs()),
        (vec!["smollm2".into()], 1, 300)
    );
}

#[test]
fn a_file_is_refused_in_a_cluster_and_taken_on_one_machine() {
    assert_eq!(
        source_of("file:///m.gguf", Place::Cluster),
        Err(SpecError::FileInCluster("file:///m.gguf".into()))
    );
    assert_eq!(source_of("file:///m.gguf", Place::Local), Ok(ModelSource::File { path: "/m.gguf".into() }));
}

#[test]
fn an_address_names_its_file() {
    let http = |file: &str| Ok(ModelSource::Http { uri: "https://h/a/m.gguf?x=1".into(), file: file.into() });
    assert_eq!(source_of("https://h/a/m.gguf?x=1", Place::Cluster), http("m.gguf"));
}

#[test]
fn a_uri_that_lacks_a_part_is_refused() {
    let uris = [
        "pvc://claim",
        "pvc:///m",
        "pvc://claim//",
        "https://host",
        "https://host/",
        "http://u@host/m",
        "http://h/m#f",
        "https://h/a/../m",
        "file://m",
        "pvc://c/a b",
    ];
    for uri in uris {
        assert!(matches!(source_of(uri, Place::Local), Err(SpecError::Uri { .. })), "{uri}");
    }
}

#[test]
fn an_unknown_scheme_is_refused() {
    for uri in ["s3://bucket/m", "m.gguf", ""] {
        assert_eq!(source_of(uri, Place::Cluster), Err(SpecError::Scheme(uri.into())));
    }
}

#[test]
fn names_of_services_are_labels_of_at_most_40_characters() {
    for name in ["", "Upper", "3b", "a-", &"a".repeat(41)] {
        let mut service = object(json!({"model": {"uri": "pvc://c/m"}}));
        service.metadata.name = Some(name.into());
        assert_eq!(validate(&service, Place::Cluster), Err(SpecError::Name(name.into())));
    }
}

#[test]
fn checksums_are_hexadecimal_and_of_files() {
    assert_eq!(refused("model.sha256", "A".repeat(64).into()), SpecError::Sha256);
    assert_eq!(refused("model.sha256", "ab".into()), SpecError::Sha256);
    let folder = json!({"model": {"uri": "pvc://c/folder/", "sha256": "a".repeat(64)}});
    assert_eq!(validate(&object(folder), Place::Cluster), Err(SpecError::Sha256OfFolder));
}

#[test]
fn served_names_are_there_and_differ() {
    assert_eq!(refused("model.servedNames", json!([])), SpecError::EmptyServedName);
    assert_eq!(refused("model.servedNames", json!([""])), SpecError::EmptyServedName);
    assert_eq!(refused("model.servedNames", json!(["a", "a"])), SpecError::DuplicateServedName("a".into()));
}

#[test]
fn counts_and_sizes_are_positive() {
    assert_eq!(refused("replicas", json!(-1)), SpecError::NegativeReplicas(-1));
    let accelerator = json!({"resourceName": "nvidia.com/gpu", "perPod": 0});
    assert_eq!(refused("accelerator", accelerator), SpecError::AcceleratorCount(0));
    for (field, name) in
        [("cpu", "resources.cpu"), ("memory", "resources.memory"), ("sharedMemory", "resources.sharedMemory")]
    {
        let error = refused("resources", json!({field: "-1"}));
        assert_eq!(error, SpecError::Quantity { field: name, value: "-1".into() });
    }
    assert_eq!(
        refused("resources", json!({"memory": "1Gi", "sharedMemory": "2Gi"})),
        SpecError::SharedMemory
    );
}

#[test]
fn what_the_operator_renders_is_not_the_users() {
    assert_eq!(refused("engine", json!({"args": [{"name": "port"}]})), SpecError::OwnedArg("port".into()));
    let env = json!({"env": [{"name": "REGATTA_ACCELERATOR", "value": "x"}]});
    assert_eq!(refused("engine", env), SpecError::OwnedEnv("REGATTA_ACCELERATOR".into()));
}

#[test]
fn a_variable_has_one_value() {
    let from = json!({"secretKeyRef": {"name": "s", "key": "k"}});
    let env = json!({"env": [{"name": "A", "value": "x", "valueFrom": from}]});
    assert_eq!(refused("engine", env), SpecError::EnvValueTwice("A".into()));
}

#[test]
fn a_drain_lasts_a_day_at_most() {
    assert_eq!(refused("rollout", json!({"drainTimeout": "25h"})), SpecError::DrainTimeout);
    assert_eq!(refused("rollout", json!({"drainTimeout": "-1s"})), SpecError::DrainTimeout);
}

#[test]
fn an_overlay_must_be_a_pod_template() {
    let error = refused("podTemplate", json!({"spec": {"containers": "none"}}));
    assert!(matches!(error, SpecError::PodTemplate(_)), "{error}");
}

#[test]
fn counts_and_policies_do_not_change_the_hash_of_a_spec() {
    let hash = |spec: Value| validate(&object(spec), Place::Cluster).expect("valid").spec_hash;
    let base = hash(with("replicas", json!(1)));
    assert_eq!(hash(with("replicas", json!(5))), base);
    assert_eq!(hash(with("runPolicy", json!("Paused"))), base);
    assert_ne!(hash(with("engine", json!({"image": "other:1"}))), base);
}

#[test]
fn a_spec_that_cannot_run_claims_no_name() {
    let mut service = object(json!({"model": {"uri": "file:///m"}}));
    service.metadata.creation_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(claim(&service), None);
    service.spec.model.uri = "pvc://c/m".into();
    assert_eq!(claim(&service).map(|c| c.served_names), Some(vec!["smollm2".into()]));
}
