use anyhow::Result;
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
    other.wait_condition("third", "Stalled", "True", &world.namespace.name).await;

    chat(&world.gateway().await?, &name, 4, None).await?;
    other.end().await?;
    world.end().await
}
