use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use regatta_e2e::wait_for;
use serde_json::json;

use crate::fixture::{READY_WITHIN, World};
use crate::streams::chat;

#[tokio::test]
async fn a_manifest_becomes_a_streamed_answer_and_its_deletion_removes_the_pods() -> Result<()> {
    let world = World::create("answer").await?;
    world.apply("llm", json!({})).await?;
    world.wait_ready("llm").await;

    let answer = chat(&world.gateway().await?, &world.model_name(), 24, None).await?;
    ensure!(answer.finish_reason == "length", "{answer:?}");
    ensure!(answer.num_events >= 24, "the answer did not come token by token: {answer:?}");

    world.services().delete("llm", &DeleteParams::default()).await?;
    world.wait_pods("llm", 0).await;
    wait_for("the service to be gone", READY_WITHIN, async || match world.services().get_opt("llm").await {
        Ok(None) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    world.end().await
}

#[tokio::test]
async fn the_official_openai_client_is_content_with_the_gateway() -> Result<()> {
    let world = World::create("openai").await?;
    world.apply("llm", json!({})).await?;
    world.wait_ready("llm").await;

    let python = std::env::var("REGATTA_PYTHON").context("REGATTA_PYTHON is not set: run make test")?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/openai_client.py");
    let run = tokio::process::Command::new(python)
        .args([script, &world.gateway().await?, &world.model_name()])
        .env_remove("http_proxy")
        .output()
        .await?;
    let said = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    ensure!(run.status.success(), "{said}");
    world.end().await
}

#[tokio::test]
async fn a_pod_has_what_the_manifest_asks_for() -> Result<()> {
    let world = World::create("podspec").await?;
    world
        .apply(
            "llm",
            json!({
                "resources": {"cpu": "100m", "memory": "1Gi", "sharedMemory": "64Mi"},
                "podTemplate": {"metadata": {"labels": {"team": "sails"}}, "spec": {"terminationGracePeriodSeconds": 77}},
            }),
        )
        .await?;
    world.wait_ready("llm").await;
    let pods = world.namespace.api::<Pod>().list(&ListParams::default().labels("team=sails")).await?;
    ensure!(pods.items.len() == 1, "the overlay's label is not on the pod");
    let spec = pods.items[0].spec.clone().context("a pod has a spec")?;
    ensure!(
        spec.termination_grace_period_seconds == Some(77),
        "the overlay's grace period is not on the pod"
    );
    let engine = spec.containers.iter().find(|c| c.name == "engine").context("the engine's container")?;
    let mounts = engine.volume_mounts.clone().unwrap_or_default();
    ensure!(mounts.iter().any(|mount| mount.mount_path == "/dev/shm"), "no shared memory: {mounts:?}");
    ensure!(
        mounts.iter().any(|m| m.mount_path == "/models" && m.read_only == Some(true)),
        "not read-only: {mounts:?}"
    );
    world.end().await
}
