//! What a completion's client asked for. After [`CompletionRequest::prepare`] only a valid request exists.

use std::sync::Arc;

use super::answer::CompletionAnswer;
use crate::{
    http::{ApiError, ServerState},
    model::ServedModel,
    openai::{
        common,
        endpoint::Endpoint,
        fields::Fields,
        generation::Style,
        numbers::whole,
        prompt::{self, PreparedPrompt, Prompts},
        sampling::{MAX_N, Sampling},
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
    model: String,
    pub(super) prompts: Vec<PreparedPrompt>,
    pub(super) sampling: Sampling,
    /// Sequences for each prompt, of which the best `n` are answered.
    best_of: u32,
    /// Most tokens, for each prompt.
    max_tokens: Vec<u32>,
    pub(super) logprobs: Option<u32>,
    /// Alternatives per prompt token, if wanted.
    pub(super) prompt_logprobs: Option<u32>,
    pub(super) echo: bool,
    streaming: Streaming,
    cache_salt: Option<Arc<str>>,
    pub(super) return_tokens_as_token_ids: bool,
    pub(super) return_token_ids: bool,
}

impl Endpoint for CompletionRequest {
    type Answer = CompletionAnswer;
    const ID_PREFIX: &'static str = "cmpl";

    fn prepare(body: &[u8], server: &ServerState, model: &ServedModel) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body)?;
        let name = common::take_model_name(&mut fields, server)?;
        let sampling = Sampling::take(&mut fields, &model.defaults, model.vocabulary())?;
        let streaming = Streaming::take(&mut fields)?;
        let cache_salt = common::take_cache_salt(&mut fields)?;
        let best_of = take_best_of(&mut fields, &sampling, streaming)?;
        let prompt_logprobs = common::take_prompt_logprobs(&mut fields, server, streaming)?;
        let logprobs = fields.take::<i64>("logprobs")?;
        let logprobs = logprobs.map(|n| common::check_logprobs("logprobs", n, server)).transpose()?;
        let echo = fields.take("echo")?.unwrap_or(false);
        let return_tokens_as_token_ids = fields.take("return_tokens_as_token_ids")?.unwrap_or(false);
        let return_token_ids = fields.take("return_token_ids")?.unwrap_or(false);
        let add_special_tokens = fields.take("add_special_tokens")?.unwrap_or(true);
        let prompts = fields.take("prompt")?;
        // Before what is missing: it may only be misspelt.
        fields.finish()?;
        let Prompts(prompts) = prompts.ok_or_else(prompt::empty)?;
        if echo && logprobs.is_some() && sampling.beams.is_some() {
            let reason = "echo has no log-probabilities with use_beam_search; remove one of them.";
            return Err(ApiError::invalid("echo", reason));
        }
        if sampling.max_tokens == Some(0) && !echo {
            return Err(ApiError::invalid("max_tokens", "max_tokens must be at least 1, got 0."));
        }
        let num_choices = prompts.len() * best_of as usize;
        if num_choices > MAX_CHOICES {
            let reason = format!(
                "{num_choices} choices (prompts times n or best_of) are more than {MAX_CHOICES}; send several \
                 requests."
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
            .collect::<Result<Vec<u32>, ApiError>>()?;
        max_tokens.iter().try_for_each(|&max_tokens| sampling.check_min_tokens(max_tokens))?;
        Ok(Self {
            model: name,
            prompts,
            sampling,
            best_of,
            max_tokens,
            logprobs,
            prompt_logprobs,
            echo,
            streaming,
            cache_salt,
            return_tokens_as_token_ids,
            return_token_ids,
        })
    }

    fn wanted(&self, model: &ServedModel) -> Wanted<'_> {
        Wanted {
            prompts: &self.prompts,
            sampling: &self.sampling,
            num_samples: self.best_of,
            max_tokens: &self.max_tokens,
            logprobs: self.logprobs.or((self.best_of > self.sampling.n).then_some(0)),
            cache_salt: self.cache_salt.as_ref(),
            prompt_logprobs: self.logprobs.filter(|_| self.echo).max(self.prompt_logprobs),
            style: Style::new(&model.text.tokenizer, &self.sampling)
                .token_by_token(self.logprobs.is_some() || self.return_token_ids)
                // The answer is the prompt alone.
                .prompt_only(self.sampling.max_tokens == Some(0)),
        }
    }

    fn object(&self) -> &'static str {
        "text_completion"
    }

    fn model(&self) -> &str {
        &self.model
    }

    fn streaming(&self) -> Streaming {
        self.streaming
    }

    fn into_answer(self, model: &ServedModel) -> CompletionAnswer {
        CompletionAnswer::new(self, model)
    }
}

/// Takes `best_of` out of a request: at least `n`, which is also what it is when absent.
fn take_best_of(fields: &mut Fields<'_>, sampling: &Sampling, streaming: Streaming) -> Result<u32, ApiError> {
    let best_of = fields.take("best_of")?.unwrap_or(sampling.n);
    let max = if sampling.beams.is_some() { sampling.n } else { MAX_N };
    whole("best_of", best_of, sampling.n, max)?;
    sampling.check_greedy("best_of", best_of)?;
    if best_of > sampling.n && streaming.on {
        let reason = "best_of beyond n cannot be streamed: the best are known when all have ended.";
        return Err(ApiError::invalid("best_of", reason));
    }
    Ok(best_of)
}
