//! Probes, version, metrics.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};

use super::state::ServerState;

/// `GET /livez`: the process runs.
pub(super) async fn livez() -> &'static str {
    "ok\n"
}

/// `GET /readyz`: new traffic may come.
pub(super) async fn readyz(State(server): State<Arc<ServerState>>) -> Response {
    match server.ready() {
        Ok(()) => "ok\n".into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

/// `GET /health` and `/ping`, as vLLM: the engine can serve. Draining does not make it unhealthy.
pub(super) async fn health(State(server): State<Arc<ServerState>>) -> Response {
    match server.loaded() {
        None => (StatusCode::SERVICE_UNAVAILABLE, "loading\n").into_response(),
        Some(model) if model.is_dead() => (StatusCode::SERVICE_UNAVAILABLE, "dead\n").into_response(),
        Some(_) => StatusCode::OK.into_response(),
    }
}

/// `GET /version`.
pub(super) async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// `GET /metrics`.
pub(super) async fn metrics(State(server): State<Arc<ServerState>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let (content_type, page) = server.metrics.encode(accept);
    ([(header::CONTENT_TYPE, content_type)], page).into_response()
}
