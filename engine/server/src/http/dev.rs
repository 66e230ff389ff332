//! Endpoints for tests and development; served only where the settings say so, and to those with a key.

use std::sync::Arc;

use axum::extract::{RawQuery, State};

use super::{ApiError, state::ServerState};

/// `POST /reset_prefix_cache`, as vLLM: an empty 200. No request that is sent after the answer finds what was computed
/// before it; sequences that run go on.
///
/// # Errors
/// 503 while there is no engine; 400 for vLLM's options, of which none is honoured.
pub(super) async fn reset_prefix_cache(
    State(server): State<Arc<ServerState>>,
    RawQuery(query): RawQuery,
) -> Result<(), ApiError> {
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        let name = query.split(['=', '&']).next().unwrap_or_default();
        let shown: String = name.chars().take(64).collect();
        return Err(ApiError::invalid(shown.clone(), format!("`{shown}` is not supported; remove it")));
    }
    server.engine()?.engine.reset_prefix_cache();
    Ok(())
}
