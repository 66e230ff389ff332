//! SentencePiece BPE (`tokenizer.ggml.model = llama`): merges follow from the scores.

use std::collections::HashSet;

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

/// SentencePiece joins, again and again, the two neighbours whose union has the best score, the leftmost among equals.
/// As BPE: every way to split a token into two tokens is a merge, as important as the token's score. Among equals
/// those with the longer parts come first, the left one above all, since joining from the left makes them.
fn merges(vocab: &GgufVocab) -> Merges {
    let tokens: HashSet<&str> = vocab.tokens.iter().map(String::as_str).collect();
    let mut ranked = Vec::new();
    for (token, &score) in vocab.tokens.iter().zip(&vocab.scores) {
        let splits = token.char_indices().skip(1).map(|(at, _)| token.split_at(at));
        let merges = splits.filter(|(left, right)| tokens.contains(left) && tokens.contains(right));
        ranked.extend(merges.map(|(left, right)| {
            let lengths = (left.chars().count(), right.chars().count());
            (score, lengths, (left.to_owned(), right.to_owned()))
        }));
    }
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    ranked.into_iter().map(|(_, _, merge)| merge).collect()
}
