//! What the programs of a cluster see of the file system: everything, but for a few fixed paths that they write to.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::cluster::{HOME, Size};

/// Paths that are compiled into the kubelet and the CNI library.
const PRIVATE: [&str; 2] = ["/var/lib/cni", "/var/log/containers"];

/// The kubelet sets these for the whole kernel. It leaves alone what already has the value it wants, so it is shown
/// a file that has.
const SYSCTLS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Moves this process to a mount namespace arranged for the cluster in `dir`, which appears as [`HOME`].
///
/// Whoever removes `dir` afterwards must not be in this namespace: pods mount folders of the host below it.
pub(super) fn arrange(dir: &Path, size: Size) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("cannot make a mount namespace (this needs CAP_SYS_ADMIN)")?;
    // Mounts of the host still arrive here; none of ours leaves.
    mount_at("/", None, None, MsFlags::MS_REC | MsFlags::MS_SLAVE)?;
    mount_at(
        "/proc",
        Some("proc"),
        Some("proc"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
    )?;
    mount_tmpfs("/run")?;
    fs::create_dir(HOME).with_context(|| format!("cannot create {HOME}"))?;
    bind(dir, Path::new(HOME))?;
    if size == Size::Node {
        for path in PRIVATE {
            fs::create_dir_all(path).with_context(|| format!("cannot create {path}"))?;
            mount_tmpfs(path)?;
        }
        mask_sysctls()?;
    }
    Ok(())
}

fn mask_sysctls() -> Result<()> {
    let shown = Path::new(HOME).join("sysctl");
    fs::create_dir_all(&shown).with_context(|| format!("cannot create {}", shown.display()))?;
    for (name, value) in SYSCTLS {
        let real = Path::new("/proc/sys").join(name);
        if real.exists() {
            let file = shown.join(name.replace('/', "."));
            fs::write(&file, value).with_context(|| format!("cannot write {}", file.display()))?;
            bind(&file, &real)?;
        }
    }
    Ok(())
}

fn mount_tmpfs(path: &str) -> Result<()> {
    mount_at(path, Some("tmpfs"), Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV)
}

fn mount_at(path: &str, source: Option<&str>, kind: Option<&str>, flags: MsFlags) -> Result<()> {
    mount(source, path, kind, flags, None::<&str>).with_context(|| format!("cannot mount on {path}"))
}

fn bind(source: &Path, target: &Path) -> Result<()> {
    mount(Some(source), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .with_context(|| format!("cannot bind {} to {}", source.display(), target.display()))
}
