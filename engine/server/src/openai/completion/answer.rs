//! A completion's choices.

use std::sync::Arc;

use serde::Serialize;

use super::request::CompletionRequest;
use crate::{
    model::ServedModel,
    openai::{
        answer::{Answer, Whole},
        generation::{Piece, StopReason},
        logprobs::{CompletionLogprobs, PromptLogprobs, TokenNames},
        prompt::PreparedPrompt,
    },
};

/// A choice, whole or the part that one event carries.
#[derive(Debug, Default, Serialize)]
pub(super) struct CompletionChoice {
    index: u32,
    text: String,
    logprobs: Option<CompletionLogprobs>,
    finish_reason: Option<&'static str>,
    stop_reason: Option<StopReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<Arc<[u32]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<PromptLogprobs>,
}

/// Makes choices out of pieces.
pub(super) struct CompletionAnswer {
    request: CompletionRequest,
    names: TokenNames,
    progress: Vec<Progress>,
    choices: Vec<CompletionChoice>,
}

/// How far a choice has come.
#[derive(Clone, Copy, Default)]
struct Progress {
    begun: bool,
    /// Characters of the text so far, for `text_offset`.
    offset: usize,
}

impl CompletionAnswer {
    pub(super) fn new(request: CompletionRequest, model: &ServedModel) -> Self {
        let num_choices = request.prompts.len() * request.sampling.n as usize;
        let names = TokenNames::new(&model.text.tokenizer, request.return_tokens_as_token_ids);
        let choices =
            (0..).take(num_choices).map(|index| CompletionChoice { index, ..Default::default() }).collect();
        Self { request, names, progress: vec![Progress::default(); num_choices], choices }
    }

    fn part(&mut self, piece: Piece) -> CompletionChoice {
        let place = piece.index as usize;
        let prompt = &self.request.prompts[place / self.request.sampling.n as usize];
        let progress = &mut self.progress[place];
        let first = !std::mem::replace(&mut progress.begun, true);
        let mut part = CompletionChoice { index: piece.index, ..Default::default() };
        let num_top = self.request.logprobs.unwrap_or(0);
        part.logprobs = self.request.logprobs.map(|_| CompletionLogprobs::default());
        if let (Some(num_top), Some(positions)) = (self.request.prompt_logprobs, &piece.prompt_logprobs) {
            part.prompt_logprobs = Some(PromptLogprobs::new(&self.names, positions, num_top));
        }
        if first && self.request.echo {
            part.text.push_str(&prompt.echo);
            if let Some(logprobs) = &mut part.logprobs {
                echo_logprobs(logprobs, &self.names, prompt, &piece, num_top, &mut progress.offset);
            }
        }
        part.text.push_str(&piece.text);
        if let Some(logprobs) = &mut part.logprobs {
            for position in piece.tokens.iter().filter_map(|token| token.logprobs.as_ref()) {
                logprobs.push(&self.names, position, num_top, &mut progress.offset);
            }
        }
        if self.request.return_token_ids {
            part.prompt_token_ids = first.then(|| Arc::clone(&prompt.token_ids));
            part.token_ids = Some(piece.tokens.iter().map(|token| token.token_id).collect());
        }
        if let Some(finish) = piece.finish {
            part.finish_reason = Some(finish.reason);
            part.stop_reason = finish.stop_reason;
        }
        part
    }
}

/// The prompt's tokens; the first has no log-probability, since nothing comes before it.
fn echo_logprobs(
    logprobs: &mut CompletionLogprobs,
    names: &TokenNames,
    prompt: &PreparedPrompt,
    piece: &Piece,
    num_top: u32,
    offset: &mut usize,
) {
    if let Some(&first) = prompt.token_ids.first() {
        logprobs.push_unknown(names, first, offset);
    }
    for position in piece.prompt_logprobs.iter().flatten() {
        logprobs.push(names, position, num_top, offset);
    }
}

impl Answer for CompletionAnswer {
    type Choice = CompletionChoice;

    fn parts(&mut self, piece: Piece) -> Vec<CompletionChoice> {
        vec![self.part(piece)]
    }

    fn add(&mut self, piece: Piece) {
        let part = self.part(piece);
        let choice = &mut self.choices[part.index as usize];
        choice.text.push_str(&part.text);
        append(&mut choice.logprobs, part.logprobs, CompletionLogprobs::append);
        append(&mut choice.token_ids, part.token_ids, |ids, next| ids.extend(next));
        choice.prompt_token_ids = choice.prompt_token_ids.take().or(part.prompt_token_ids);
        choice.prompt_logprobs = choice.prompt_logprobs.take().or(part.prompt_logprobs);
        choice.finish_reason = part.finish_reason;
        choice.stop_reason = part.stop_reason;
    }

    fn whole(self) -> Whole<CompletionChoice> {
        Whole { choices: self.choices, prompt_logprobs: None }
    }
}

fn append<T>(whole: &mut Option<T>, part: Option<T>, join: impl Fn(&mut T, T)) {
    match (whole.as_mut(), part) {
        (Some(whole), Some(part)) => join(whole, part),
        (None, part) => *whole = part,
        (Some(_), None) => {}
    }
}
