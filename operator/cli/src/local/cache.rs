//! Downloads, made by the engine's own `fetch`, as in a pod.

use std::path::Path;

use anyhow::{Context, bail};
use tokio::process::Command;

use super::resolve::Run;

/// Brings the model of `run` to its place; at once when it is there.
///
/// # Errors
/// When the folder cannot be made or the download fails.
pub(crate) async fn fetch(engine: &Path, run: &Run) -> anyhow::Result<()> {
    let Some(uri) = &run.download else { return Ok(()) };
    let folder = run.model.parent().context("a download has a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    say!("{}: model from {uri} into {}", run.service.name, folder.display());
    let mut command = Command::new(engine);
    command.arg("fetch").arg(uri).arg("--to").arg(&run.model).kill_on_drop(true);
    if let Some(sum) = &run.service.sha256 {
        command.args(["--sha256", sum]);
    }
    let status = command.status().await.with_context(|| format!("cannot run {}", engine.display()))?;
    if !status.success() {
        bail!("LLMService {}: the download of its model failed; the reason stands above", run.service.name);
    }
    Ok(())
}
