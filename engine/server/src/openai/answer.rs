//! An answer under construction, as a stream of events or as a whole.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use serde::Serialize;

use super::{
    generation::Piece,
    logprobs::PromptLogprobs,
    usage::{Streaming, Usage},
};
use crate::http::{ApiError, sse};

/// Makes the answer of one endpoint out of pieces.
pub(super) trait Answer: Send + 'static {
    /// A choice, whole or in part.
    type Choice: Serialize + Send;

    /// The events that a piece becomes, as choices.
    fn parts(&mut self, piece: Piece) -> Vec<Self::Choice>;
    /// Adds a piece to the whole answer.
    fn add(&mut self, piece: Piece);
    /// The whole answer.
    fn whole(self) -> Whole<Self::Choice>;
}

/// A whole answer.
pub(super) struct Whole<C> {
    /// In order.
    pub(super) choices: Vec<C>,
    /// The prompt's, where the answer as a whole has them.
    pub(super) prompt_logprobs: Option<PromptLogprobs>,
}

/// What every event and every answer of a request begins with.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Head {
    pub(super) id: String,
    pub(super) object: &'static str,
    created: u64,
    model: Arc<str>,
}

#[derive(Serialize)]
struct Page<'a, C> {
    #[serde(flatten)]
    head: &'a Head,
    choices: &'a [C],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<PromptLogprobs>,
}

impl Head {
    pub(super) fn new(id: String, object: &'static str, model: &str) -> Self {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { id, object, created, model: model.into() }
    }
}

/// The response of a request whose choices are under way.
///
/// # Errors
/// A failure before the answer is complete, unless it streams: then the error becomes an event.
pub(super) async fn respond<A: Answer>(
    pieces: impl Stream<Item = Result<Piece, ApiError>> + Send + Unpin + 'static,
    answer: A,
    head: Head,
    usage: Usage,
    streaming: Streaming,
) -> Result<Response, ApiError> {
    if streaming.on {
        return Ok(sse::response(events(pieces, answer, head, usage, streaming)));
    }
    let page = collect(pieces, answer, &head, usage).await?;
    Ok(page.into_response())
}

async fn collect<A: Answer>(
    mut pieces: impl Stream<Item = Result<Piece, ApiError>> + Send + Unpin,
    mut answer: A,
    head: &Head,
    mut usage: Usage,
) -> Result<Json<serde_json::Value>, ApiError> {
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        usage.add(&piece);
        answer.add(piece);
    }
    let Whole { choices, prompt_logprobs } = answer.whole();
    let page = Page { head, choices: &choices, usage: Some(usage), prompt_logprobs };
    Ok(Json(serde_json::to_value(page).expect("our own types serialise")))
}

fn events<A: Answer>(
    pieces: impl Stream<Item = Result<Piece, ApiError>> + Send + 'static,
    mut answer: A,
    head: Head,
    mut usage: Usage,
    streaming: Streaming,
) -> impl Stream<Item = Result<Bytes, ApiError>> + Send + 'static {
    let mut failed = false;
    // `None` stands for the end, where the usage is told.
    pieces.map(Some).chain(stream::once(async { None })).flat_map(move |item| {
        let frame = |choices: &[A::Choice], usage| {
            sse::event(&Page { head: &head, choices, usage, prompt_logprobs: None })
        };
        let frames = match item {
            Some(Ok(piece)) => {
                usage.add(&piece);
                let usage = streaming.continuous_usage.then_some(usage);
                answer.parts(piece).iter().map(|part| Ok(frame(std::slice::from_ref(part), usage))).collect()
            }
            Some(Err(error)) => {
                failed = true;
                vec![Err(error)]
            }
            None if streaming.include_usage && !failed => vec![Ok(frame(&[], Some(usage)))],
            None => vec![],
        };
        stream::iter(frames)
    })
}
