//! From a checked request to choices under way, and to one stream of their pieces.

use std::{sync::Arc, time::Instant};

use futures::{StreamExt, stream, stream::BoxStream};
use regatta_core::sampling::SamplingParams;

use super::{
    best_of,
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
    /// Sequences for each prompt; beyond `n` only the best are answered.
    pub(super) num_samples: u32,
    /// Most tokens for each prompt's choices.
    pub(super) max_tokens: &'a [u32],
    pub(super) logprobs: Option<u32>,
    pub(super) prompt_logprobs: Option<u32>,
    pub(super) cache_salt: Option<&'a Arc<str>>,
    pub(super) style: Style,
}

/// Who asks, and since when.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) id: RequestId,
    pub(super) arrival: Instant,
}

/// Submits all prompts, or none.
///
/// # Errors
/// The engine's refusal.
pub(super) fn submit(
    server: &ServerState,
    model: &ServedModel,
    asker: &Asker,
    in_flight: &mut InFlight,
    wanted: Wanted<'_>,
) -> Result<Vec<Choice>, ApiError> {
    let num_choices = wanted.prompts.len() * wanted.num_samples as usize;
    server.check_choices(num_choices)?;
    let style = Arc::new(wanted.style);
    let eos_token_ids = wanted.sampling.eos_token_ids(&model.text.tokenizer);
    let of_prompt = |(prompt, &max_tokens): (&PreparedPrompt, &u32)| GenerateRequest {
        request_id: asker.id.0.clone(),
        prompt: Arc::clone(&prompt.token_ids),
        n: wanted.num_samples,
        beams: wanted.sampling.beams,
        priority: wanted.sampling.priority,
        cache_salt: wanted.cache_salt.cloned(),
        sampling: SamplingParams {
            logprobs: wanted.logprobs,
            logprobs_mode: server.logprobs_mode,
            prompt_logprobs: wanted.prompt_logprobs,
            ..wanted.sampling.params(max_tokens, eos_token_ids, server.next_seed())
        },
    };
    let requests: Vec<GenerateRequest> =
        wanted.prompts.iter().zip(wanted.max_tokens).map(of_prompt).collect();
    // What can never be served is said before there is no room.
    let checked = model.engine.check(&requests)?;
    server.admit_choices(in_flight, num_choices)?;
    let streams = model.engine.start(checked)?;
    let choice = |(index, events)| {
        let clock = ChoiceClock::new(Arc::clone(&server.metrics.requests), asker.arrival);
        Choice::new(index, events, &style, clock)
    };
    Ok((0..).zip(streams).map(choice).collect())
}

/// All pieces of all choices as they come; with more samples than `n`, of the best ones once all have ended. Ends with
/// the first error, which cancels the other choices; `in_flight` is held until then.
pub(super) fn pieces(
    choices: Vec<Choice>,
    in_flight: InFlight,
    num_samples: u32,
    n: u32,
) -> BoxStream<'static, Result<Piece, ApiError>> {
    let merged = stream::select_all(choices.into_iter().map(|choice| choice.into_pieces().boxed()));
    let merged = if num_samples > n {
        let selected = best_of::select(merged, num_samples, n);
        let pieces = |selected: Result<Vec<Piece>, ApiError>| match selected {
            Ok(pieces) => pieces.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        };
        stream::once(selected).map(pieces).flat_map(stream::iter).boxed()
    } else {
        merged.boxed()
    };
    stream::unfold(Some((merged, in_flight)), |running| async move {
        let (mut merged, in_flight) = running?;
        let piece = merged.next().await?;
        let running = piece.is_ok().then_some((merged, in_flight));
        Some((piece, running))
    })
    .boxed()
}
