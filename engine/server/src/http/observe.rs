//! Counts answers, and logs those that are the server's fault.

use std::sync::Arc;

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};
use http::Method;

use super::{RequestId, ServerState};
use crate::metrics::HttpLabels;

pub(super) async fn count(State(server): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    let handler = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let method = match *request.method() {
        Method::GET => "GET",
        Method::POST => "POST",
        _ => "OTHER",
    };
    let id = request.extensions().get::<RequestId>().cloned();
    let response = next.run(request).await;
    let status = response.status();
    if status.is_server_error() && handler.starts_with("/v1") {
        tracing::warn!(
            request_id = id.map(|id| id.0),
            handler,
            status = status.as_u16(),
            "request not served"
        );
    }
    let status = match status.as_u16() / 100 {
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    };
    server.metrics.requests.http.get_or_create(&HttpLabels { handler, method, status }).inc();
    response
}
