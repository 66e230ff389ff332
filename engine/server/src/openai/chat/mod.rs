//! `POST /v1/chat/completions`.

mod answer;
mod messages;
mod request;

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};

use self::request::ChatRequest;
use super::endpoint;
use crate::http::{ApiError, RequestId, ServerState};

pub(crate) async fn chat_completions(
    State(server): State<Arc<ServerState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    endpoint::answer::<ChatRequest>(server, id, request).await
}
