//! What tests on a cluster share.

mod crd;
mod namespace;
mod proxy;
mod wait;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

pub use crd::install_crd;
pub use namespace::TestNamespace;
pub use proxy::{Fault, FaultyProxy};
pub use wait::wait_for;

const KUBECONFIG_VARIABLE: &str = "REGATTA_TEST_KUBECONFIG";

/// A client of the cluster around this test, with all rights.
///
/// # Errors
/// When no cluster is around it: the text names the command that starts one.
pub async fn test_client() -> Result<Client> {
    Client::try_from(config().await?).context("cannot make a client for the test cluster")
}

async fn config() -> Result<Config> {
    let path = std::env::var_os(KUBECONFIG_VARIABLE).with_context(|| {
        format!(
            "{KUBECONFIG_VARIABLE} is not set: this test needs a cluster around it. Run make test, or \
             regatta-cluster run --size SIZE -- cargo test ..."
        )
    })?;
    // Other crates may bring a second provider, and then the client would not know which to take.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig =
        Kubeconfig::read_from(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("{} is not usable", path.display()))
}
