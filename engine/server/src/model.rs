//! The loaded model as requests see it.

use crate::{
    engine::{EngineHandle, SubmitError},
    http::ApiError,
    openai::{GenerationDefaults, Vocabulary},
    text::ModelText,
};

/// A model that runs.
#[derive(Debug)]
pub struct ServedModel {
    /// The engine thread's door.
    pub engine: EngineHandle,
    /// Tokenizer and chat template.
    pub text: ModelText,
    /// Rows of the embedding: token ids are below.
    pub vocab_size: usize,
    /// Where the model came from, for the model list.
    pub root: String,
    /// The model's own sampling defaults.
    pub defaults: GenerationDefaults,
    /// Instruction set in use, for the state page.
    pub isa: String,
}

impl ServedModel {
    /// Most tokens in a sequence, prompt and answer together.
    pub fn max_model_len(&self) -> u32 {
        self.engine.limits().max_model_len
    }

    /// The tokens that requests may name.
    pub(crate) fn vocabulary(&self) -> Vocabulary<'_> {
        Vocabulary { tokenizer: &self.text.tokenizer, size: self.vocab_size }
    }

    /// Text to token ids, refused before any work when it cannot fit.
    ///
    /// # Errors
    /// 400 when it does not fit the model's length.
    pub(crate) fn tokenise(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, ApiError> {
        let tokenizer = &self.text.tokenizer;
        tokenizer.check_length(text, self.max_model_len() as usize)?;
        let ids = tokenizer.encode(text, add_special_tokens)?;
        self.check_prompt_len(ids.len(), None)?;
        Ok(ids)
    }

    /// Holds a prompt's length, and what was asked for beyond it, against the model's length. Returns how many tokens
    /// there is room for.
    ///
    /// # Errors
    /// 400 in vLLM's words.
    pub(crate) fn check_prompt_len(
        &self,
        num_prompt_tokens: usize,
        max_tokens: Option<u32>,
    ) -> Result<u32, ApiError> {
        let max_model_len = self.max_model_len();
        let prompt = u32::try_from(num_prompt_tokens).unwrap_or(u32::MAX);
        let room = max_model_len.saturating_sub(prompt);
        let wanted = max_tokens.unwrap_or(1);
        if wanted <= room {
            return Ok(room);
        }
        let asked = max_tokens
            .map_or_else(String::new, |wanted| format!("you requested {wanted} output tokens and "));
        let message = format!(
            "This model's maximum context length is {max_model_len} tokens. However, {asked}your prompt contains \
             {num_prompt_tokens} input tokens. Please reduce the length of the input prompt or the number of requested \
             output tokens."
        );
        Err(ApiError::invalid("input_tokens", message))
    }

    /// Whether the engine thread has ended without being told to.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.engine.snapshot().state, crate::engine::EngineState::Stopped)
    }
}

/// What a request gets once the engine thread has ended.
pub(crate) fn dead() -> ApiError {
    ApiError::from(SubmitError::Dead)
}
