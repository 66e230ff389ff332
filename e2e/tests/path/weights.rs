//! Weights over HTTP: from a server on this machine, which the pods reach by the node's address.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use crate::fixture::{MODEL_FILE, World, model};
use crate::streams::chat;

const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

async fn serve_model(world: &World) -> Result<String> {
    let nodes = Api::<Node>::all(world.namespace.client.clone()).list(&ListParams::default()).await?;
    let addresses = nodes.items[0].status.clone().and_then(|status| status.addresses).unwrap_or_default();
    let ip = &addresses.iter().find(|a| a.type_ == "InternalIP").context("the node has no address")?.address;
    let listener = tokio::net::TcpListener::bind(SocketAddr::new(ip.parse()?, 0)).await?;
    let base = format!("http://{}", listener.local_addr()?);
    let bytes = bytes::Bytes::from(std::fs::read(model()?)?);
    let route = axum::routing::get(move || std::future::ready(bytes.clone()));
    let app = axum::Router::new().route(&format!("/{MODEL_FILE}"), route);
    // Ends with the test's runtime.
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(format!("{base}/{MODEL_FILE}"))
}

#[tokio::test]
async fn weights_come_over_http_and_are_checked() -> Result<()> {
    let world = World::create("http-weights").await?;
    let uri = serve_model(&world).await?;
    world.apply("llm", json!({"model": {"uri": uri, "sha256": SHA256}})).await?;
    world.wait_ready("llm").await;
    chat(&world.gateway().await?, &world.model_name(), 4, None).await?;
    world.end().await
}

#[tokio::test]
async fn weights_over_http_with_another_checksum_are_refused() -> Result<()> {
    let world = World::create("http-wrong").await?;
    let uri = serve_model(&world).await?;
    world.apply("llm", json!({"model": {"uri": uri, "sha256": "0".repeat(64)}})).await?;
    world.wait_condition("llm", "Stalled", "True", "sha-256").await;
    world.end().await
}
