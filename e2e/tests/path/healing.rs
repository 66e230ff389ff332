use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{core::v1::Pod, events::v1::Event};
use kube::api::ListParams;
use regatta_e2e::wait_for;
use serde_json::json;

use crate::fixture::{READY_WITHIN, World};
use crate::streams::chat;

#[tokio::test]
async fn a_killed_engine_comes_back() -> Result<()> {
    let world = World::create("killed").await?;
    world.apply("llm", json!({})).await?;
    world.wait_ready("llm").await;

    let pid = engine_process(&world.model_name())?;
    // From outside the container: its first process ignores signals that it sends itself.
    let killed = tokio::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().await?;
    ensure!(killed.success(), "the engine's process {pid} could not be killed");

    wait_for("the engine's container to be restarted and ready", READY_WITHIN, async || {
        let pods = world.pods("llm").await.map_err(|error| error.to_string())?;
        let back = |pod: &Pod| {
            let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            statuses.into_iter().any(|container| container.restart_count > 0 && container.ready)
        };
        if pods.iter().any(back) {
            Ok(())
        } else {
            Err(format!("{:?}", pods.iter().map(|p| &p.status).collect::<Vec<_>>()))
        }
    })
    .await;
    world.wait_ready("llm").await;
    wait_for("an event that tells of the restart", Duration::from_secs(30), async || {
        let events = world.namespace.api::<Event>().list(&ListParams::default()).await;
        let notes = events.map_err(|error| error.to_string())?.items.into_iter().filter_map(|event| {
            (event.reason.as_deref() == Some("EngineRestarted")).then(|| event.note.unwrap_or_default())
        });
        let notes: Vec<String> = notes.collect();
        if notes.iter().any(|note| note.contains("exit code 137")) {
            Ok(())
        } else {
            Err(format!("{notes:?}"))
        }
    })
    .await;
    let gateway = world.gateway().await?;
    wait_for("an answer after the restart", Duration::from_secs(30), async || {
        chat(&gateway, &world.model_name(), 4, None).await.map_err(|error| format!("{error:#}"))
    })
    .await;
    world.end().await
}

#[tokio::test]
async fn a_deleted_pod_is_replaced() -> Result<()> {
    let world = World::create("deleted").await?;
    world.apply("llm", json!({})).await?;
    world.wait_ready("llm").await;
    let old = world.pods("llm").await?[0].clone();
    let name = old.metadata.name.clone().context("a pod has a name")?;
    world.namespace.api::<Pod>().delete(&name, &kube::api::DeleteParams::default()).await?;
    wait_for("another pod to be there", READY_WITHIN, async || {
        let pods = world.pods("llm").await.map_err(|error| error.to_string())?;
        let uids: Vec<_> = pods.iter().map(|pod| pod.metadata.uid.clone()).collect();
        if pods.len() == 1 && pods[0].metadata.uid != old.metadata.uid {
            Ok(())
        } else {
            Err(format!("{uids:?}"))
        }
    })
    .await;
    world.wait_ready("llm").await;
    world.end().await
}

/// The process that serves `model` on this machine.
fn engine_process(model: &str) -> Result<u32> {
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        let Some(pid) = path.file_name().and_then(|name| name.to_str()?.parse().ok()) else { continue };
        let command = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let mut words = command.split(|&byte| byte == 0);
        let program = words.next().unwrap_or_default();
        if program.ends_with(b"regatta-engine") && words.any(|word| word == model.as_bytes()) {
            return Ok(pid);
        }
    }
    anyhow::bail!("no process serves {model}")
}
