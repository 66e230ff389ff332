use anyhow::Result;
use serde_json::json;

use crate::fixture::World;
use crate::streams::chat;

/// Applies a service that cannot work and waits for a condition to name the cause, while a good one beside it goes on.
async fn is_told(world: World, spec: serde_json::Value, condition: (&str, &str), words: &str) -> Result<()> {
    world.apply("good", json!({})).await?;
    let mut bad = spec;
    bad["model"]["servedNames"] = json!([format!("{}-bad", world.model_name())]);
    world.apply("bad", bad).await?;
    world.wait_condition("bad", condition.0, condition.1, words).await;
    world.wait_condition("bad", "Ready", "False", words).await;
    world.wait_ready("good").await;
    chat(&world.gateway().await?, &world.model_name(), 4, None).await?;
    world.end().await
}

const STALLED: (&str, &str) = ("Stalled", "True");
const SPEC_INVALID: (&str, &str) = ("SpecValid", "False");

#[tokio::test]
async fn a_missing_claim_is_named() -> Result<()> {
    let spec = json!({"model": {"uri": "pvc://nowhere/model.gguf"}});
    is_told(World::create("no-claim").await?, spec, STALLED, "nowhere").await
}

#[tokio::test]
async fn a_missing_file_in_a_claim_is_named() -> Result<()> {
    let spec = json!({"model": {"uri": "pvc://models/missing.gguf"}});
    is_told(World::create("no-file").await?, spec, STALLED, "missing.gguf").await
}

#[tokio::test]
async fn an_image_that_does_not_exist_is_named() -> Result<()> {
    let spec = json!({"engine": {"image": "docker.io/regatta/no-such-engine:v0"}});
    is_told(World::create("no-image").await?, spec, STALLED, "no-such-engine").await
}

#[tokio::test]
async fn a_missing_config_map_that_an_overlay_mounts_is_named() -> Result<()> {
    let volume = json!({"name": "settings", "configMap": {"name": "no-such-settings"}});
    let mount = json!({"name": "engine", "volumeMounts": [{"name": "settings", "mountPath": "/settings"}]});
    let spec = json!({"podTemplate": {"spec": {"volumes": [volume], "containers": [mount]}}});
    is_told(World::create("no-config").await?, spec, STALLED, "no-such-settings").await
}

#[tokio::test]
async fn a_checksum_that_differs_is_named() -> Result<()> {
    let spec = json!({"model": {"sha256": "0".repeat(64)}});
    is_told(World::create("checksum").await?, spec, STALLED, "sha-256").await
}

#[tokio::test]
async fn an_accelerator_that_no_node_has_is_named() -> Result<()> {
    let spec = json!({"accelerator": {"resourceName": "example.com/none", "perPod": 1}});
    is_told(World::create("no-node").await?, spec, STALLED, "Insufficient example.com/none").await
}

#[tokio::test]
async fn an_engine_without_a_gpu_refuses_an_accelerator_and_says_why() -> Result<()> {
    let world = World::create("no-gpu").await?;
    world.add_to_node("example.com/gpu").await?;
    let spec = json!({"accelerator": {"resourceName": "example.com/gpu", "perPod": 1}});
    is_told(world, spec, STALLED, "example.com/gpu").await
}

#[tokio::test]
async fn a_local_file_is_refused_in_a_cluster() -> Result<()> {
    let spec = json!({"model": {"uri": "file:///models/a.gguf"}});
    is_told(World::create("file-uri").await?, spec, SPEC_INVALID, "file://").await
}

#[tokio::test]
async fn a_pod_overlay_that_the_api_server_refuses_is_quoted() -> Result<()> {
    let spec = json!({"podTemplate": {"spec": {"restartPolicy": "Sometimes"}}});
    is_told(World::create("overlay").await?, spec, SPEC_INVALID, "Sometimes").await
}
