//! SentencePiece BPE (`tokenizer.ggml.model = llama`): merges follow from the scores.

use std::collections::HashMap;

use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::{Prepend, Replace, Sequence};
use tokenizers::{NormalizerWrapper, Tokenizer};

use super::{GgufVocab, TextError};

/// What SentencePiece writes for a space.
const SPACE: &str = "\u{2581}";

/// The encoder without added tokens: spaces become U+2581, characters outside the vocabulary become byte tokens.
pub(super) fn encoder(vocab: &GgufVocab) -> Result<Tokenizer, TextError> {
    if vocab.scores.is_empty() {
        return Err(TextError::invalid(
            "tokenizer.ggml.scores",
            "a `llama` tokenizer needs them, and there are none",
        ));
    }
    let ids: Vocab = vocab.tokens.iter().cloned().zip(0..).collect();
    let mut bpe = BPE::builder().vocab_and_merges(ids, merges(vocab)).fuse_unk(true).byte_fallback(true);
    if let Some(unknown) = vocab.unknown_token_id.and_then(|id| vocab.tokens.get(id as usize)) {
        bpe = bpe.unk_token(unknown.clone());
    }
    let bpe = bpe.build().map_err(|error| TextError::invalid("tokenizer.ggml.tokens", error.to_string()))?;
    let invalid = |error: tokenizers::Error| TextError::invalid("tokenizer.ggml.tokens", error.to_string());
    let spaces = NormalizerWrapper::Replace(Replace::new(" ", SPACE).map_err(invalid)?);
    let prefix = NormalizerWrapper::Prepend(Prepend::new(SPACE.to_owned()));
    let normalizers = match vocab.add_space_prefix {
        Some(false) => vec![spaces],
        _ => vec![prefix, spaces],
    };
    let mut encoder = Tokenizer::new(bpe);
    encoder.with_normalizer(Some(Sequence::new(normalizers))).map_err(invalid)?;
    Ok(encoder)
}

/// SentencePiece joins, again and again, the two neighbours whose union has the best score. As BPE: every way to split
/// a token into two tokens is a merge, as important as the token's score; among equals the one with the better parts.
fn merges(vocab: &GgufVocab) -> Merges {
    let ids: HashMap<&str, usize> = vocab.tokens.iter().map(String::as_str).zip(0..).collect();
    let mut ranked = Vec::new();
    for (id, token) in vocab.tokens.iter().enumerate() {
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(&left_id), Some(&right_id)) = (ids.get(left), ids.get(right)) {
                ranked.push((vocab.scores[id], (left_id, right_id), (left, right)));
            }
        }
    }
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    ranked.into_iter().map(|(_, _, (left, right))| (left.to_owned(), right.to_owned())).collect()
}
