//! Log-probabilities in the two shapes of OpenAI's API.

use regatta_core::plan::{PositionLogprobs, TokenLogprob};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::text::Tokenizer;

/// JSON knows no negative infinity.
const FLOOR: f32 = -9999.0;

/// How tokens are named in an answer.
#[derive(Clone, Debug)]
pub(super) struct TokenNames {
    tokenizer: Tokenizer,
    /// As `token_id:7` instead of as text, which two tokens may share.
    as_ids: bool,
}

impl TokenNames {
    pub(super) fn new(tokenizer: &Tokenizer, as_ids: bool) -> Self {
        Self { tokenizer: tokenizer.clone(), as_ids }
    }

    fn name(&self, token_id: u32) -> String {
        if self.as_ids { format!("token_id:{token_id}") } else { self.tokenizer.token_text(token_id) }
    }
}

/// `logprobs` of a completion's choice: one entry per token in each list.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct CompletionLogprobs {
    text_offset: Vec<usize>,
    token_logprobs: Vec<Option<f64>>,
    tokens: Vec<String>,
    top_logprobs: Vec<Option<Map<String, Value>>>,
}

impl CompletionLogprobs {
    /// Adds a token that nothing is known about: the first of a prompt. `offset` is where its text begins in
    /// characters, and moves on.
    pub(super) fn push_unknown(&mut self, names: &TokenNames, token_id: u32, offset: &mut usize) {
        self.push_name(names.name(token_id), offset);
        self.token_logprobs.push(None);
        self.top_logprobs.push(None);
    }

    /// Adds a token with up to `num_top` alternatives; the token itself is always among them.
    pub(super) fn push(
        &mut self,
        names: &TokenNames,
        position: &PositionLogprobs,
        num_top: u32,
        offset: &mut usize,
    ) {
        let name = names.name(position.token.token_id);
        let mut top = Map::new();
        for alternative in position.top.iter().take(num_top as usize) {
            // Of two tokens with the same text the likelier one stands for both.
            top.entry(names.name(alternative.token_id)).or_insert_with(|| floored(alternative).into());
        }
        top.entry(name.clone()).or_insert_with(|| floored(&position.token).into());
        self.push_name(name, offset);
        self.token_logprobs.push(Some(floored(&position.token)));
        self.top_logprobs.push(Some(top));
    }

    fn push_name(&mut self, name: String, offset: &mut usize) {
        self.text_offset.push(*offset);
        *offset += name.chars().count();
        self.tokens.push(name);
    }

    /// Adds what follows.
    pub(super) fn append(&mut self, mut next: Self) {
        self.text_offset.append(&mut next.text_offset);
        self.token_logprobs.append(&mut next.token_logprobs);
        self.tokens.append(&mut next.tokens);
        self.top_logprobs.append(&mut next.top_logprobs);
    }
}

/// `prompt_logprobs`, which vLLM adds to OpenAI's API: for each prompt token the likeliest tokens and itself, by id.
/// The first is `None`: nothing comes before it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PromptLogprobs(Vec<Option<Map<String, Value>>>);

impl PromptLogprobs {
    /// Those of the tokens from the second on, with up to `num_top` alternatives each.
    pub(super) fn new(names: &TokenNames, positions: &[PositionLogprobs], num_top: u32) -> Self {
        let entry = |token: &TokenLogprob| {
            let decoded_token = names.tokenizer.token_text(token.token_id);
            let entry =
                json!({"logprob": floored(token), "rank": token.rank, "decoded_token": decoded_token});
            (token.token_id.to_string(), entry)
        };
        let of = |position: &PositionLogprobs| {
            let top = position.top.iter().take(num_top as usize);
            Some([&position.token].into_iter().chain(top).map(entry).collect())
        };
        Self([None].into_iter().chain(positions.iter().map(of)).collect())
    }
}

/// `logprobs` of a chat choice.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ChatLogprobs {
    pub(super) content: Vec<ChatTokenLogprobs>,
}

/// A token with its alternatives.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ChatTokenLogprobs {
    #[serde(flatten)]
    token: ChatTokenLogprob,
    top_logprobs: Vec<ChatTokenLogprob>,
}

#[derive(Clone, Debug, Serialize)]
struct ChatTokenLogprob {
    token: String,
    logprob: f64,
    bytes: Vec<u8>,
}

impl ChatTokenLogprobs {
    pub(super) fn new(names: &TokenNames, position: &PositionLogprobs) -> Self {
        let named = |token: &TokenLogprob| ChatTokenLogprob {
            token: names.name(token.token_id),
            logprob: floored(token),
            bytes: names.tokenizer.token_bytes(token.token_id).to_vec(),
        };
        Self { token: named(&position.token), top_logprobs: position.top.iter().map(named).collect() }
    }
}

/// The number with the digits that tell it from other `f32`s, so that it reads the same in every answer.
fn floored(token: &TokenLogprob) -> f64 {
    let logprob = token.logprob.max(FLOOR);
    logprob.to_string().parse().unwrap_or_else(|_| logprob.into())
}
