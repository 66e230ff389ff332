//! Token counts, and when a stream tells them.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{fields::Fields, generation::Piece};
use crate::http::ApiError;

/// Tokens of a request, over all its prompts and choices; each prompt counts once.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens_details: Option<PromptTokensDetails>,
}

/// Where prompt tokens came from.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct PromptTokensDetails {
    /// From the prefix cache.
    cached_tokens: usize,
}

impl Usage {
    /// Nothing generated yet; `with_details` says whether clients are told how much came from the prefix cache.
    pub(super) fn of_prompts(prompt_tokens: usize, with_details: bool) -> Self {
        let prompt_tokens_details = with_details.then(PromptTokensDetails::default);
        Self { prompt_tokens, completion_tokens: 0, total_tokens: prompt_tokens, prompt_tokens_details }
    }

    pub(super) fn add(&mut self, piece: &Piece) {
        self.completion_tokens += piece.tokens.len();
        self.total_tokens += piece.tokens.len();
        if let Some(details) = &mut self.prompt_tokens_details {
            details.cached_tokens += piece.num_cached_tokens as usize;
        }
    }
}

/// `stream` with its options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Streaming {
    /// Whether the answer is a stream of events.
    pub(super) on: bool,
    /// Whether an event with the usage comes last.
    pub(super) include_usage: bool,
    /// Whether every event carries the usage so far.
    pub(super) continuous_usage: bool,
}

impl Streaming {
    /// # Errors
    /// 400 for options of a stream that was not asked for.
    pub(super) fn take(fields: &mut Fields<'_>) -> Result<Self, ApiError> {
        let on = fields.take("stream")?.unwrap_or(false);
        let Some(options) = fields.take::<&RawValue>("stream_options")? else {
            return Ok(Self { on, ..Self::default() });
        };
        if !on {
            let message = "Stream options can only be defined when `stream=True`.";
            return Err(ApiError::invalid("stream_options", message));
        }
        Self::of(options)
            .map_err(|reason| ApiError::invalid("stream_options", format!("stream_options: {reason}")))
    }

    fn of(options: &RawValue) -> Result<Self, String> {
        let mut options = Fields::within(options)?;
        let include_usage = options.read("include_usage")?.unwrap_or(false);
        let continuous: Option<bool> = options.read("continuous_usage_stats")?;
        options.end()?;
        Ok(Self { on: true, include_usage, continuous_usage: include_usage && continuous.unwrap_or(false) })
    }
}
