//! `run`: a cluster for one command, on a network of its own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use super::{Instance, Network, prepare};
use crate::cluster::Size;
use crate::progress::Progress;
use crate::workspace::Workspace;

/// Failed runs whose logs are kept.
const KEPT_LOGS: usize = 5;

/// Runs `command` inside a fresh cluster and returns its exit code. Nothing of the cluster outlives the call; what an
/// earlier call left when it was killed is removed first.
///
/// # Errors
/// When something needed is missing or the cluster cannot be started.
pub async fn run(state: &Path, size: Size, nodes: u8, command: &[String]) -> Result<i32> {
    let progress = Progress::start();
    let workspace = Workspace::find()?;
    let spec = prepare(&workspace, size, nodes, Network::Own, progress)?;
    let runs = state.join("run");
    sweep(&runs)?;
    let dir = runs.join(&spec.id);
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let unborn = Instance { dir: dir.clone() };
    let lock = unborn.try_lock()?.context("a fresh folder is locked")?;
    let instance = Instance::create(dir, &spec)?;

    let code = enter(&instance, command).await?;
    if code != 0 {
        let logs = keep_logs(state, &instance, &spec.id)?;
        progress.say(format!("exit code {code}; the logs of all components are in {}", logs.display()));
    }
    instance.remove()?;
    drop(lock);
    Ok(code)
}

/// Makes the namespaces and waits for their first process.
///
/// From `unshare` on, this process can start no thread: its children are to be born into another PID namespace.
async fn enter(instance: &Instance, command: &[String]) -> Result<i32> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID)
        .context("cannot make namespaces (in a container this needs CAP_SYS_ADMIN)")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    // Ctrl-C reaches the command itself, and this process cleans up after it.
    let _interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let mut init = Command::new(program)
        .arg("init")
        .arg(&instance.dir)
        .arg("--")
        .args(command)
        .spawn()
        .context("cannot start the first process of the cluster")?;
    let pid = init.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
    loop {
        tokio::select! {
            status = init.wait() => {
                let status = status.context("cannot wait for the cluster")?;
                return Ok(status.code().unwrap_or(128 + Signal::SIGKILL as i32));
            }
            _ = terminate.recv() => {
                if let Some(pid) = pid {
                    let _ = kill(pid, Signal::SIGTERM);
                }
            }
        }
    }
}

/// Removes clusters whose starter was killed. Their processes have ended with it.
fn sweep(runs: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(runs) else { return Ok(()) };
    for entry in entries.flatten() {
        let instance = Instance { dir: entry.path() };
        if instance.try_lock()?.is_some() {
            instance.remove()?;
        }
    }
    Ok(())
}

fn keep_logs(state: &Path, instance: &Instance, id: &str) -> Result<PathBuf> {
    let kept = state.join("logs");
    fs::create_dir_all(&kept).with_context(|| format!("cannot create {}", kept.display()))?;
    let logs = kept.join(id);
    fs::rename(instance.path("logs"), &logs).with_context(|| format!("cannot keep {}", logs.display()))?;
    let mut all: Vec<_> = fs::read_dir(&kept)
        .with_context(|| format!("cannot read {}", kept.display()))?
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    all.sort();
    let surplus = all.len().saturating_sub(KEPT_LOGS);
    for (_, old) in all.into_iter().take(surplus) {
        fs::remove_dir_all(&old).with_context(|| format!("cannot remove {}", old.display()))?;
    }
    Ok(logs)
}
