//! Container images without a container engine: an OCI layout in a tar file, made from a built program.

mod oci;
mod rootfs;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cluster::component::execute;
use crate::progress::Progress;
use crate::workspace::Workspace;
use rootfs::Rootfs;

/// The image that holds a pod's namespaces.
pub const PAUSE: &str = "docker.io/regatta/pause:dev";
/// The image of the cluster's DNS.
pub const COREDNS: &str = "docker.io/regatta/coredns:dev";

/// What an image is made of.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Full name with registry and tag, such as `docker.io/regatta/regatta:dev`.
    pub name: String,
    /// The program that the image runs; it is placed in `/usr/local/bin` under its file name.
    pub binary: PathBuf,
    /// The archive to write.
    pub output: PathBuf,
}

impl Recipe {
    /// The project's own images, of the programs in the folder `programs`.
    #[must_use]
    pub fn of_project(workspace: &Workspace, programs: &Path) -> [Self; 2] {
        ["regatta", "regatta-engine"].map(|program| Self {
            name: format!("docker.io/regatta/{program}:dev"),
            binary: programs.join(program),
            output: workspace.root().join(".images").join(format!("{program}.tar")),
        })
    }

    /// Writes the archive and returns its size in bytes.
    ///
    /// The image holds the program without debug information, the shared libraries it asks for, the host's
    /// certificate authorities where there are any, and a user 65532 that it runs as.
    ///
    /// # Errors
    /// When the program is missing or not for this machine, or the archive cannot be written.
    pub fn write(&self) -> Result<u64> {
        let file =
            self.binary.file_name().with_context(|| format!("{} is no file", self.binary.display()))?;
        let program = format!("usr/local/bin/{}", file.to_string_lossy());
        let mut rootfs = Rootfs::base();
        rootfs.add_program(&self.binary, &program)?;
        oci::write(&self.output, &self.name, &format!("/{program}"), &rootfs.into_tar()?)
    }
}

/// Makes the images that every node needs, and returns their archives.
///
/// # Errors
/// When a program is not built or an archive cannot be written.
pub(crate) fn node_images(workspace: &Workspace, progress: Progress) -> Result<Vec<PathBuf>> {
    let dir = workspace.default_state().join("images");
    let mut archives = Vec::new();
    for (name, program) in [(PAUSE, "pause"), (COREDNS, "coredns")] {
        let recipe = Recipe {
            name: name.into(),
            binary: workspace.bin().join(program),
            output: dir.join(format!("{program}.tar")),
        };
        if !is_current(&recipe) {
            progress.say(format!("packing the image {name}"));
            recipe.write()?;
        }
        archives.push(recipe.output);
    }
    Ok(archives)
}

fn is_current(recipe: &Recipe) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    modified(&recipe.output)
        .is_some_and(|image| modified(&recipe.binary).is_some_and(|binary| binary < image))
}

/// Loads an archive into the containerd behind `socket`, for the kubelet to use.
pub(crate) fn load(socket: &Path, tar: &Path) -> Result<()> {
    execute_words(&load_command(socket, tar))
        .with_context(|| format!("cannot load the image archive {}", tar.display()))
}

/// The command line of [`load`].
pub(crate) fn load_command(socket: &Path, tar: &Path) -> Vec<String> {
    ctr(socket, &["images", "import", &tar.display().to_string()])
}

/// Whether containerd serves requests, or why not.
pub(crate) fn containerd_answers(socket: &Path) -> Result<(), String> {
    execute_words(&ctr(socket, &["version"])).map_err(|error| error.to_string())
}

fn ctr(socket: &Path, arguments: &[&str]) -> Vec<String> {
    let socket = socket.display().to_string();
    let client = ["ctr", "--address", &socket, "--namespace", "k8s.io"];
    client.iter().chain(arguments).map(|&word| word.to_owned()).collect()
}

fn execute_words(words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    execute(words[0], &words[1..]).map(drop)
}
