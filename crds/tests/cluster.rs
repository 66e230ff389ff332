//! The CRD on a real API server: each rule refuses its case, and nothing else does.

mod cases;

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use regatta_crds::LLMService;
use regatta_e2e::{TestNamespace, install_crd, wait_for};
use serde_json::Value;

const GROUP: &str = regatta_crds::GROUP;

async fn dry_run(client: &Client, namespace: &str, group: &str, manifest: &Value) -> Result<(), String> {
    let kind = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(group, "v1alpha1", "LLMService"),
        "llmservices",
    );
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let mut manifest = manifest.clone();
    manifest["apiVersion"] = format!("{group}/v1alpha1").into();
    let object: DynamicObject = serde_json::from_value(manifest).expect("an object");
    let params = PostParams { dry_run: true, ..PostParams::default() };
    api.create(&params, &object).await.map(drop).map_err(|e| e.to_string())
}

#[tokio::test]
async fn each_rule_refuses_its_case_and_accepts_the_corrected_one() {
    let ns = TestNamespace::create("rules").await.expect("a cluster");
    install_crd(&ns.client, &regatta_crds::definition()).await.expect("the definition is accepted");
    dry_run(&ns.client, &ns.name, GROUP, &cases::base()).await.expect("every field may be used");
    for case in cases::cases() {
        let error = dry_run(&ns.client, &ns.name, GROUP, &case.refused).await.expect_err(case.message);
        assert!(error.contains(case.message), "{}: {error}", case.message);
        dry_run(&ns.client, &ns.name, GROUP, &case.accepted).await.expect(case.message);
    }
}

#[tokio::test]
async fn without_its_rule_each_refused_case_is_accepted() {
    let ns = TestNamespace::create("removed-rules").await.expect("a cluster");
    let checks = cases::cases().into_iter().enumerate().map(|(i, case)| {
        let ns = &ns;
        async move {
            let group = format!("rule{i}.test.regatta.dev");
            let crd = without_rule(case.message, &group);
            install_crd(&ns.client, &crd).await.expect("the definition is accepted");
            let accepted = dry_run(&ns.client, &ns.name, &group, &case.refused).await;
            Api::<CustomResourceDefinition>::all(ns.client.clone())
                .delete(&format!("llmservices.{group}"), &Default::default())
                .await
                .expect("deleted");
            accepted.unwrap_or_else(|e| panic!("{}: something else refuses it: {e}", case.message));
        }
    });
    join_all(checks).await;
}

/// The definition under another group, without the one rule whose message contains `message`.
fn without_rule(message: &str, group: &str) -> CustomResourceDefinition {
    let mut crd = serde_json::to_value(regatta_crds::definition()).expect("JSON");
    crd["metadata"]["name"] = format!("llmservices.{group}").into();
    crd["spec"]["group"] = group.into();
    crd["spec"]["names"]["shortNames"] = Value::Array(vec![]);
    crd["spec"]["names"]["categories"] = Value::Array(vec![]);
    let removed = remove(&mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], message);
    assert_eq!(removed, 1, "rules that say '{message}'");
    serde_json::from_value(crd).expect("a definition")
}

fn remove(schema: &mut Value, message: &str) -> usize {
    let mut removed = 0;
    if let Some(Value::Array(rules)) = schema.get_mut("x-kubernetes-validations") {
        let before = rules.len();
        rules.retain(|rule| !rule["message"].as_str().is_some_and(|m| m.contains(message)));
        removed += before - rules.len();
    }
    for child in
        schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(|p| p.values_mut())
    {
        removed += remove(child, message);
    }
    removed + schema.get_mut("items").map_or(0, |items| remove(items, message))
}

#[tokio::test]
async fn replicas_default_to_one_and_scale_writes_them() {
    let ns = TestNamespace::create("scale").await.expect("a cluster");
    install_crd(&ns.client, &regatta_crds::definition()).await.expect("the definition is accepted");
    ns.apply("apiVersion: regatta.dev/v1alpha1\nkind: LLMService\nmetadata: {name: demo}\nspec: {model: {uri: 'pvc://c/m'}}\n")
        .await
        .expect("accepted");
    let services: Api<LLMService> = ns.api();
    let scale = services.get_scale("demo").await.expect("a scale");
    assert_eq!(scale.spec.and_then(|s| s.replicas), Some(1));
    let patch = serde_json::json!({"spec": {"replicas": 3}});
    services.patch_scale("demo", &Default::default(), &kube::api::Patch::Merge(patch)).await.expect("scaled");
    wait_for("three replicas in the spec", Duration::from_secs(10), async || {
        let service = services.get("demo").await.map_err(|e| e.to_string())?;
        if service.spec.replicas == 3 { Ok(()) } else { Err(format!("{:?}", service.spec)) }
    })
    .await;
}
