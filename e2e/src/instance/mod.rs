//! One cluster and the folder, locks and namespaces that hold it.
//!
//! A cluster lives in a mount and a PID namespace, so that its mounts and processes end with the first process inside,
//! however that ends. `run` adds a network namespace; `up` uses the host's network, and `down` removes what it put there.

mod init;
mod inside;
mod load;
mod mounts;
mod run;
mod up;

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cluster::{self, Spec};
use crate::progress::Progress;
use crate::workspace::Workspace;
use crate::{image, packages, programs};

pub use init::init;
pub use inside::inside;
pub use load::load;
pub use run::run;
pub use up::{down, status, up};

use crate::cluster::{Network, Size};

/// Tells programs inside a cluster which one they are in.
pub(crate) const CLUSTER_VARIABLE: &str = "REGATTA_CLUSTER";

/// The folder of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    dir: PathBuf,
}

impl Instance {
    /// Makes the folder and writes down what shall run in it.
    fn create(dir: PathBuf, spec: &Spec) -> Result<Self> {
        fs::create_dir_all(dir.join("logs")).with_context(|| format!("cannot create {}", dir.display()))?;
        let dir = dir.canonicalize().with_context(|| format!("cannot resolve {}", dir.display()))?;
        let instance = Self { dir };
        instance.write("spec.json", &serde_json::to_string(spec).context("a spec is always JSON")?)?;
        instance.write("resolv.conf", &resolv_conf(spec.network))?;
        Ok(instance)
    }

    fn spec(&self) -> Result<Spec> {
        read_spec(&self.dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The lock that is held as long as the cluster lives; `None` when it does.
    fn try_lock(&self) -> Result<Option<File>> {
        lock(&self.path("lock"))
    }

    /// Removes what a cluster that has ended leaves: cgroups and files.
    fn remove(&self) -> Result<()> {
        match self.spec() {
            Ok(spec) => cluster::remove_cgroups(&spec.id)?,
            // Killed before it was written: no cgroup was made yet.
            Err(_) if !self.path("spec.json").exists() => {}
            Err(error) => return Err(error),
        }
        fs::remove_dir_all(&self.dir).with_context(|| format!("cannot remove {}", self.dir.display()))
    }
}

fn read_spec(dir: &Path) -> Result<Spec> {
    let path = dir.join("spec.json");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not from this version", path.display()))
}

/// Takes the lock file `path`, or gives `None` when another process has it.
fn lock(path: &Path) -> Result<Option<File>> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

/// Checks and builds everything that a cluster needs, and describes it.
fn prepare(
    workspace: &Workspace,
    size: Size,
    nodes: u8,
    network: Network,
    progress: Progress,
) -> Result<Spec> {
    require_root()?;
    packages::check(size)?;
    programs::build_kubernetes(workspace, progress)?;
    let mut images = Vec::new();
    if size == Size::Node {
        programs::build_node_programs(workspace, progress)?;
        images = image::node_images(workspace, progress)?;
    }
    let id = uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
    Ok(Spec { id, size, nodes, network, bin: workspace.bin(), images })
}

fn require_root() -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let user = fs::metadata("/proc/self").context("/proc cannot be read")?.uid();
    anyhow::ensure!(
        user == 0,
        "a cluster needs namespaces and mounts, which only root makes: run this as root"
    );
    Ok(())
}

/// The name servers of pods that ask outside the cluster; none where there is no way out.
fn resolv_conf(network: Network) -> String {
    if network == Network::Own {
        return String::new();
    }
    // A resolver on the host's loopback is out of a pod's reach; systemd keeps the list behind it here.
    let behind = fs::read_to_string("/run/systemd/resolve/resolv.conf");
    let host = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    if host.contains("nameserver 127.") { behind.unwrap_or_default() } else { host }
}
