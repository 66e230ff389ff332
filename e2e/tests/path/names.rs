use anyhow::{Result, ensure};
use serde_json::json;

use crate::fixture::World;
use crate::streams::chat;

#[tokio::test]
async fn services_of_one_namespace_share_a_name_and_across_namespaces_the_oldest_keeps_it() -> Result<()> {
    let world = World::create("names").await?;
    world.apply("first", json!({})).await?;
    world.wait_ready("first").await;
    world.apply("second", json!({})).await?;
    world.wait_ready("second").await;

    let other = World::create("names-later").await?;
    let name = world.model_name();
    other.apply("third", json!({"model": {"servedNames": [name]}})).await?;
    let (_, message) = other.wait_condition("third", "Available", "False").await;
    ensure!(message.contains(&world.namespace.name), "the message does not name the holder: {message}");

    chat(&world.gateway().await?, &name, 4, None).await?;
    other.end().await?;
    world.end().await
}
