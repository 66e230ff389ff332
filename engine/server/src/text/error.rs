//! What can go wrong between text and tokens.

use regatta_runner::formats::FormatError;

/// An error of tokenizer or chat template. [`Self::is_request_fault`] tells whose fault it is.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// A file of the model could not be read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A file of the model, or its GGUF metadata, does not hold what it must.
    #[error("{place}: {reason}")]
    Invalid {
        /// The file or metadata key.
        place: String,
        /// What is wrong with it and what would be right.
        reason: String,
    },
    /// A tokenizer kind that is not implemented.
    #[error("{what} `{name}` is not supported; supported: {supported}")]
    Unsupported {
        /// What kind of thing, e.g. `tokenizer.ggml.pre`.
        what: &'static str,
        /// Its name in the model.
        name: String,
        /// The names that work.
        supported: &'static str,
    },
    /// The text cannot fit the context, whatever its tokens are.
    #[error("the text has {num_bytes} bytes, more than {max_model_len} tokens can hold; shorten it")]
    InputTooLong {
        /// Length of the text.
        num_bytes: usize,
        /// The model's context in tokens.
        max_model_len: usize,
    },
    /// The tokenizer refused the text.
    #[error("the text cannot be tokenised: {0}")]
    Encode(String),
    /// The model has no chat template.
    #[error(
        "the model has no chat template; send a formatted prompt to /v1/completions, or put a chat_template.jinja beside \
         the model's tokenizer.json"
    )]
    NoChatTemplate,
    /// The chat template failed on these messages.
    #[error("the chat template failed: {0}")]
    Template(String),
}

impl TextError {
    /// Whether the request caused it, which then gets a 4xx; everything else is found when the model is loaded.
    pub fn is_request_fault(&self) -> bool {
        matches!(self, Self::InputTooLong { .. } | Self::Encode(_) | Self::NoChatTemplate | Self::Template(_))
    }

    pub(super) fn invalid(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { place: place.into(), reason: reason.into() }
    }
}
