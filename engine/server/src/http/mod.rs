//! The HTTP surface: vLLM's endpoints, errors and streams over one shared [`ServerState`].

mod auth;
mod body;
mod dev;
mod error;
mod health;
mod internal;
mod listen;
mod observe;
mod request_id;
pub(crate) mod sse;
mod state;

use std::sync::Arc;

use axum::{
    Router,
    middleware::{from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tower_http::catch_panic::CatchPanicLayer;

pub(crate) use body::refuse;
pub use error::{ApiError, DRAINING_HEADER};
pub use listen::{ListenError, bind, serve};
pub(crate) use request_id::RequestId;
pub(crate) use state::InFlight;
pub use state::ServerState;

use crate::{args::settings::ApiKeys, openai};

/// Empties the prefix cache.
const RESET_PREFIX_CACHE: &str = "/reset_prefix_cache";

/// The API's router.
pub fn router(server: &Arc<ServerState>, keys: &ApiKeys) -> Router {
    let dev_endpoints = match server.dev_endpoints {
        true => Router::new().route(RESET_PREFIX_CACHE, post(dev::reset_prefix_cache)),
        false => Router::new(),
    };
    dev_endpoints
        .route("/v1/models", get(openai::models))
        .route("/v1/models/{*name}", get(openai::model))
        .route("/v1/completions", post(openai::completions))
        .route("/v1/chat/completions", post(openai::chat_completions))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/health", get(health::health))
        .route("/ping", get(health::health).post(health::health))
        .route("/version", get(health::version))
        .route("/metrics", get(health::metrics))
        .fallback(
            |request: axum::extract::Request| async move { ApiError::unknown_path(request.uri().path()) },
        )
        .method_not_allowed_fallback(|| async { ApiError::method_not_allowed() })
        .with_state(Arc::clone(server))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(auth::KeyCheck::new(keys), auth::check))
        .layer(from_fn_with_state(Arc::clone(server), observe::count))
        .layer(from_fn(request_id::attach))
}

/// The router of the second, read-only port.
pub fn internal_router(server: &Arc<ServerState>) -> Router {
    internal::router(Arc::clone(server))
}

/// A handler's panic is that request's 500, and nobody else's.
fn panicked(panic: Box<dyn std::any::Any + Send>) -> Response {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text.unwrap_or("of unknown cause"), "a request's handler panicked");
    ApiError::internal("the request could not be processed; the engine's log says why").into_response()
}
