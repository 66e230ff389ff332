//! Fields that name tokens: by id, or as words that become token sequences.

use std::{collections::BTreeMap, sync::Arc};

use super::{bounded::UpTo, fields::Fields};
use crate::{http::ApiError, text::Tokenizer};

const MAX_STOP_TOKEN_IDS: usize = 128;
const MAX_BIASES: usize = 1024;
/// As large as any vocabulary.
const MAX_ALLOWED: usize = 1 << 20;
const MAX_BAD_WORDS: usize = 128;
const MAX_BAD_WORD_BYTES: usize = 256;
/// A bias beyond this decides by itself; larger ones count as this, as in vLLM.
const MAX_BIAS: f32 = 100.0;

/// A model's tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vocabulary<'a> {
    pub(crate) tokenizer: &'a Tokenizer,
    /// Token ids that the model knows are below; it may be more than the tokenizer knows.
    pub(crate) size: usize,
}

impl Vocabulary<'_> {
    /// # Errors
    /// 400 with the field's name, where an id is outside.
    fn check(&self, name: &'static str, ids: impl IntoIterator<Item = u32>) -> Result<(), ApiError> {
        match ids.into_iter().find(|&id| id as usize >= self.size) {
            Some(id) => Err(ApiError::invalid(name, format!("{name}: token id {id} is out of vocabulary."))),
            None => Ok(()),
        }
    }

    /// Takes `stop_token_ids` out of a request.
    ///
    /// # Errors
    /// 400 with the field's name.
    pub(super) fn stop_token_ids(&self, fields: &mut Fields<'_>) -> Result<Vec<u32>, ApiError> {
        let UpTo::<u32, MAX_STOP_TOKEN_IDS>(ids) = fields.take("stop_token_ids")?.unwrap_or_default();
        self.check("stop_token_ids", ids.iter().copied())?;
        Ok(ids)
    }

    /// Takes `logit_bias` out of a request: an object whose keys are token ids.
    ///
    /// # Errors
    /// 400 with the field's name.
    pub(super) fn logit_bias(&self, fields: &mut Fields<'_>) -> Result<Arc<[(u32, f32)]>, ApiError> {
        let name = "logit_bias";
        let biases: BTreeMap<String, f32> = fields.take(name)?.unwrap_or_default();
        if biases.len() > MAX_BIASES {
            return Err(ApiError::invalid(name, format!("{name}: more than {MAX_BIASES} tokens.")));
        }
        let read = |(key, bias): (String, f32)| match key.parse::<u32>() {
            Ok(id) => Ok((id, bias.clamp(-MAX_BIAS, MAX_BIAS))),
            Err(_) => {
                let key: String = key.chars().take(32).collect();
                Err(ApiError::invalid(name, format!("{name}: the key {key:?} is not a token id.")))
            }
        };
        // Two spellings of one id are one entry.
        let biases: BTreeMap<u32, f32> = biases.into_iter().map(read).collect::<Result<_, _>>()?;
        self.check(name, biases.keys().copied())?;
        Ok(biases.into_iter().collect())
    }

    /// Takes `allowed_token_ids` out of a request.
    ///
    /// # Errors
    /// 400 with the field's name.
    pub(super) fn allowed_token_ids(&self, fields: &mut Fields<'_>) -> Result<Option<Arc<[u32]>>, ApiError> {
        let name = "allowed_token_ids";
        let Some(UpTo::<u32, MAX_ALLOWED>(ids)) = fields.take(name)? else { return Ok(None) };
        if ids.is_empty() {
            return Err(ApiError::invalid(
                name,
                "allowed_token_ids must not be empty; leave it out instead.",
            ));
        }
        self.check(name, ids.iter().copied())?;
        Ok(Some(ids.into()))
    }

    /// Takes `bad_words` out of a request, as the token sequences that write them: at the beginning of a text, and
    /// after a space where that is another first token.
    ///
    /// # Errors
    /// 400 with the field's name.
    pub(super) fn bad_words(&self, fields: &mut Fields<'_>) -> Result<Arc<[Vec<u32>]>, ApiError> {
        let name = "bad_words";
        let UpTo::<String, MAX_BAD_WORDS>(words) = fields.take(name)?.unwrap_or_default();
        let mut sequences: Vec<Vec<u32>> = Vec::new();
        for word in words {
            if word.is_empty() || word.len() > MAX_BAD_WORD_BYTES {
                let reason = format!("{name}: a word must have 1 to {MAX_BAD_WORD_BYTES} bytes.");
                return Err(ApiError::invalid(name, reason));
            }
            let word = word.trim_start();
            let bare = self.tokenizer.encode(word, false)?;
            let spaced = self.tokenizer.encode(&format!(" {word}"), false)?;
            let differs = spaced.len() == bare.len() && spaced.first() != bare.first();
            sequences
                .extend([bare].into_iter().chain(differs.then_some(spaced)).filter(|ids| !ids.is_empty()));
        }
        self.check(name, sequences.iter().flatten().copied())?;
        Ok(sequences.into())
    }
}
