use anyhow::{Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::fixture::World;
use crate::streams::{all_answers, start_streams};

#[tokio::test]
async fn scaling_down_under_running_streams_loses_none() -> Result<()> {
    let world = World::create("scale-down").await?;
    world.apply("llm", json!({})).await?;
    let scale = json!({"spec": {"replicas": 2}});
    world.services().patch_scale("llm", &PatchParams::default(), &Patch::Merge(&scale)).await?;
    world.wait_ready("llm").await;
    ensure!(world.pods("llm").await?.len() == 2, "two replicas were asked for");

    let streams = start_streams(&world.gateway().await?, &world.model_name(), 8, 600).await;
    let scale = json!({"spec": {"replicas": 1}});
    world.services().patch_scale("llm", &PatchParams::default(), &Patch::Merge(&scale)).await?;
    // More requests arrive while a replica drains.
    let later = start_streams(&world.gateway().await?, &world.model_name(), 4, 50).await;
    for answer in all_answers(streams).await?.into_iter().chain(all_answers(later).await?) {
        ensure!(answer.finish_reason == "length", "{answer:?}");
    }
    world.wait_pods("llm", 1).await;
    world.wait_ready("llm").await;
    world.end().await
}
