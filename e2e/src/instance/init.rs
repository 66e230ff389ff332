//! The first process of a cluster's PID namespace. When it ends, the kernel ends all others.

use std::path::Path;
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

use super::{Instance, mounts};
use crate::cluster::Network;
use crate::packages::search_path;

/// Addresses of the cluster go around any HTTP proxy of the host.
const NO_PROXY: &str = "localhost,127.0.0.1,10.100.0.0/24,10.96.0.0/16,10.244.0.0/16,.svc,.cluster.local";

/// Arranges the namespaces around the cluster in `dir`, runs the harness as a child, and returns its exit code.
///
/// # Errors
/// When a mount is refused or the harness cannot be started.
pub async fn init(dir: &Path, command: &[String]) -> Result<i32> {
    let instance = Instance { dir: dir.to_owned() };
    let spec = instance.spec()?;
    if spec.network == Network::Own {
        prctl::set_pdeathsig(Signal::SIGKILL).context("cannot tie the cluster to its starter")?;
        // The starter holds the lock. If it ended before the line above, nobody would end us.
        ensure!(instance.try_lock()?.is_none(), "the process that started the cluster is gone");
    }
    mounts::arrange(dir, spec.size)?;

    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    // Ctrl-C reaches the person's command by itself; this process has to outlive it.
    let _interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let mut children = signal(SignalKind::child()).context("cannot listen for signals")?;
    let harness = start_harness(dir, command)?;
    let pid = Pid::from_raw(i32::try_from(harness.id()).context("a process id fits")?);
    loop {
        tokio::select! {
            _ = terminate.recv() => {
                // It may have ended in this moment, and its status is then on its way.
                let _ = kill(pid, Signal::SIGTERM);
            }
            _ = children.recv() => {
                if let Some(code) = reap(pid) {
                    return Ok(code);
                }
            }
        }
    }
}

fn start_harness(dir: &Path, command: &[String]) -> Result<Child> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let no_proxy = match std::env::var("NO_PROXY") {
        Ok(hosts) if !hosts.is_empty() => format!("{hosts},{NO_PROXY}"),
        _ => NO_PROXY.to_owned(),
    };
    Command::new(program)
        .arg("inside")
        .arg(dir)
        .arg("--")
        .args(command)
        .env("PATH", search_path())
        .env("NO_PROXY", &no_proxy)
        .env("no_proxy", &no_proxy)
        .spawn()
        .context("cannot start the harness")
}

/// Takes in all ended children, orphans of the cluster too, and returns the exit code of `harness` once it is there.
fn reap(harness: Pid) -> Option<i32> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == harness => return Some(code),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == harness => return Some(128 + signal as i32),
            Ok(WaitStatus::StillAlive) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}
