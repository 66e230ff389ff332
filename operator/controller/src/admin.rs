//! `/metrics`, `/livez` and `/readyz`.

use std::{future::IntoFuture, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{Error, metrics::Metrics};

const STOP_DEADLINE: Duration = Duration::from_secs(2);

/// The server's task.
pub(crate) struct Admin {
    task: JoinHandle<()>,
}

/// Listens on `addr` until `shutdown`.
pub(crate) async fn serve(
    addr: SocketAddr,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
) -> Result<Admin, Error> {
    let listener = TcpListener::bind(addr).await.map_err(|cause| Error::Admin { addr, cause })?;
    let server = axum::serve(listener, router(metrics)).with_graceful_shutdown(shutdown.cancelled_owned());
    let task = tokio::spawn(async move {
        if let Err(error) = server.into_future().await {
            tracing::error!(%error, "the admin server ended");
        }
    });
    Ok(Admin { task })
}

impl Admin {
    /// Waits for requests in progress, for a short while.
    pub(crate) async fn stop(mut self) {
        if tokio::time::timeout(STOP_DEADLINE, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

fn router(metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/livez", get(async || "ok"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(expose))
        .with_state(metrics)
}

/// A standby is as ready as a leader: both have reached the API server.
async fn readyz(State(metrics): State<Arc<Metrics>>) -> (StatusCode, &'static str) {
    match metrics.reached() {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the API server has not answered yet"),
    }
}

async fn expose(State(metrics): State<Arc<Metrics>>) -> Response {
    const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, FORMAT)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
