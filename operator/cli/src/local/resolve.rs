//! What a service needs on this machine: a path for its model, and plain environment variables.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use regatta_planner::{ValidatedService, contract::ACCELERATOR_ENV, validate::ModelSource};
use sha2::{Digest, Sha256};

/// A service whose engines can be started once `download` is there.
#[derive(Debug)]
pub(crate) struct Run {
    pub service: ValidatedService,
    /// Processes to keep up.
    pub replicas: u32,
    /// Where the model is, or will be.
    pub model: PathBuf,
    /// The address from which `model` comes.
    pub download: Option<String>,
    pub env: Vec<(String, String)>,
    /// Share of the free memory for KV blocks, where it is not the engine's own choice.
    pub kv_share: Option<f64>,
}

/// Finds the model of `service`.
///
/// # Errors
/// When a claim has no folder, a file does not exist, or the environment asks for a Secret or ConfigMap.
pub(crate) fn resolve(service: &ValidatedService, claims: &[(String, PathBuf)]) -> anyhow::Result<Run> {
    let name = &service.name;
    let (model, download) = match &service.source {
        ModelSource::File { path } => (existing(Path::new(path), name)?, None),
        ModelSource::Claim { claim, path } => {
            let folder = claims.iter().find(|(mapped, _)| mapped == claim).map(|(_, folder)| folder);
            let folder = folder.with_context(|| {
                format!("LLMService {name} reads the claim '{claim}': say which folder stands for it with --pvc {claim}=FOLDER")
            })?;
            (existing(&folder.join(path), name)?, None)
        }
        ModelSource::Http { uri, file } => {
            (cache_folder()?.join(short_hash(uri)).join(file), Some(uri.clone()))
        }
    };
    let (service, replicas, env) = (service.clone(), service.replicas, env(service)?);
    Ok(Run { service, replicas, model, download, env, kv_share: None })
}

fn existing(path: &Path, name: &str) -> anyhow::Result<PathBuf> {
    path.canonicalize()
        .with_context(|| format!("LLMService {name}: cannot find its model {}", path.display()))
}

fn cache_folder() -> anyhow::Result<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let folder = var("REGATTA_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|cache| cache.join("regatta")))
        .or_else(|| var("HOME").map(|home| home.join(".cache/regatta")));
    folder.context("no folder for downloads: set REGATTA_CACHE")
}

fn short_hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(8).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn env(service: &ValidatedService) -> anyhow::Result<Vec<(String, String)>> {
    let mut env = Vec::new();
    for var in &service.env {
        if var.value_from.is_some() {
            bail!(
                "LLMService {}: engine.env '{}' takes its value from a Secret or ConfigMap, which this machine does \
                 not have: give it a value, or set it in your shell and remove it here",
                service.name,
                var.name
            );
        }
        env.push((var.name.clone(), var.value.clone().unwrap_or_default()));
    }
    let accelerator = service
        .accelerator
        .iter()
        .map(|(name, count)| (ACCELERATOR_ENV.to_owned(), format!("{name}={count}")));
    env.extend(accelerator);
    Ok(env)
}
