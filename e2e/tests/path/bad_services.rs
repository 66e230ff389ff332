use anyhow::{Result, ensure};
use serde_json::json;

use crate::fixture::World;
use crate::streams::chat;

/// Applies a service that cannot work and returns what its condition says, while a good one beside it goes on.
async fn said_of(
    purpose: &str,
    spec: serde_json::Value,
    condition: (&str, &str),
) -> Result<(String, String)> {
    let world = World::create(purpose).await?;
    world.apply("good", json!({})).await?;
    let mut bad = spec;
    if bad["model"].get("servedNames").is_none() {
        bad["model"]["servedNames"] = json!([format!("{}-bad", world.model_name())]);
    }
    world.apply("bad", bad).await?;
    let said = world.wait_condition("bad", condition.0, condition.1).await;
    let (reason, message) = world.wait_condition("bad", "Ready", "False").await;
    ensure!(!message.is_empty(), "Ready is False for {reason} without a message");
    world.wait_ready("good").await;
    chat(&world.gateway().await?, &world.model_name(), 4, None).await?;
    world.end().await?;
    Ok(said)
}

fn contains(said: &(String, String), what: &str) -> Result<()> {
    ensure!(said.1.contains(what), "the message of {} does not name {what:?}: {}", said.0, said.1);
    Ok(())
}

#[tokio::test]
async fn a_missing_claim_is_named() -> Result<()> {
    let said =
        said_of("no-claim", json!({"model": {"uri": "pvc://nowhere/model.gguf"}}), ("Stalled", "True"))
            .await?;
    contains(&said, "nowhere")
}

#[tokio::test]
async fn a_missing_file_in_a_claim_is_named() -> Result<()> {
    let said =
        said_of("no-file", json!({"model": {"uri": "pvc://models/missing.gguf"}}), ("Stalled", "True"))
            .await?;
    contains(&said, "missing.gguf")
}

#[tokio::test]
async fn an_image_that_does_not_exist_is_named() -> Result<()> {
    let image = "docker.io/regatta/no-such-engine:v0";
    let said = said_of("no-image", json!({"engine": {"image": image}}), ("Stalled", "True")).await?;
    contains(&said, "no-such-engine")
}

#[tokio::test]
async fn a_checksum_that_differs_is_named() -> Result<()> {
    let said = said_of("checksum", json!({"model": {"sha256": "0".repeat(64)}}), ("Stalled", "True")).await?;
    contains(&said, "sha-256")
}

#[tokio::test]
async fn an_engine_without_a_gpu_refuses_an_accelerator_and_says_why() -> Result<()> {
    let spec = json!({"accelerator": {"resourceName": "example.com/gpu", "perPod": 1}});
    let said = said_of("no-gpu", spec, ("Ready", "False")).await?;
    contains(&said, "example.com/gpu")
}

#[tokio::test]
async fn a_local_file_is_refused_in_a_cluster() -> Result<()> {
    let said =
        said_of("file-uri", json!({"model": {"uri": "file:///models/a.gguf"}}), ("SpecValid", "False"))
            .await?;
    contains(&said, "file://")
}

#[tokio::test]
async fn a_pod_overlay_that_the_api_server_refuses_is_quoted() -> Result<()> {
    let spec = json!({"podTemplate": {"spec": {"restartPolicy": "Sometimes"}}});
    let said = said_of("overlay", spec, ("SpecValid", "False")).await?;
    contains(&said, "Sometimes")
}
