//! One choice from the engine's tokens to text: detokenised, ended by stop strings, timed.

use std::sync::Arc;

use futures::Stream;
use regatta_core::plan::PositionLogprobs;
use serde::Serialize;

use super::sampling::Sampling;
use crate::{
    engine::{ChoiceStream, Event, FinishReason},
    http::ApiError,
    metrics::{ChoiceClock, Ended},
    text::{Detokenizer, DetokenizerOptions, Tokenizer},
};

/// Part of a choice's answer: what may be sent at once.
#[derive(Debug, Default)]
pub(super) struct Piece {
    /// Place among all choices of the request.
    pub(super) index: u32,
    /// The prompt's log-probabilities from its second token on; with the first piece only, if asked for.
    pub(super) prompt_logprobs: Option<Vec<PositionLogprobs>>,
    /// Prompt tokens that came from the prefix cache; with the first piece only.
    pub(super) num_cached_tokens: u32,
    /// Text to add.
    pub(super) text: String,
    /// Tokens that came since the last piece. Their text may follow later.
    pub(super) tokens: Vec<GeneratedToken>,
    /// Set on the last piece.
    pub(super) finish: Option<Finish>,
}

/// A generated token.
#[derive(Debug)]
pub(super) struct GeneratedToken {
    pub(super) token_id: u32,
    pub(super) logprobs: Option<PositionLogprobs>,
}

/// Why a choice ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finish {
    pub(super) reason: &'static str,
    pub(super) stop_reason: Option<StopReason>,
}

/// What stopped it, other than the model's own end of sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum StopReason {
    Token(u32),
    Text(String),
}

impl Finish {
    fn new(reason: &'static str) -> Self {
        Self { reason, stop_reason: None }
    }
}

/// What is the same for all choices of a request.
#[derive(Debug)]
pub(super) struct Style {
    tokenizer: Tokenizer,
    /// The model's ends of sequence, unless the request ignores them.
    eos_token_ids: Vec<u32>,
    /// The request's own stop tokens.
    stop_token_ids: Vec<u32>,
    options: DetokenizerOptions,
    /// Whether every token makes a piece, even one without text.
    token_by_token: bool,
    /// Whether generated tokens are left out of the answer.
    prompt_only: bool,
}

impl Style {
    pub(super) fn new(tokenizer: &Tokenizer, sampling: &Sampling) -> Self {
        let options = DetokenizerOptions {
            stop: sampling.stop.clone(),
            include_stop_str_in_output: sampling.include_stop_str_in_output,
            min_tokens: sampling.min_tokens(),
            skip_special_tokens: sampling.skip_special_tokens,
        };
        Self {
            tokenizer: tokenizer.clone(),
            eos_token_ids: sampling.eos_token_ids(tokenizer).to_vec(),
            stop_token_ids: sampling.stop_token_ids().to_vec(),
            options,
            token_by_token: false,
            prompt_only: false,
        }
    }

    /// Makes every token a piece, for answers that say something about each.
    pub(super) fn token_by_token(self, token_by_token: bool) -> Self {
        Self { token_by_token, ..self }
    }

    /// Leaves generated tokens out, for answers that are about the prompt.
    pub(super) fn prompt_only(self, prompt_only: bool) -> Self {
        Self { prompt_only, ..self }
    }

    fn ends_at(&self, token_id: u32) -> bool {
        self.eos_token_ids.contains(&token_id) || self.stop_token_ids.contains(&token_id)
    }
}

/// A choice under way. Dropping it cancels its sequence.
pub(super) struct Choice {
    index: u32,
    /// Absent once a stop string has ended it.
    events: Option<ChoiceStream>,
    detokenizer: Detokenizer,
    clock: ChoiceClock,
    style: Arc<Style>,
    pending: Piece,
    ended: bool,
}

impl Choice {
    pub(super) fn new(index: u32, events: ChoiceStream, style: &Arc<Style>, clock: ChoiceClock) -> Self {
        let detokenizer = Detokenizer::new(style.tokenizer.clone(), style.options.clone());
        let pending = Piece { index, ..Piece::default() };
        Self {
            index,
            events: Some(events),
            detokenizer,
            clock,
            style: Arc::clone(style),
            pending,
            ended: false,
        }
    }

    /// The pieces, in order; the last one has `finish`, or is an error. With it the choice is dropped, so that a
    /// stop string frees the sequence's blocks at once.
    pub(super) fn into_pieces(self) -> impl Stream<Item = Result<Piece, ApiError>> + Send {
        futures::stream::unfold(Some(self), |choice| async move {
            let mut choice = choice?;
            let piece = choice.next().await?;
            Some((piece, (!choice.ended).then_some(choice)))
        })
    }

    async fn next(&mut self) -> Option<Result<Piece, ApiError>> {
        while !self.ended {
            match self.events.as_mut()?.recv().await? {
                Event::PromptLogprobs(logprobs) => self.pending.prompt_logprobs = Some(logprobs),
                Event::PromptComputed { num_cached_tokens } => {
                    self.pending.num_cached_tokens = num_cached_tokens;
                }
                Event::Token { token_id, logprobs } => self.token(token_id, logprobs),
                Event::Finished { reason, .. } => self.finished(reason),
                Event::Failed { reason } => {
                    self.ended = true;
                    self.clock.end(Ended::error);
                    return Some(Err(ApiError::internal(reason)));
                }
            }
            let worth_sending = !self.pending.text.is_empty() || self.style.token_by_token;
            if self.ended || (worth_sending && !self.pending.tokens.is_empty()) {
                let next = Piece { index: self.index, ..Piece::default() };
                return Some(Ok(std::mem::replace(&mut self.pending, next)));
            }
        }
        None
    }

    fn token(&mut self, token_id: u32, logprobs: Option<PositionLogprobs>) {
        self.clock.token();
        if self.style.prompt_only {
            return;
        }
        self.pending.tokens.push(GeneratedToken { token_id, logprobs });
        if self.style.ends_at(token_id) && !self.style.options.include_stop_str_in_output {
            return;
        }
        let delta = self.detokenizer.push(token_id);
        self.pending.text.push_str(&delta.text);
        if let Some(stop) = delta.stop {
            self.end(Ended::stop, Finish { reason: "stop", stop_reason: Some(StopReason::Text(stop)) });
            if let Some(events) = self.events.take() {
                events.stop();
            }
        }
    }

    fn finished(&mut self, reason: FinishReason) {
        self.pending.text.push_str(&self.detokenizer.finish());
        match reason {
            FinishReason::Stop { .. } if self.style.prompt_only => {
                self.end(Ended::length, Finish::new("length"))
            }
            FinishReason::Stop { token_id } => {
                let named = !self.style.eos_token_ids.contains(&token_id);
                let stop_reason = named.then_some(StopReason::Token(token_id));
                self.end(Ended::stop, Finish { reason: "stop", stop_reason });
            }
            FinishReason::Length => self.end(Ended::length, Finish::new("length")),
            FinishReason::Abort => self.end(Ended::abort, Finish::new("abort")),
        }
    }

    fn end(&mut self, ended: Ended, finish: Finish) {
        self.clock.end(ended);
        self.pending.finish = Some(finish);
        self.ended = true;
    }
}
