//! What operator and engine write down on both sides is the same: the operator's rendered pods are held against the
//! engine's own parser and routes.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};
use regatta_crds::LLMService;
use regatta_engine::args::{self, Command};
use regatta_planner::build::template;
use regatta_planner::{Place, contract, validate};
use serde_json::{Value, json};

fn rendered(spec: Value) -> Result<PodTemplateSpec> {
    let service: LLMService = serde_json::from_value(json!({
        "apiVersion": "regatta.dev/v1alpha1", "kind": "LLMService",
        "metadata": {"name": "llm", "namespace": "default", "uid": "u", "generation": 1},
        "spec": spec,
    }))?;
    let service = validate(&service, Place::Cluster).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(template(&service, "engine:dev"))
}

fn engine(template: &PodTemplateSpec) -> Result<&Container> {
    let spec = template.spec.as_ref().context("a pod has a spec")?;
    spec.containers.iter().find(|c| c.name == contract::ENGINE_CONTAINER).context("the engine's container")
}

fn parse(container: &Container) -> Result<Command> {
    let words =
        std::iter::once("regatta-engine".to_owned()).chain(container.args.clone().unwrap_or_default());
    args::parse(words).map_err(|error| anyhow::anyhow!("{error}"))
}

#[test]
fn the_engine_understands_what_the_operator_renders_for_a_claim() -> Result<()> {
    let template = rendered(json!({
        "model": {"uri": "pvc://models/a/b.gguf", "sha256": "ab".repeat(32), "servedNames": ["one", "two"]},
        "rollout": {"drainTimeout": "90s"},
        "engine": {"args": [{"name": "max-model-len", "values": ["8k"]}, {"name": "max-num-seqs", "values": ["4"]}]},
    }))?;
    let Command::Serve(settings) = parse(engine(&template)?)? else { anyhow::bail!("not `serve`") };
    let shown = format!("{settings:?}");
    for part in ["/models/a/b.gguf", "one", "two", "8000", "8001", "/etc/regatta/pod", "90", "abab"] {
        ensure!(shown.contains(part), "the engine did not take {part:?}: {shown}");
    }
    Ok(())
}

#[test]
fn the_engine_understands_the_download_that_the_operator_renders() -> Result<()> {
    let template =
        rendered(json!({"model": {"uri": "https://models.example.com/b.gguf", "sha256": "cd".repeat(32)}}))?;
    let spec = template.spec.as_ref().context("a pod has a spec")?;
    let fetch = spec
        .init_containers
        .iter()
        .flatten()
        .find(|c| c.name == contract::FETCH_CONTAINER)
        .context("a download")?;
    let Command::Fetch { uri, to, sha256 } = parse(fetch)? else { anyhow::bail!("not `fetch`") };
    ensure!(uri == "https://models.example.com/b.gguf" && sha256 == Some("cd".repeat(32)));
    let Command::Serve(settings) = parse(engine(&template)?)? else { anyhow::bail!("not `serve`") };
    ensure!(
        format!("{settings:?}").contains(to.to_str().context("utf-8")?),
        "downloaded to {to:?}, served {settings:?}"
    );
    Ok(())
}

#[test]
fn both_sides_know_the_exit_code_of_an_engine_that_refuses_to_start() {
    assert_eq!(i32::from(regatta_engine::serve::REFUSED_EXIT_CODE), contract::REFUSED_EXIT_CODE);
}

#[test]
fn both_sides_name_the_header_of_a_draining_engine_alike() {
    assert_eq!(regatta_engine::http::DRAINING_HEADER, contract::DRAINING_HEADER);
}

#[test]
fn every_flag_that_the_operator_renders_is_refused_from_users() -> Result<()> {
    let template = rendered(json!({"model": {"uri": "pvc://models/a.gguf", "sha256": "ab".repeat(32)}}))?;
    for word in engine(&template)?.args.iter().flatten() {
        if let Some(flag) = word.strip_prefix("--") {
            ensure!(
                regatta_crds::OWNED_ARGS.contains(&flag),
                "users may set --{flag}, which the operator renders"
            );
        }
    }
    Ok(())
}
