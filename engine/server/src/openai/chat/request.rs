//! What a chat's client asked for. After [`ChatRequest::prepare`] only a valid request exists.

use std::sync::Arc;

use serde_json::{Map, Value, value::RawValue};

use super::{answer::ChatAnswer, messages};
use crate::{
    http::{ApiError, ServerState},
    model::ServedModel,
    openai::{
        common, endpoint::Endpoint, fields::Fields, generation::Style, prompt, prompt::PreparedPrompt,
        sampling::Sampling, start::Wanted, usage::Streaming,
    },
};

/// A checked request with its rendered and tokenised prompt.
#[derive(Debug)]
pub(super) struct ChatRequest {
    model: String,
    pub(super) prompt: PreparedPrompt,
    pub(super) sampling: Sampling,
    max_tokens: u32,
    /// Alternatives per token, if log-probabilities are wanted.
    pub(super) logprobs: Option<u32>,
    /// Alternatives per prompt token, if wanted.
    pub(super) prompt_logprobs: Option<u32>,
    streaming: Streaming,
    cache_salt: Option<Arc<str>>,
    pub(super) return_tokens_as_token_ids: bool,
    pub(super) return_token_ids: bool,
}

impl Endpoint for ChatRequest {
    type Answer = ChatAnswer;
    const ID_PREFIX: &'static str = "chatcmpl";

    fn prepare(body: &[u8], server: &ServerState, model: &ServedModel) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body)?;
        let name = common::take_model_name(&mut fields, server)?;
        let sampling = Sampling::take(&mut fields, &model.defaults, model.vocabulary())?;
        let streaming = Streaming::take(&mut fields)?;
        let cache_salt = common::take_cache_salt(&mut fields)?;
        let logprobs = logprobs(&mut fields, server)?;
        let prompt_logprobs = common::take_prompt_logprobs(&mut fields, server, streaming)?;
        // The newer name wins, as in vLLM.
        let newer = fields.take("max_completion_tokens")?;
        let asked = newer.or(sampling.max_tokens);
        if asked == Some(0) {
            let field = if newer.is_some() { "max_completion_tokens" } else { "max_tokens" };
            return Err(ApiError::invalid(field, format!("{field} must be at least 1, got 0.")));
        }
        let return_tokens_as_token_ids = fields.take("return_tokens_as_token_ids")?.unwrap_or(false);
        let return_token_ids = fields.take("return_token_ids")?.unwrap_or(false);
        let unrendered = Unrendered::take(&mut fields)?;
        fields.finish()?;
        let prompt = unrendered.render(model)?;
        let room = model.check_prompt_len(prompt.token_ids.len(), asked)?;
        let default = model.defaults.max_new_tokens.unwrap_or(room).clamp(1, room);
        let max_tokens = asked.unwrap_or(default);
        sampling.check_min_tokens(max_tokens)?;
        Ok(Self {
            model: name,
            prompt,
            sampling,
            max_tokens,
            logprobs,
            prompt_logprobs,
            streaming,
            cache_salt,
            return_tokens_as_token_ids,
            return_token_ids,
        })
    }

    fn wanted(&self, model: &ServedModel) -> Wanted<'_> {
        Wanted {
            prompts: std::slice::from_ref(&self.prompt),
            sampling: &self.sampling,
            num_samples: self.sampling.n,
            max_tokens: std::slice::from_ref(&self.max_tokens),
            logprobs: self.logprobs,
            cache_salt: self.cache_salt.as_ref(),
            prompt_logprobs: self.prompt_logprobs,
            style: Style::new(&model.text.tokenizer, &self.sampling)
                .token_by_token(self.logprobs.is_some() || self.return_token_ids),
        }
    }

    fn object(&self) -> &'static str {
        if self.streaming.on { "chat.completion.chunk" } else { "chat.completion" }
    }

    fn model(&self) -> &str {
        &self.model
    }

    fn streaming(&self) -> Streaming {
        self.streaming
    }

    fn into_answer(self, model: &ServedModel) -> ChatAnswer {
        ChatAnswer::new(self, model)
    }
}

/// `logprobs: true` alone asks for the chosen tokens' own.
fn logprobs(fields: &mut Fields<'_>, server: &ServerState) -> Result<Option<u32>, ApiError> {
    let on = fields.take("logprobs")?.unwrap_or(false);
    let top = fields.take::<i64>("top_logprobs")?;
    if !on && top.is_some_and(|top| top != 0) {
        let message = "when using `top_logprobs`, `logprobs` must be set to true.";
        return Err(ApiError::invalid("top_logprobs", message));
    }
    if !on {
        return Ok(None);
    }
    common::check_logprobs("top_logprobs", top.unwrap_or(0), server).map(Some)
}

/// What becomes the prompt.
struct Unrendered<'a> {
    messages: Option<&'a RawValue>,
    add_generation_prompt: bool,
    extra: Map<String, Value>,
    add_special_tokens: bool,
}

impl<'a> Unrendered<'a> {
    fn take(fields: &mut Fields<'a>) -> Result<Self, ApiError> {
        Ok(Self {
            messages: fields.take("messages")?,
            add_generation_prompt: fields.take("add_generation_prompt")?.unwrap_or(true),
            extra: fields.take_free_form("chat_template_kwargs")?.unwrap_or_default(),
            // A template writes the special tokens itself.
            add_special_tokens: fields.take("add_special_tokens")?.unwrap_or(false),
        })
    }

    fn render(self, model: &ServedModel) -> Result<PreparedPrompt, ApiError> {
        let Some(raw) = self.messages else {
            return Err(ApiError::invalid("messages", "messages: this field is needed"));
        };
        let messages = messages::read(raw)?;
        let template = &model.text.chat_template;
        let text = template.render(&messages, None, self.add_generation_prompt, &self.extra)?;
        let token_ids = model.tokenise(&text, self.add_special_tokens)?;
        if token_ids.is_empty() {
            return Err(prompt::empty());
        }
        Ok(PreparedPrompt { token_ids: token_ids.into(), echo: String::new() })
    }
}
