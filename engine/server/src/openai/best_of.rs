//! `best_of`: more samples than answers.

use futures::{Stream, StreamExt};

use super::generation::Piece;
use crate::http::ApiError;

/// Of every `best_of` choices in a row the `n` with the highest mean log-probability, best first, numbered anew. Known
/// only when all have ended.
///
/// # Errors
/// The first failure of any.
pub(super) async fn select(
    mut pieces: impl Stream<Item = Result<Piece, ApiError>> + Unpin,
    best_of: u32,
    n: u32,
) -> Result<Vec<Piece>, ApiError> {
    let mut samples: Vec<Vec<Piece>> = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        let place = piece.index as usize;
        if samples.len() <= place {
            samples.resize_with(place + 1, Vec::new);
        }
        samples[place].push(piece);
    }
    let mut selected = Vec::new();
    let mut index = 0..;
    while !samples.is_empty() {
        let rest = samples.split_off(samples.len().min(best_of as usize));
        let mut ranked = std::mem::replace(&mut samples, rest);
        // The prompt is computed for one of them, which need not be among the best.
        let mut cached = ranked.iter().flatten().map(|piece| piece.num_cached_tokens).sum();
        ranked.sort_by(|a, b| mean_logprob(b).total_cmp(&mean_logprob(a)));
        for (pieces, index) in ranked.into_iter().take(n as usize).zip(index.by_ref()) {
            selected.extend(pieces.into_iter().map(|piece| Piece {
                index,
                num_cached_tokens: std::mem::take(&mut cached),
                ..piece
            }));
        }
    }
    Ok(selected)
}

fn mean_logprob(pieces: &[Piece]) -> f64 {
    let tokens = pieces.iter().flat_map(|piece| &piece.tokens);
    let logprobs: Vec<f64> = tokens
        .filter_map(|token| token.logprobs.as_ref())
        .map(|position| f64::from(position.token.logprob))
        .collect();
    // Nothing at all is as bad as can be.
    if logprobs.is_empty() { f64::NEG_INFINITY } else { logprobs.iter().sum::<f64>() / logprobs.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openai::generation::GeneratedToken;
    use regatta_core::plan::{PositionLogprobs, TokenLogprob};

    fn piece(index: u32, text: &str, logprobs: &[f32]) -> Result<Piece, ApiError> {
        let token = |&logprob: &f32| GeneratedToken {
            token_id: 0,
            logprobs: Some(PositionLogprobs {
                token: TokenLogprob { token_id: 0, logprob, rank: 1 },
                top: vec![],
            }),
        };
        let tokens = logprobs.iter().map(token).collect();
        Ok(Piece { index, text: text.to_owned(), tokens, ..Piece::default() })
    }

    #[tokio::test]
    async fn the_best_by_mean_log_probability_come_first_for_each_prompt() {
        let pieces = vec![
            piece(1, "long", &[-1.0, -1.0]),
            piece(0, "bad", &[-3.0]),
            piece(1, "er", &[-1.0]),
            piece(2, "short", &[-1.5]),
            piece(3, "x", &[-1.0]),
            piece(4, "y", &[-0.5]),
            piece(5, "none", &[]),
        ];
        let selected = select(futures::stream::iter(pieces), 3, 2).await.unwrap();
        let selected: Vec<_> = selected.iter().map(|piece| (piece.index, piece.text.as_str())).collect();
        assert_eq!(selected, [(0, "long"), (0, "er"), (1, "short"), (2, "y"), (3, "x")]);
    }

    #[tokio::test]
    async fn cached_prompt_tokens_are_told_whichever_sample_found_them() {
        let mut pieces = vec![piece(0, "worse", &[-2.0]), piece(1, "better", &[-1.0])];
        pieces[0].as_mut().unwrap().num_cached_tokens = 16;
        let selected = select(futures::stream::iter(pieces), 2, 1).await.unwrap();
        let told: Vec<_> =
            selected.iter().map(|piece| (piece.text.as_str(), piece.num_cached_tokens)).collect();
        assert_eq!(told, [("better", 16)]);
    }

    #[tokio::test]
    async fn a_failure_of_one_is_a_failure_of_all() {
        let pieces = vec![piece(0, "a", &[-1.0]), Err(ApiError::internal("out of luck".to_owned()))];
        assert!(select(futures::stream::iter(pieces), 2, 1).await.is_err());
    }
}
