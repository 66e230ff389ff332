//! The commands that talk to a Kubernetes cluster.

use std::time::Duration;

use anyhow::Context;
use kube::Client;
use regatta_controller::{RunOptions, Timings};
use regatta_gateway::{Limits, Options};

use crate::{
    args::{GatewayArgs, OperatorArgs},
    shutdown,
};

/// Runs the operator until a signal.
///
/// # Errors
/// When there is no cluster to talk to, or the operator ends by itself.
pub(crate) async fn operator(args: OperatorArgs) -> anyhow::Result<()> {
    let shutdown = shutdown::on_signal()?;
    let options = RunOptions {
        watch_namespace: args.watch_namespace,
        lease_namespace: args.lease_namespace,
        identity: args.identity.unwrap_or_else(|| format!("regatta-{}", std::process::id())),
        lease_timings: Timings::default(),
        admin_addr: args.admin_addr,
        engine_image: args.engine_image,
        gateway_url: args.gateway_url,
        shutdown,
    };
    Ok(regatta_controller::run(client().await?, options).await?)
}

/// Runs the gateway until a signal.
///
/// # Errors
/// When there is no cluster to talk to, or a port is taken.
pub(crate) async fn gateway(args: GatewayArgs) -> anyhow::Result<()> {
    let shutdown = shutdown::on_signal()?;
    let options = Options {
        watch_namespace: args.watch_namespace,
        listen: args.listen,
        admin: args.admin_addr,
        linger: Duration::from_secs(args.linger),
        drain: Duration::from_secs(args.drain),
        limits: Limits {
            max_body: args.max_body,
            response_timeout: Duration::from_secs(args.response_timeout),
            ..Limits::default()
        },
    };
    Ok(regatta_gateway::run(client().await?, options, shutdown).await?)
}

async fn client() -> anyhow::Result<Client> {
    Client::try_default().await.context(
        "no Kubernetes cluster to talk to: run this in a pod, or set KUBECONFIG; `regatta local` needs no cluster",
    )
}
