//! Builds the programs of the cluster from their published Go modules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::progress::Progress;
use crate::workspace::Workspace;

/// Kubernetes learns its own version from the linker.
const KUBERNETES_FLAGS: &str = "-s -w -X k8s.io/component-base/version.gitVersion=v1.35.4 \
     -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=35";

/// One Go module of `e2e/` and the program it becomes.
struct Program {
    module: &'static str,
    binary: &'static str,
    link_flags: &'static str,
    /// "0" for a program that goes alone into an image, where no C library is.
    cgo: &'static str,
    cold_build: &'static str,
}

const KUBERNETES: Program = Program {
    module: "cluster",
    binary: "kubernetes",
    link_flags: KUBERNETES_FLAGS,
    cgo: "1",
    cold_build: "about 5 minutes on 2 cores the first time",
};
const COREDNS: Program = Program {
    module: "coredns",
    binary: "coredns",
    link_flags: "-s -w",
    cgo: "0",
    cold_build: "about a minute the first time",
};
const PAUSE: Program =
    Program { module: "pause", binary: "pause", link_flags: "-s -w", cgo: "0", cold_build: "a few seconds" };

/// Builds everything that a node needs.
///
/// # Errors
/// When Go is missing or a build fails.
pub fn build_all(workspace: &Workspace) -> Result<()> {
    let progress = Progress::start();
    build_kubernetes(workspace, progress)?;
    build_node_programs(workspace, progress)
}

/// Builds the one binary that is etcd, the API server, every other component and kubectl, unless it is current.
///
/// # Errors
/// When Go is missing or the build fails.
pub(crate) fn build_kubernetes(workspace: &Workspace, progress: Progress) -> Result<()> {
    build(workspace, &KUBERNETES, progress)?;
    let kubectl = workspace.bin().join("kubectl");
    if fs::symlink_metadata(&kubectl).is_err() {
        // The binary acts as the program it is called by.
        std::os::unix::fs::symlink("kubernetes", &kubectl)
            .with_context(|| format!("cannot link {}", kubectl.display()))?;
    }
    Ok(())
}

/// Builds what the images inside a node need: CoreDNS and the pause program.
///
/// # Errors
/// When Go is missing or a build fails.
pub(crate) fn build_node_programs(workspace: &Workspace, progress: Progress) -> Result<()> {
    build(workspace, &COREDNS, progress)?;
    build(workspace, &PAUSE, progress)
}

fn build(workspace: &Workspace, program: &Program, progress: Progress) -> Result<()> {
    let module = workspace.go_module(program.module);
    let output = workspace.bin().join(program.binary);
    let stamp = workspace.bin().join(format!("{}.stamp", program.binary));
    let sources = hash_sources(&module, program.link_flags)?;
    if output.is_file() && fs::read_to_string(&stamp).is_ok_and(|built| built == sources) {
        return Ok(());
    }
    fs::create_dir_all(workspace.bin()).context("cannot create the folder of built programs")?;
    progress.say(format!("building {} with go ({})", program.binary, program.cold_build));
    // Built under another name first: a program that runs cannot be written over, and a cut build leaves nothing.
    let fresh = output.with_extension("new");
    let status = Command::new("go")
        .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", program.link_flags, "-o"])
        .args([&fresh, Path::new(".")])
        .current_dir(&module)
        .env("CGO_ENABLED", program.cgo)
        .status()
        .context("go cannot be run: install Go 1.26 from https://go.dev/dl and have it on the PATH")?;
    if !status.success() {
        bail!("building {} failed ({status}): its messages are above", module.display());
    }
    fs::rename(&fresh, &output).with_context(|| format!("cannot place {}", output.display()))?;
    fs::write(&stamp, sources).with_context(|| format!("cannot write {}", stamp.display()))?;
    progress.say(format!("built {}", program.binary));
    Ok(())
}

/// A hash over everything of ours that decides what the build yields.
fn hash_sources(module: &Path, link_flags: &str) -> Result<String> {
    let mut files: Vec<PathBuf> = fs::read_dir(module)
        .with_context(|| format!("cannot read {}", module.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    let mut hash = Sha256::new();
    hash.update(link_flags);
    for file in files.iter().filter(|file| file.is_file()) {
        hash.update(file.as_os_str().as_encoded_bytes());
        hash.update(fs::read(file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    Ok(hex(&hash.finalize()))
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
