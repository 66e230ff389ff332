//! `POST /v1/completions`.

mod answer;
mod request;

use std::{sync::Arc, time::Instant};

use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};

use self::{answer::CompletionAnswer, request::CompletionRequest};
use super::{
    answer::{Head, respond},
    start::{Asker, pieces, submit},
    usage::Usage,
};
use crate::http::{ApiError, RequestId, ServerState, refuse};

pub(crate) async fn completions(
    State(server): State<Arc<ServerState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    let asker = Asker { id, arrival: Instant::now() };
    let (mut in_flight, model) = match server.admit() {
        Ok(admitted) => admitted,
        Err(error) => return Err(refuse(request, error).await),
    };
    let body = server.read_body(request).await?;
    let prepare = {
        let (server, model) = (Arc::clone(&server), Arc::clone(&model));
        move || CompletionRequest::prepare(&body.bytes, &server, &model)
    };
    let request = server.off_thread(prepare).await?;
    let choices = submit(&server, &model, &asker, &mut in_flight, request.wanted(&model))?;
    let head = Head::new(format!("cmpl-{}", asker.id.0), "text_completion", &request.model);
    let usage = Usage::of_prompts(request.prompts.iter().map(|prompt| prompt.token_ids.len()).sum());
    let streaming = request.streaming;
    let answer = CompletionAnswer::new(request, &model);
    respond(pieces(choices, in_flight), answer, head, usage, streaming).await
}
