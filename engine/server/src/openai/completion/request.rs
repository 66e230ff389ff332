//! What a completion's client asked for. After [`CompletionRequest::prepare`] only a valid request exists.

use crate::{
    http::{ApiError, ServerState},
    model::ServedModel,
    openai::{
        common,
        fields::Fields,
        generation::Style,
        prompt::{self, PreparedPrompt, Prompts},
        sampling::Sampling,
        start::Wanted,
        usage::Streaming,
    },
};

/// Most tokens when a request does not say.
const DEFAULT_MAX_TOKENS: u32 = 16;

/// Most choices of one request; each is a sequence of its own in the queue that all clients share.
const MAX_CHOICES: usize = 1024;

/// A checked request with tokenised prompts.
#[derive(Debug)]
pub(super) struct CompletionRequest {
    pub(super) model: String,
    pub(super) prompts: Vec<PreparedPrompt>,
    pub(super) sampling: Sampling,
    /// Most tokens, for each prompt.
    max_tokens: Vec<u32>,
    pub(super) logprobs: Option<u32>,
    pub(super) echo: bool,
    pub(super) streaming: Streaming,
    pub(super) return_tokens_as_token_ids: bool,
    pub(super) return_token_ids: bool,
}

impl CompletionRequest {
    /// # Errors
    /// 400 or 404 with the field's name.
    pub(super) fn prepare(body: &[u8], server: &ServerState, model: &ServedModel) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body)?;
        let name = common::take_model_name(&mut fields, server)?;
        let sampling = Sampling::take(&mut fields, &model.defaults, model.vocab_size)?;
        let streaming = Streaming::take(&mut fields)?;
        let logprobs = fields.take::<i64>("logprobs")?;
        let logprobs = logprobs.map(|n| common::check_logprobs("logprobs", n, server)).transpose()?;
        let echo = fields.take("echo")?.unwrap_or(false);
        let return_tokens_as_token_ids = fields.take("return_tokens_as_token_ids")?.unwrap_or(false);
        let return_token_ids = fields.take("return_token_ids")?.unwrap_or(false);
        let add_special_tokens = fields.take("add_special_tokens")?.unwrap_or(true);
        let Prompts(prompts) = fields.take("prompt")?.ok_or_else(prompt::empty)?;
        fields.finish()?;
        if sampling.max_tokens == Some(0) && !echo {
            return Err(ApiError::invalid("max_tokens", "max_tokens must be at least 1, got 0."));
        }
        let num_choices = prompts.len() * sampling.n as usize;
        if num_choices > MAX_CHOICES {
            let reason = format!(
                "{num_choices} choices (prompts times n) are more than {MAX_CHOICES}; send several requests."
            );
            return Err(ApiError::invalid("n", reason));
        }
        if prompts.is_empty() {
            return Err(prompt::empty());
        }
        let prepare =
            |prompt: prompt::Prompt| prompt.prepare(model, add_special_tokens, sampling.skip_special_tokens);
        let prompts = prompts.into_iter().map(prepare).collect::<Result<Vec<_>, _>>()?;
        let max_tokens = prompts
            .iter()
            .map(|prompt| {
                // Scoring a prompt still takes a step, which chooses a token that nobody sees.
                let asked = sampling.max_tokens.map(|max_tokens| max_tokens.max(1));
                let room = model.check_prompt_len(prompt.token_ids.len(), asked)?;
                let default = model.defaults.max_new_tokens.unwrap_or(DEFAULT_MAX_TOKENS).max(1);
                Ok(asked.unwrap_or(default).min(room))
            })
            .collect::<Result<_, ApiError>>()?;
        Ok(Self {
            model: name,
            prompts,
            sampling,
            max_tokens,
            logprobs,
            echo,
            streaming,
            return_tokens_as_token_ids,
            return_token_ids,
        })
    }

    /// Whether the answer is the prompt alone.
    fn prompt_only(&self) -> bool {
        self.sampling.max_tokens == Some(0)
    }

    pub(super) fn wanted(&self, model: &ServedModel) -> Wanted<'_> {
        Wanted {
            prompts: &self.prompts,
            sampling: &self.sampling,
            max_tokens: &self.max_tokens,
            logprobs: self.logprobs,
            prompt_logprobs: self.logprobs.filter(|_| self.echo),
            style: Style::new(&model.text.tokenizer, &self.sampling)
                .token_by_token(self.logprobs.is_some() || self.return_token_ids)
                .prompt_only(self.prompt_only()),
        }
    }
}
