//! `POST /v1/completions`.

mod answer;
mod request;

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};

use self::request::CompletionRequest;
use super::endpoint;
use crate::http::{ApiError, RequestId, ServerState};

pub(crate) async fn completions(
    State(server): State<Arc<ServerState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    endpoint::answer::<CompletionRequest>(server, id, request).await
}
