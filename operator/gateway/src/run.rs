use std::{net::SocketAddr, time::Duration};

use kube::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{Gateway, Limits, admin, server, watch};

/// Settings of one gateway process.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespace to watch; all namespaces when absent.
    pub watch_namespace: Option<String>,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where `/metrics`, `/livez` and `/readyz` listen.
    pub admin: SocketAddr,
    /// How long it goes on accepting after it was asked to end, while load balancers learn of it.
    pub linger: Duration,
    /// How long answers under way may take to end after that.
    pub drain: Duration,
    /// Bounds of what it accepts.
    pub limits: Limits,
}

/// Why a gateway ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A port is taken or may not be opened.
    #[error("cannot listen on {address} for {purpose}: {cause}; choose another address with {flag}")]
    Listen {
        /// The wanted address.
        address: SocketAddr,
        /// What for.
        purpose: &'static str,
        /// The option that changes it.
        flag: &'static str,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The admin port closed.
    #[error("the server of probes and metrics failed: {0}")]
    Admin(std::io::Error),
}

/// Runs the gateway until `shutdown`.
///
/// # Errors
/// When a port cannot be opened.
pub async fn run(client: Client, options: Options, shutdown: CancellationToken) -> Result<(), RunError> {
    let listener = listen(options.listen, "clients", "--listen").await?;
    let admin = listen(options.admin, "probes and metrics", "--admin-addr").await?;
    info!(listen = %options.listen, admin = %options.admin, "gateway started");
    let gateway = Gateway::new(options.limits);
    tokio::select! {
        () = server::serve(gateway.clone(), listener, options.linger, options.drain, shutdown) => Ok(()),
        outcome = admin::serve(gateway.clone(), admin) => outcome.map_err(RunError::Admin),
        never = watch::run(client, options.watch_namespace.as_deref(), &gateway) => match never {},
    }
}

async fn listen(
    address: SocketAddr,
    purpose: &'static str,
    flag: &'static str,
) -> Result<TcpListener, RunError> {
    TcpListener::bind(address).await.map_err(|cause| RunError::Listen { address, purpose, flag, cause })
}
