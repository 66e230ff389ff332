//! What happens to a sequence, as told to whoever asked for it.

use serde::{Deserialize, Serialize};

use crate::plan::PositionLogprobs;

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// It produced one of its stop tokens, which is the last token it reported.
    Stop {
        /// The stop token.
        token_id: u32,
    },
    /// It reached `max_tokens` or the model's length.
    Length,
    /// It was cancelled, or the engine shut down.
    Abort,
}

/// One thing that happened to a sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// Log-probabilities of the prompt from its second token on; once, before the first token.
    PromptLogprobs(Vec<PositionLogprobs>),
    /// The whole prompt has passed; once, right before the first token.
    PromptComputed {
        /// Prompt tokens whose KV came from the prefix cache.
        num_cached_tokens: u32,
    },
    /// A new token.
    Token {
        /// The token.
        token_id: u32,
        /// Its log-probabilities, when asked for.
        logprobs: Option<PositionLogprobs>,
    },
    /// The end. Terminal.
    Finished {
        /// Why.
        reason: FinishReason,
        /// Prompt length in tokens.
        num_prompt_tokens: u32,
        /// Tokens generated, a stop token included.
        num_generated_tokens: u32,
        /// Prompt tokens whose KV came from the prefix cache.
        num_cached_tokens: u32,
    },
    /// The sequence cannot go on through no fault of its own. Terminal.
    Failed {
        /// The cause, in lower case.
        reason: String,
    },
}

impl Event {
    /// Whether nothing follows this event.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Finished { .. } | Self::Failed { .. })
    }
}
