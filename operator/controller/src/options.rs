//! What `regatta operator` is told, and how it can end.

use std::net::SocketAddr;

use tokio_util::sync::CancellationToken;

use crate::Timings;

/// Settings of one operator process.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Namespace to watch; all namespaces when absent.
    pub watch_namespace: Option<String>,
    /// Namespace of the Lease `regatta-operator`.
    pub lease_namespace: String,
    /// Holder identity in the Lease: unique for each process, such as the pod's name.
    pub identity: String,
    /// Pace of leader election.
    pub lease_timings: Timings,
    /// Where `/metrics`, `/livez` and `/readyz` listen.
    pub admin_addr: SocketAddr,
    /// Engine image of services that name none.
    pub engine_image: String,
    /// Base URL of the gateway, told in the status of each service.
    pub gateway_url: Option<String>,
    /// Cancelled when the process is asked to end; the Lease is then released.
    pub shutdown: CancellationToken,
}

/// Why the operator ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The admin port could not be opened.
    #[error(
        "cannot listen on {addr} for metrics and probes: {cause}; choose another address with --admin-addr"
    )]
    Admin {
        /// The wanted address.
        addr: SocketAddr,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The client that asks engines could not be made.
    #[error("cannot make the http client that asks engines for their state: {0}")]
    HttpClient(reqwest::Error),
    /// The Lease was lost; the process ends, so that nothing runs on without it.
    #[error(
        "the lease {namespace}/regatta-operator was lost; ending, so that a fresh process can stand for it"
    )]
    LeaseLost {
        /// Namespace of the Lease.
        namespace: String,
    },
}
