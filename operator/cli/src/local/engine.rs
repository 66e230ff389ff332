//! The program `regatta-engine` and what it is started with.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use regatta_planner::{build, contract::ENGINE_BINARY};

use super::resolve::Run;

/// The engine that the user named, else the one beside this program, else the one on PATH.
///
/// # Errors
/// When there is none.
pub(crate) fn locate(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = named {
        if !path.is_file() {
            bail!("--engine {}: there is no such program", path.display());
        }
        return path.canonicalize().with_context(|| format!("cannot resolve {}", path.display()));
    }
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(ENGINE_BINARY)));
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&folders).map(|folder| folder.join(ENGINE_BINARY));
    let found = beside.into_iter().chain(on_path).find(|path| path.is_file());
    found.with_context(|| {
        format!(
            "cannot find {ENGINE_BINARY} beside this program or on PATH; build it with \
             `cargo build --release --bin {ENGINE_BINARY}` or name it with --engine"
        )
    })
}

/// Ports of one engine process on 127.0.0.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub http: u16,
    pub internal: u16,
}

/// The arguments that a pod would get, with this machine's path, address, ports and memory. There is no pod to read
/// annotations from.
pub(crate) fn arguments(run: &Run, ports: Ports) -> Vec<String> {
    let rendered = build::engine_args(&run.service);
    let mut local = Vec::with_capacity(rendered.len());
    let mut items = rendered.into_iter().enumerate();
    while let Some((i, item)) = items.next() {
        let replaced = match (i, item.as_str()) {
            (1, _) => {
                local.push(run.model.display().to_string());
                continue;
            }
            (_, "--host") => Some("127.0.0.1".to_owned()),
            (_, "--port") => Some(ports.http.to_string()),
            (_, "--internal-port") => Some(ports.internal.to_string()),
            (_, "--pod-info") => {
                items.next();
                continue;
            }
            _ => None,
        };
        local.push(item);
        if let Some(value) = replaced {
            items.next();
            local.push(value);
        }
    }
    if let Some(share) = run.kv_share {
        local.extend(["--gpu-memory-utilization".to_owned(), share.to_string()]);
    }
    local
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::testing::run;

    #[test]
    fn a_local_engine_gets_a_pods_arguments_with_its_own_path_and_ports() {
        let mut run = run("demo", 1, &[("max-model-len", "512")]);
        let ports = Ports { http: 1, internal: 2 };
        let args = arguments(&run, ports).join(" ");
        assert!(
            args.starts_with(
                "serve /data/m.gguf --served-model-name demo --host 127.0.0.1 --port 1 --internal-port 2"
            ),
            "{args}"
        );
        assert!(!args.contains("pod-info") && args.ends_with("--max-model-len 512"), "{args}");
        run.kv_share = Some(0.125);
        assert!(
            arguments(&run, ports).join(" ").ends_with("--max-model-len 512 --gpu-memory-utilization 0.125")
        );
    }

    #[test]
    fn a_missing_engine_is_named() {
        let error = locate(Some(Path::new("/nowhere/engine"))).expect_err("missing").to_string();
        assert!(error.contains("/nowhere/engine"), "{error}");
    }
}
