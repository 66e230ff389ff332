use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use serde_json::json;

use crate::fixture::World;
use crate::streams::{all_answers, chat, start_streams};

#[tokio::test]
async fn a_changed_spec_replaces_the_replica_without_losing_a_request() -> Result<()> {
    let world = World::create("rollout").await?;
    world.apply("llm", json!({})).await?;
    world.wait_ready("llm").await;
    let old = world.pods("llm").await?[0].name_any();
    let gateway = world.gateway().await?;

    let running = start_streams(&gateway, &world.model_name(), 4, 400).await;
    world.apply("llm", json!({"engine": {"args": [{"name": "max-model-len", "values": ["1024"]}]}})).await?;
    let mut num_answers = 0;
    // Short requests one after another, for as long as the rollout takes.
    while world.pods("llm").await?.iter().any(|pod| pod.name_any() == old) {
        chat(&gateway, &world.model_name(), 4, None)
            .await
            .with_context(|| format!("request {num_answers} was lost"))?;
        num_answers += 1;
    }
    ensure!(num_answers > 0, "no request was made during the rollout");
    all_answers(running).await?;
    world.wait_ready("llm").await;
    let pods = world.pods("llm").await?;
    ensure!(pods.len() == 1 && pods[0].name_any() != old, "the old replica is still there");
    world.end().await
}
