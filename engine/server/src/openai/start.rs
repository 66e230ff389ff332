//! From a checked request to choices under way, and to one stream of their pieces.

use std::{sync::Arc, time::Instant};

use futures::{Stream, StreamExt, stream};
use regatta_core::sampling::SamplingParams;

use super::{
    generation::{Choice, Piece, Style},
    prompt::PreparedPrompt,
    sampling::Sampling,
};
use crate::{
    engine::GenerateRequest,
    http::{ApiError, InFlight, RequestId, ServerState},
    metrics::ChoiceClock,
    model::ServedModel,
};

/// What a request wants of the engine beyond [`Sampling`].
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) prompts: &'a [PreparedPrompt],
    pub(super) sampling: &'a Sampling,
    /// Most tokens for each prompt's choices.
    pub(super) max_tokens: &'a [u32],
    pub(super) logprobs: Option<u32>,
    pub(super) prompt_logprobs: Option<u32>,
    pub(super) style: Style,
}

/// Who asks, and since when.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) id: RequestId,
    pub(super) arrival: Instant,
}

/// Submits every prompt. If one is refused, those before it are cancelled.
///
/// # Errors
/// The engine's refusal.
pub(super) fn submit(
    server: &ServerState,
    model: &ServedModel,
    asker: &Asker,
    wanted: Wanted<'_>,
) -> Result<Vec<Choice>, ApiError> {
    let style = Arc::new(wanted.style);
    let eos_token_ids = wanted.sampling.eos_token_ids(&model.text.tokenizer);
    let mut choices = Vec::new();
    for (prompt, &max_tokens) in wanted.prompts.iter().zip(wanted.max_tokens) {
        let sampling = SamplingParams {
            logprobs: wanted.logprobs,
            prompt_logprobs: wanted.prompt_logprobs,
            ..wanted.sampling.params(max_tokens, eos_token_ids, server.next_seed())
        };
        let streams = model.engine.submit(GenerateRequest {
            request_id: asker.id.0.clone(),
            prompt: Arc::clone(&prompt.token_ids),
            n: wanted.sampling.n,
            sampling,
        })?;
        for events in streams {
            let clock = ChoiceClock::new(Arc::clone(&server.metrics.requests), asker.arrival);
            let index = u32::try_from(choices.len()).expect("prompts and n are bounded");
            choices.push(Choice::new(index, events, &style, clock));
        }
    }
    Ok(choices)
}

/// All pieces of all choices as they come. Ends with the first error, which cancels the other choices; `in_flight` is
/// held until then.
pub(super) fn pieces(
    choices: Vec<Choice>,
    in_flight: InFlight,
) -> impl Stream<Item = Result<Piece, ApiError>> + Send + Unpin {
    let merged = stream::select_all(choices.into_iter().map(|choice| choice.into_pieces().boxed()));
    stream::unfold(Some((merged, in_flight)), |running| async move {
        let (mut merged, in_flight) = running?;
        let piece = merged.next().await?;
        let running = piece.is_ok().then_some((merged, in_flight));
        Some((piece, running))
    })
    .boxed()
}
