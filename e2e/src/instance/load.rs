//! `load`: brings image archives into the nodes of a running cluster.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::{CLUSTER_VARIABLE, Instance, read_spec};
use crate::cluster::component::execute;
use crate::cluster::{HOME, Size, containerd_socket};
use crate::image;
use crate::progress::Progress;

/// Loads `tars` into every node: of the cluster that this process runs in, else of the one that is up.
///
/// # Errors
/// When there is no such cluster, it has no nodes, or an archive cannot be loaded.
pub fn load(state: &Path, tars: &[PathBuf]) -> Result<()> {
    let progress = Progress::start();
    let inside = std::env::var_os(CLUSTER_VARIABLE).is_some() && Path::new(HOME).is_dir();
    let up = Instance { dir: state.join("up") };
    let dir = if inside { Path::new(HOME) } else { up.dir.as_path() };
    ensure!(
        dir.join("ready").exists(),
        "no cluster is up: start one with make cluster-up, or call this inside regatta-cluster run"
    );
    let spec = read_spec(dir)?;
    ensure!(spec.size == Size::Node, "this cluster has no nodes to load images into: it needs --size node");
    for tar in tars {
        let tar = tar.canonicalize().with_context(|| format!("cannot find {}", tar.display()))?;
        for number in 1..=spec.nodes {
            progress.say(format!("loading {} into node {number}", tar.display()));
            let socket = containerd_socket(number);
            if inside {
                image::load(&socket, &tar)?;
            } else {
                load_from_outside(&up, &socket, &tar)?;
            }
        }
    }
    Ok(())
}

/// The socket has its short path only in the cluster's mount namespace.
fn load_from_outside(up: &Instance, socket: &Path, tar: &Path) -> Result<()> {
    let pid = fs::read_to_string(up.path("pid")).context("cannot read the id of the first process")?;
    let enter = ["--mount".to_owned(), format!("--target={pid}")];
    let command = image::load_command(socket, tar);
    let words: Vec<&str> = enter.iter().chain(&command).map(String::as_str).collect();
    execute("nsenter", &words)
        .with_context(|| format!("cannot load the image archive {}", tar.display()))
        .map(drop)
}
