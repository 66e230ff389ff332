//! The port for probes and metrics.

use axum::{Router, extract::State, routing::get};
use http::{StatusCode, header::CONTENT_TYPE};
use tokio::net::TcpListener;

use crate::Gateway;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) async fn serve(gateway: Gateway, listener: TcpListener) -> std::io::Result<()> {
    let router = Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route(
            "/metrics",
            get(async |State(gateway): State<Gateway>| ([(CONTENT_TYPE, OPENMETRICS)], gateway.metrics())),
        )
        .with_state(gateway);
    axum::serve(listener, router).await
}

async fn readyz(State(gateway): State<Gateway>) -> (StatusCode, &'static str) {
    if gateway.is_ready() {
        (StatusCode::OK, "ok\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "not ready: the watches have not synced, or the gateway is shutting down\n",
        )
    }
}
