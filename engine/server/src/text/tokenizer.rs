//! Text to token ids and back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::TextError;
use super::detokenizer::Utf8Decoder;
use super::pieces::Pieces;

/// A model's tokenizer. Clones share one table.
#[derive(Clone)]
pub struct Tokenizer(Arc<Parts>);

/// What a tokenizer is made of, by its source.
pub(super) struct Parts {
    /// The encoder: normalisation, special tokens, splitting, merges.
    pub(super) encoder: tokenizers::Tokenizer,
    /// What each id stands for.
    pub(super) pieces: Pieces,
    /// Put before every text that gets special tokens, besides what the encoder adds itself.
    pub(super) prefix: Option<u32>,
    /// Put after it.
    pub(super) suffix: Option<u32>,
    /// Beginning of sequence, when the vocabulary has one.
    pub(super) bos_token_id: Option<u32>,
    /// The ids that end a generation.
    pub(super) eos_token_ids: Vec<u32>,
    /// Special tokens by the names that templates use (`bos_token`, `eos_token`, ...).
    pub(super) named_tokens: BTreeMap<String, String>,
    /// Whether the encoder puts a space before a text, which `decode` takes away again.
    pub(super) adds_leading_space: bool,
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}

impl Tokenizer {
    pub(super) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// Text to ids. Special tokens written in the text become their ids. With `add_special_tokens`, what the model
    /// expects around a text (such as BOS) is added; a text that begins with BOS gets no second one.
    ///
    /// Takes time in proportion to the text: call [`Self::check_length`] first and keep it off latency-bound threads.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TextError> {
        let encoding = self.0.encoder.encode_fast(text, add_special_tokens);
        let encoding = encoding.map_err(|error| TextError::Encode(error.to_string()))?;
        if !add_special_tokens {
            return Ok(encoding.get_ids().to_vec());
        }
        let ids = self.0.prefix.into_iter().chain(encoding.get_ids().iter().copied()).chain(self.0.suffix);
        let mut ids: Vec<u32> = ids.collect();
        if let (Some(bos), [first, second, ..]) = (self.0.bos_token_id, ids.as_slice())
            && (*first, *second) == (bos, bos)
        {
            ids.remove(0);
        }
        Ok(ids)
    }

    /// Refuses a text that cannot fit `max_model_len` tokens, before any work on it: even if each of its tokens were
    /// the vocabulary's longest, there would be too many.
    pub fn check_length(&self, text: &str, max_model_len: usize) -> Result<(), TextError> {
        if text.len() <= max_model_len.saturating_mul(self.0.pieces.longest()) {
            return Ok(());
        }
        Err(TextError::InputTooLong { num_bytes: text.len(), max_model_len })
    }

    /// Ids to text, from the beginning of a sequence. Invalid UTF-8 becomes U+FFFD; a character that is cut off at the
    /// end is left out; ids outside the vocabulary add nothing.
    pub fn decode(&self, token_ids: &[u32], skip_special_tokens: bool) -> String {
        let shown = token_ids.iter().filter(|&&id| !(skip_special_tokens && self.is_special(id)));
        let bytes: Vec<u8> = shown.flat_map(|&id| self.token_bytes(id)).copied().collect();
        let text = Utf8Decoder::default().push(&bytes);
        match text.strip_prefix(' ') {
            Some(stripped) if self.0.adds_leading_space => stripped.to_owned(),
            _ => text,
        }
    }

    /// The bytes that a token stands for, which may be part of a character; empty outside the vocabulary.
    pub fn token_bytes(&self, token_id: u32) -> &[u8] {
        self.0.pieces.bytes(token_id)
    }

    /// A token as text of its own, for log-probabilities; U+FFFD stands for parts of characters.
    pub fn token_text(&self, token_id: u32) -> String {
        String::from_utf8_lossy(self.token_bytes(token_id)).into_owned()
    }

    /// Whether a token is special: control tokens, such as end of sequence, that are not part of the text.
    pub fn is_special(&self, token_id: u32) -> bool {
        self.0.pieces.is_special(token_id)
    }

    /// How many token ids there are, special ones included; valid ids are below. The model's output may be wider.
    pub fn vocab_size(&self) -> usize {
        self.0.pieces.len()
    }

    /// The ids that end a generation.
    pub fn eos_token_ids(&self) -> &[u32] {
        &self.0.eos_token_ids
    }

    /// Special tokens by the names that chat templates use (`bos_token`, `eos_token`, ...).
    pub(super) fn named_tokens(&self) -> &BTreeMap<String, String> {
        &self.0.named_tokens
    }
}
