//! Each kubelet needs a cgroup of its own, and the cluster leaves none behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const MOUNT: &str = "/sys/fs/cgroup";
/// The kernel frees a cgroup a moment after its last process has ended.
const REMOVE_DEADLINE: Duration = Duration::from_secs(20);

/// The cgroup of one node, as the kubelet's `cgroupRoot` names it.
pub(crate) fn name(id: &str, node: u8) -> String {
    format!("/regatta-{id}-{node}")
}

/// Makes `cgroup` in every hierarchy.
pub(crate) fn create(cgroup: &str) -> Result<()> {
    if !is_v1() {
        enable_controllers()?;
    }
    for hierarchy in hierarchies()? {
        let dir = hierarchy.join(cgroup.trim_start_matches('/'));
        fs::create_dir_all(&dir).with_context(|| format!("cannot create the cgroup {}", dir.display()))?;
        // A new cpuset (cgroup v1) is empty, and no process can enter it before it has processors and memory.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let from = hierarchy.join(file);
            if is_v1() && from.is_file() {
                let value =
                    fs::read_to_string(&from).with_context(|| format!("cannot read {}", from.display()))?;
                fs::write(dir.join(file), value.trim())
                    .with_context(|| format!("cannot write {file} in {}", dir.display()))?;
            }
        }
    }
    Ok(())
}

/// Cgroup v2 gives a child only the controllers that its parent passes on, and the kubelet asks for all it knows.
fn enable_controllers() -> Result<()> {
    let root = Path::new(MOUNT);
    let controllers =
        fs::read_to_string(root.join("cgroup.controllers")).context("cannot read cgroup.controllers")?;
    for controller in controllers.split_whitespace() {
        fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"))
            .with_context(|| {
                format!(
                    "cannot pass the cgroup controller {controller} on; in a container whose own processes are in its \
                     root cgroup, move them to a child first, or give it the host's cgroups (--cgroupns=host)"
                )
            })?;
    }
    Ok(())
}

/// Removes the cgroups of all nodes of the cluster `id`, whose processes have ended.
///
/// # Errors
/// When a cgroup stays busy, which means that a process of the cluster still lives.
pub(crate) fn remove(id: &str) -> Result<()> {
    let prefix = format!("regatta-{id}-");
    for hierarchy in hierarchies()? {
        let entries =
            fs::read_dir(&hierarchy).with_context(|| format!("cannot read {}", hierarchy.display()))?;
        for entry in
            entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        {
            let start = Instant::now();
            while let Err(error) = remove_tree(&entry.path()) {
                if start.elapsed() > REMOVE_DEADLINE {
                    bail!("the cgroup {} cannot be removed: {error}", entry.path().display());
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
    Ok(())
}

/// A cgroup's files go with it; only its child cgroups have to go first.
fn remove_tree(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}

/// Mount points of all hierarchies: one for cgroup v2, one for each controller (and perhaps a v2 one) for v1.
fn hierarchies() -> Result<Vec<PathBuf>> {
    if !is_v1() {
        return Ok(vec![MOUNT.into()]);
    }
    let entries = fs::read_dir(MOUNT).with_context(|| format!("cannot read {MOUNT}"))?;
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .filter(|dir| dir.join("cgroup.procs").is_file())
        .collect();
    found.sort();
    Ok(found)
}

fn is_v1() -> bool {
    !Path::new(MOUNT).join("cgroup.controllers").is_file()
}
