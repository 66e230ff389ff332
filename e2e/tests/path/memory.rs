//! What an engine takes of its node.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::fixture::World;

/// 30 layers, each with keys and values of 3 heads, 64 elements a head, 2 bytes an element.
const MODEL_KV_BYTES_PER_TOKEN: u64 = 30 * 2 * 3 * 64 * 2;
const POD_BYTES: u64 = 512 << 20;

#[tokio::test]
async fn an_engine_sizes_its_cache_by_the_memory_of_its_pod() -> Result<()> {
    let world = World::create("memory").await?;
    let args = json!([{"name": "max-model-len", "values": ["2048"]}]);
    let spec = json!({"resources": {"cpu": "500m", "memory": "512Mi"}, "engine": {"args": args}});
    world.apply("llm", spec).await?;
    world.wait_ready("llm").await;

    let pods = world.pods("llm").await?;
    let address = pods.iter().find_map(|pod| pod.status.as_ref()?.pod_ip.clone());
    let address = address.context("a ready pod has an address")?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    let state: Value =
        client.get(format!("http://{address}:8001/internal/state")).send().await?.json().await?;
    let figure = |name: &str| state["kv"][name].as_u64().with_context(|| format!("no {name} in {state}"));
    let bytes = figure("num_blocks")? * figure("block_size")? * MODEL_KV_BYTES_PER_TOKEN;
    ensure!(bytes < POD_BYTES, "a cache of {bytes} bytes in a pod of {POD_BYTES}");
    world.end().await
}
