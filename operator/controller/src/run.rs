use std::{sync::Arc, time::Duration};

use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::{
    Error, RunOptions, admin,
    context::Context,
    controllers,
    lease::{Elector, End},
    metrics::Metrics,
};

/// Time for reconciles in progress to end before the Lease is released.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// Runs the operator until `options.shutdown` is cancelled: stands for the Lease and, while it holds it, runs the
/// controllers. Without the Lease nothing is written but the Lease itself.
///
/// # Errors
/// When the admin port cannot be opened or the Lease is lost.
pub async fn run(client: Client, options: RunOptions) -> Result<(), Error> {
    // A second provider is refused, which means that there is one.
    _ = rustls::crypto::ring::default_provider().install_default();
    let metrics = Arc::new(Metrics::default());
    let admin = admin::serve(options.admin_addr, metrics.clone(), options.shutdown.clone()).await?;
    let elector = Elector::new(client.clone(), &options, metrics.clone());
    let result = lead(client, &options, &elector, metrics).await;
    options.shutdown.cancel();
    admin.stop().await;
    result
}

async fn lead(
    client: Client,
    options: &RunOptions,
    elector: &Elector,
    metrics: Arc<Metrics>,
) -> Result<(), Error> {
    let Some(held) = elector.acquire(&options.shutdown).await else { return Ok(()) };
    tracing::info!(identity = %options.identity, "leading");
    metrics.leader.set(1);
    let context = Arc::new(Context::new(client, options, metrics.clone())?);
    let stop = CancellationToken::new();
    let mut work = std::pin::pin!(controllers::run(context, stop.clone()));
    let end = tokio::select! {
        end = elector.keep(held, &options.shutdown) => end,
        () = &mut work => End::Shutdown,
    };
    metrics.leader.set(0);
    stop.cancel();
    match end {
        // Returning drops the controllers with all that they are about to write.
        End::Lost => Err(Error::LeaseLost { namespace: options.lease_namespace.clone() }),
        End::Shutdown => {
            if tokio::time::timeout(STOP_DEADLINE, work).await.is_err() {
                tracing::warn!("reconciles did not end in time and were dropped");
            }
            elector.release().await;
            Ok(())
        }
    }
}
