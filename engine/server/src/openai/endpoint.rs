//! What the two endpoints do alike: admit, read, prepare, submit, answer.

use std::{sync::Arc, time::Instant};

use axum::{extract::Request, response::Response};

use super::{
    answer::{Answer, Head, respond},
    start::{Asker, Wanted, pieces, submit},
    usage::{Streaming, Usage},
};
use crate::{
    http::{ApiError, RequestId, ServerState, refuse},
    model::ServedModel,
};

/// A checked request to one endpoint.
pub(super) trait Endpoint: Send + Sized + 'static {
    /// What makes its answer.
    type Answer: Answer;
    /// What the answer's id begins with.
    const ID_PREFIX: &'static str;

    /// Reads and checks a body.
    ///
    /// # Errors
    /// 400 or 404 with the field's name.
    fn prepare(body: &[u8], server: &ServerState, model: &ServedModel) -> Result<Self, ApiError>;
    /// What the engine is asked for.
    fn wanted(&self, model: &ServedModel) -> Wanted<'_>;
    /// The answer's kind.
    fn object(&self) -> &'static str;
    /// The model's name as the request has it.
    fn model(&self) -> &str;
    fn streaming(&self) -> Streaming;
    fn into_answer(self, model: &ServedModel) -> Self::Answer;
}

/// Answers a request.
///
/// # Errors
/// Its refusal, or a failure before the answer has begun.
pub(super) async fn answer<E: Endpoint>(
    server: Arc<ServerState>,
    id: RequestId,
    request: Request,
) -> Result<Response, ApiError> {
    let asker = Asker { id, arrival: Instant::now() };
    let (mut in_flight, model) = match server.admit() {
        Ok(admitted) => admitted,
        Err(error) => return Err(refuse(request, error).await),
    };
    let body = server.read_body(request).await?;
    server.admit_body(&mut in_flight)?;
    let prepare = {
        let (server, model) = (Arc::clone(&server), Arc::clone(&model));
        move || E::prepare(&body.bytes, &server, &model)
    };
    let request = server.off_thread(prepare).await?;
    let wanted = request.wanted(&model);
    let num_prompt_tokens = wanted.prompts.iter().map(|prompt| prompt.token_ids.len()).sum();
    let usage = Usage::of_prompts(num_prompt_tokens, server.prompt_tokens_details);
    let (n, num_samples) = (wanted.sampling.n, wanted.num_samples);
    let choices = submit(&server, &model, &asker, &mut in_flight, wanted)?;
    let head = Head::new(format!("{}-{}", E::ID_PREFIX, asker.id.0), request.object(), request.model());
    let (streaming, answer) = (request.streaming(), request.into_answer(&model));
    respond(pieces(choices, in_flight, num_samples, n), answer, head, usage, streaming).await
}
