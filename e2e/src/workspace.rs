//! Where things lie in the repository.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The repository that holds the sources of the cluster's programs.
#[derive(Clone, Debug)]
pub struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The repository around the current folder.
    ///
    /// # Errors
    /// When neither the current folder nor one above it holds `e2e/cluster/go.mod`.
    pub fn find() -> Result<Self> {
        let here = std::env::current_dir().context("the current folder cannot be read")?;
        let root =
            here.ancestors().find(|dir| dir.join("e2e/cluster/go.mod").is_file()).with_context(|| {
                format!(
                    "{} is not inside the regatta repository: run this command from a folder of it",
                    here.display()
                )
            })?;
        Ok(Self { root: root.to_owned() })
    }

    /// A folder with the sources of one Go program: `cluster`, `coredns` or `pause`.
    #[must_use]
    pub fn go_module(&self, name: &str) -> PathBuf {
        self.root.join("e2e").join(name)
    }

    /// The folder of built programs, shared by every cluster of this repository.
    #[must_use]
    pub fn bin(&self) -> PathBuf {
        self.default_state().join("bin")
    }

    /// Where clusters keep their state unless told otherwise.
    #[must_use]
    pub fn default_state(&self) -> PathBuf {
        self.root.join(".cluster")
    }

    /// The repository's own folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
}
