//! `up`, `down` and `status`: one node on the host's own network, for people.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Instance, Network, lock, prepare};
use crate::cluster::Size;
use crate::cluster::component::execute;
use crate::cluster::network::{BRIDGE, IP_FORWARD, POD_BRIDGE, TABLE};
use crate::progress::Progress;
use crate::workspace::Workspace;

/// From the order to end until every process has ended.
const END_DEADLINE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);
/// Tables of kube-proxy, one for each family.
const PROXY_TABLES: [(&str, &str); 2] = [("ip", "kube-proxy"), ("ip6", "kube-proxy")];

/// Brings one node up and returns when it is ready. A second call says that it is up already.
///
/// # Errors
/// When something needed is missing, another Kubernetes is in the way, or the cluster does not become ready; what was
/// started is then removed again.
pub fn up(state: &Path) -> Result<()> {
    let progress = Progress::start();
    let workspace = Workspace::find()?;
    fs::create_dir_all(state).with_context(|| format!("cannot create {}", state.display()))?;
    let _turn = take_turn(state)?;
    let instance = Instance { dir: state.join("up") };
    if is_alive(&instance)? {
        println!("the cluster is already up");
        print_usage(state, &workspace);
        return Ok(());
    }
    if instance.dir.exists() {
        progress.say("removing what an earlier cluster left");
        clean(state, &instance)?;
    }
    let spec = prepare(&workspace, Size::Node, 1, Network::Host, progress)?;
    refuse_other_kubernetes()?;
    let instance = Instance::create(instance.dir, &spec)?;
    instance.write(
        "ip_forward",
        &fs::read_to_string(IP_FORWARD).context("cannot read whether packets are forwarded")?,
    )?;
    let mut init = start(&instance)?;
    if let Err(error) = follow(&instance, &mut init) {
        let logs = state.join("logs").join(&spec.id);
        fs::create_dir_all(state.join("logs")).context("cannot create the folder of logs")?;
        end(&instance)?;
        fs::rename(instance.path("logs"), &logs).context("cannot keep the logs")?;
        clean(state, &instance)?;
        return Err(error.context(format!("the logs of all components are in {}", logs.display())));
    }
    fs::copy(instance.path("kubeconfig"), state.join("kubeconfig")).context("cannot copy the kubeconfig")?;
    print_usage(state, &workspace);
    Ok(())
}

/// Ends the cluster that `up` made, or the rest of it, and removes everything that it put on the host.
///
/// # Errors
/// When a process does not end or something cannot be removed.
pub fn down(state: &Path) -> Result<()> {
    let instance = Instance { dir: state.join("up") };
    if !instance.dir.exists() {
        println!("no cluster is up");
        return Ok(());
    }
    super::require_root()?;
    let _turn = take_turn(state)?;
    end(&instance)?;
    clean(state, &instance)?;
    println!("the cluster is down, and nothing of it is left on this machine");
    println!(
        "what was built for it stays in {}, so that the next one starts in seconds; delete the folder to be rid of it",
        state.display()
    );
    Ok(())
}

/// Prints what is up and where its parts lie.
///
/// # Errors
/// When the state cannot be read.
pub fn status(state: &Path) -> Result<()> {
    let instance = Instance { dir: state.join("up") };
    if !instance.dir.exists() {
        println!("no cluster is up; start one with: make cluster-up");
    } else if !is_alive(&instance)? {
        println!(
            "the cluster has ended by itself; its logs are in {}; remove the rest with: make cluster-down",
            instance.path("logs").display()
        );
    } else if !instance.path("ready").exists() {
        println!("the cluster is starting; its logs are in {}", instance.path("logs").display());
    } else {
        println!("the cluster is up; its logs are in {}", instance.path("logs").display());
        let workspace = Workspace::find()?;
        print_usage(state, &workspace);
        let kubeconfig = state.join("kubeconfig");
        let kubectl = workspace.bin().join("kubectl");
        let pods = ["get", "nodes,pods", "--all-namespaces", "--request-timeout=10s"];
        Command::new(kubectl)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(pods)
            .status()
            .context("kubectl cannot be run")?;
    }
    Ok(())
}

/// `up` and `down` do not work at the same time.
fn take_turn(state: &Path) -> Result<File> {
    lock(&state.join("up.lock"))?.context("another regatta-cluster up or down is at work: wait for it to end")
}

fn is_alive(instance: &Instance) -> Result<bool> {
    Ok(instance.dir.exists() && instance.try_lock()?.is_none())
}

/// Two kube-proxies on one network would undo each other's rules.
fn refuse_other_kubernetes() -> Result<()> {
    let tables = execute("nft", &["list", "tables"])?;
    if tables.contains("kube-proxy") {
        bail!("another Kubernetes runs on this host (nftables has its table kube-proxy): stop it first");
    }
    Ok(())
}

/// Starts the first process of the cluster, detached from this terminal.
fn start(instance: &Instance) -> Result<Child> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let log = File::create(instance.path("logs/cluster.log")).context("cannot create a log")?;
    unshare(CloneFlags::CLONE_NEWPID).context("cannot make a PID namespace (this needs CAP_SYS_ADMIN)")?;
    let init = Command::new("setsid")
        .arg(program)
        .arg("init")
        .arg(&instance.dir)
        .arg("--")
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("cannot share a log")?)
        .stderr(log)
        .current_dir("/")
        .spawn()
        .context("cannot start the first process of the cluster")?;
    instance.write("pid", &init.id().to_string())?;
    Ok(init)
}

/// Shows the cluster's own progress until it is ready. Each wait inside has its deadline.
fn follow(instance: &Instance, init: &mut Child) -> Result<()> {
    let mut log = File::open(instance.path("logs/cluster.log")).context("cannot read the log")?;
    let mut text = Vec::new();
    loop {
        let ended = init.try_wait().context("cannot watch the cluster")?;
        let ready = instance.path("ready").exists();
        text.clear();
        log.read_to_end(&mut text).context("cannot read the log")?;
        std::io::stderr().write_all(&text).context("cannot write progress")?;
        if let Some(status) = ended {
            bail!("the cluster ended while it started ({status})");
        }
        if ready {
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
}

/// Ends the first process; the kernel ends all others before that one counts as ended.
fn end(instance: &Instance) -> Result<()> {
    if !is_alive(instance)? && !instance.path("pid").exists() {
        return Ok(());
    }
    let pid = fs::read_to_string(instance.path("pid")).context("cannot read the id of the first process")?;
    let pid: i32 = pid.trim().parse().with_context(|| format!("{pid:?} is no process id"))?;
    // The lock proves that the id still belongs to the cluster.
    if is_alive(instance)? {
        kill(Pid::from_raw(pid), Signal::SIGKILL).with_context(|| format!("cannot end process {pid}"))?;
    }
    let start = Instant::now();
    while is_alive(instance)? || is_ending(pid) {
        if start.elapsed() > END_DEADLINE {
            bail!("process {pid} did not end within {} seconds", END_DEADLINE.as_secs());
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Whether `pid` is our first process and still has others to end. A zombie has none.
fn is_ending(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ours = stat.contains("(regatta-cluste");
    let zombie = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'));
    ours && !zombie
}

/// The kernel takes the pods' ends of their cables away a moment after their processes, and ours with them.
fn wait_for_cables() -> Result<()> {
    let start = Instant::now();
    // An error means that the bridge itself is gone or was never made.
    while execute("ip", &["-o", "link", "show", "master", POD_BRIDGE]).is_ok_and(|links| !links.is_empty()) {
        if start.elapsed() > END_DEADLINE {
            bail!("interfaces of pods are still on {POD_BRIDGE} after {} seconds", END_DEADLINE.as_secs());
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Removes what the cluster put on the host's network, its cgroups and its files.
fn clean(state: &Path, instance: &Instance) -> Result<()> {
    wait_for_cables()?;
    for link in [POD_BRIDGE, BRIDGE] {
        if execute("ip", &["link", "show", link]).is_ok() {
            execute("ip", &["link", "del", link])?;
        }
    }
    for (family, table) in PROXY_TABLES.into_iter().chain([("ip", TABLE)]) {
        if execute("nft", &["list", "table", family, table]).is_ok() {
            execute("nft", &["delete", "table", family, table])?;
        }
    }
    if let Ok(before) = fs::read_to_string(instance.path("ip_forward")) {
        fs::write(IP_FORWARD, before).context("cannot restore whether packets are forwarded")?;
    }
    instance.remove()?;
    let kubeconfig = state.join("kubeconfig");
    if kubeconfig.exists() {
        fs::remove_file(kubeconfig).context("cannot remove the kubeconfig")?;
    }
    Ok(())
}

fn print_usage(state: &Path, workspace: &Workspace) {
    println!("  export KUBECONFIG={}", state.join("kubeconfig").display());
    println!("  kubectl get pods --all-namespaces      (kubectl is in {})", workspace.bin().display());
    println!("  stop it with: make cluster-down");
}
