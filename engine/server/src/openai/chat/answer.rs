//! A chat's choices: events with a `delta`, or whole ones with a `message`.

use std::sync::Arc;

use serde::Serialize;

use super::request::ChatRequest;
use crate::{
    model::ServedModel,
    openai::{
        answer::{Answer, Whole},
        generation::{Piece, StopReason},
        logprobs::{ChatLogprobs, ChatTokenLogprobs, PromptLogprobs, TokenNames},
    },
};

/// A choice, whole or the part that one event carries.
#[derive(Debug, Default, Serialize)]
pub(super) struct ChatChoice {
    index: u32,
    #[serde(flatten)]
    text: ChatText,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
    stop_reason: Option<StopReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<Arc<[u32]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum ChatText {
    Message(Message),
    Delta(Delta),
}

#[derive(Debug, Serialize)]
struct Message {
    role: &'static str,
    content: String,
    refusal: Option<String>,
}

/// What an event adds; nothing with the last one of a choice that had no text left.
#[derive(Debug, Default, Serialize)]
struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

impl Default for ChatText {
    fn default() -> Self {
        Self::Delta(Delta::default())
    }
}

/// Makes choices out of pieces.
pub(super) struct ChatAnswer {
    request: ChatRequest,
    names: TokenNames,
    begun: Vec<bool>,
    choices: Vec<(ChatChoice, String)>,
    prompt_logprobs: Option<PromptLogprobs>,
}

impl ChatAnswer {
    pub(super) fn new(request: ChatRequest, model: &ServedModel) -> Self {
        let n = request.sampling.n as usize;
        let names = TokenNames::new(&model.text.tokenizer, request.return_tokens_as_token_ids);
        let choice = |index| (ChatChoice { index, ..ChatChoice::default() }, String::new());
        let choices = (0..).take(n).map(choice).collect();
        Self { request, names, begun: vec![false; n], choices, prompt_logprobs: None }
    }

    fn logprobs(&self, piece: &Piece) -> Option<ChatLogprobs> {
        self.request.logprobs?;
        let positions = piece.tokens.iter().filter_map(|token| token.logprobs.as_ref());
        let content: Vec<_> =
            positions.map(|position| ChatTokenLogprobs::new(&self.names, position)).collect();
        (!content.is_empty()).then_some(ChatLogprobs { content })
    }

    fn token_ids(&self, piece: &Piece) -> Option<Vec<u32>> {
        self.request.return_token_ids.then(|| piece.tokens.iter().map(|token| token.token_id).collect())
    }
}

impl Answer for ChatAnswer {
    type Choice = ChatChoice;

    fn parts(&mut self, piece: Piece) -> Vec<ChatChoice> {
        let mut parts = Vec::with_capacity(2);
        if !std::mem::replace(&mut self.begun[piece.index as usize], true) {
            let delta = Delta { role: Some("assistant"), content: Some(String::new()) };
            parts.push(ChatChoice {
                index: piece.index,
                text: ChatText::Delta(delta),
                prompt_token_ids: self
                    .request
                    .return_token_ids
                    .then(|| Arc::clone(&self.request.prompt.token_ids)),
                ..ChatChoice::default()
            });
        }
        let logprobs = self.logprobs(&piece);
        let token_ids = self.token_ids(&piece);
        let content = (!piece.text.is_empty()).then_some(piece.text);
        let (finish_reason, stop_reason) = piece.finish.map(|f| (f.reason, f.stop_reason)).unzip();
        parts.push(ChatChoice {
            index: piece.index,
            text: ChatText::Delta(Delta { role: None, content }),
            logprobs,
            finish_reason,
            stop_reason: stop_reason.flatten(),
            token_ids,
            ..ChatChoice::default()
        });
        parts
    }

    fn add(&mut self, piece: Piece) {
        let logprobs = self.logprobs(&piece);
        let token_ids = self.token_ids(&piece);
        if let (Some(num_top), Some(positions)) = (self.request.prompt_logprobs, &piece.prompt_logprobs) {
            self.prompt_logprobs = Some(PromptLogprobs::new(&self.names, positions, num_top));
        }
        let (choice, text) = &mut self.choices[piece.index as usize];
        text.push_str(&piece.text);
        if let Some(mut next) = logprobs {
            choice.logprobs.get_or_insert_default().content.append(&mut next.content);
        }
        if let Some(mut next) = token_ids {
            choice.token_ids.get_or_insert_default().append(&mut next);
        }
        if let Some(finish) = piece.finish {
            choice.finish_reason = Some(finish.reason);
            choice.stop_reason = finish.stop_reason;
        }
    }

    fn whole(self) -> Whole<ChatChoice> {
        let Self { choices, request, prompt_logprobs, .. } = self;
        let whole = |(mut choice, content): (ChatChoice, String)| {
            choice.text = ChatText::Message(Message { role: "assistant", content, refusal: None });
            choice.prompt_token_ids = request.return_token_ids.then(|| Arc::clone(&request.prompt.token_ids));
            choice
        };
        Whole { choices: choices.into_iter().map(whole).collect(), prompt_logprobs }
    }
}
