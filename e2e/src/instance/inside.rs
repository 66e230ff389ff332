//! The harness inside the namespaces: starts the cluster, then runs a command or waits to be ended.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::{CLUSTER_VARIABLE, Instance};
use crate::cluster::{Cluster, Network, Spec};
use crate::progress::Progress;

/// How often the components are looked after.
const CHECK: Duration = Duration::from_millis(500);
/// How long a command may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

/// Starts the cluster in `dir`; runs `command` in it, or keeps it up when there is none. Returns an exit code.
///
/// # Errors
/// When the cluster does not become ready, a component ends, or `command` cannot be started.
pub async fn inside(dir: &Path, command: &[String]) -> Result<i32> {
    let instance = Instance { dir: dir.to_owned() };
    let spec = instance.spec()?;
    // A cluster on the host's network outlives its starter, so it holds its lock itself.
    let _lock: Option<File> = match spec.network {
        Network::Host => instance.try_lock()?,
        Network::Own => None,
    };
    let progress = Progress::start();
    let mut cluster = Cluster::start(&spec, progress).await?;
    instance.write("ready", "")?;
    progress.say("the cluster is ready");
    let Some((program, arguments)) = command.split_first() else {
        return watch(&mut cluster).await;
    };
    let mut child = Command::new(program)
        .args(arguments)
        .envs(environment(&instance, &spec))
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let _interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    tokio::select! {
        status = child.wait() => Ok(exit_code(status.context("cannot wait for the command")?)),
        failed = watch(&mut cluster) => failed,
        _ = terminate.recv() => terminate_command(&mut child).await,
    }
}

/// Returns only when a component has ended, with the error that says so.
async fn watch(cluster: &mut Cluster) -> Result<i32> {
    loop {
        cluster.check()?;
        tokio::time::sleep(CHECK).await;
    }
}

async fn terminate_command(child: &mut Child) -> Result<i32> {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM);
    }
    match tokio::time::timeout(GRACE, child.wait()).await {
        Ok(status) => Ok(exit_code(status.context("cannot wait for the command")?)),
        Err(_) => Ok(128 + nix::sys::signal::Signal::SIGTERM as i32),
    }
}

fn environment(instance: &Instance, spec: &Spec) -> [(&'static str, String); 4] {
    let kubeconfig = instance.path("kubeconfig").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    [
        ("KUBECONFIG", kubeconfig.clone()),
        ("REGATTA_TEST_KUBECONFIG", kubeconfig),
        (CLUSTER_VARIABLE, instance.dir.display().to_string()),
        ("PATH", format!("{}:{path}", spec.bin.display())),
    ]
}

/// The shell's convention: the code itself, or 128 and the signal.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}
