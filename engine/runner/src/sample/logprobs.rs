//! What is reported about a token and its alternatives: log-probabilities or logits.

use regatta_core::plan::{PositionLogprobs, TokenLogprob};

use super::exp::exp;
use super::top::{max, top};

/// The lowest log-probability that is reported; JSON has no infinity.
const MIN_LOGPROB: f32 = -9999.0;

/// Log-probability and rank of `token`, and the `num_top` most likely tokens.
pub(crate) fn logprobs(logits: &[f32], token: u32, num_top: u32) -> PositionLogprobs {
    let softmax = LogSoftmax::of(logits);
    report(logits, token, num_top, |logit| softmax.logprob(logit))
}

/// The same with logits as they are.
pub(super) fn logits(logits: &[f32], token: u32, num_top: u32) -> PositionLogprobs {
    // `max` of a NaN is the other number.
    report(logits, token, num_top, |logit| logit.max(MIN_LOGPROB))
}

fn report(logits: &[f32], token: u32, num_top: u32, value: impl Fn(f32) -> f32) -> PositionLogprobs {
    let best = (1..).zip(top(logits, num_top as usize)).map(|(rank, candidate)| TokenLogprob {
        token_id: candidate.id,
        logprob: value(candidate.score),
        rank,
    });
    let logit = logits[token as usize];
    let token = TokenLogprob { token_id: token, logprob: value(logit), rank: rank(logits, token) };
    PositionLogprobs { token, top: best.collect() }
}

/// 1 and how many tokens come before this one: those more likely, and of equals those with a lower id.
fn rank(logits: &[f32], token: u32) -> u32 {
    let logit = logits[token as usize];
    let (before, after) = logits.split_at(token as usize);
    let count = |more: usize, &other: &f32| more + usize::from(other > logit);
    let more = after.iter().fold(before.iter().fold(0, count), count);
    let equal = before.iter().filter(|&&other| other == logit).count();
    1 + (more + equal) as u32
}

/// `log softmax(x) = x - max - ln(sum(exp(x - max)))`: never an exponential above 1.
pub(super) struct LogSoftmax {
    max: f32,
    log_sum: f32,
}

impl LogSoftmax {
    pub(super) fn of(logits: &[f32]) -> Self {
        let max = max(logits);
        let sum: f64 = logits.chunks(LANES).map(|chunk| f64::from(sum_exp(chunk, max))).sum();
        Self { max, log_sum: sum.ln() as f32 }
    }

    fn logprob(&self, logit: f32) -> f32 {
        // `max` of a NaN is the other number.
        (logit - self.max - self.log_sum).max(MIN_LOGPROB)
    }
}

const LANES: usize = 256;

fn sum_exp(chunk: &[f32], max: f32) -> f32 {
    let mut lanes = [0.0; 16];
    let parts = chunk.chunks_exact(lanes.len());
    let rest: f32 = parts.remainder().iter().map(|&logit| exp(logit - max)).sum();
    for part in parts {
        for (lane, &logit) in lanes.iter_mut().zip(part) {
            *lane += exp(logit - max);
        }
    }
    lanes.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn log_probabilities_agree_with_the_formula_in_double_precision(
            logits in prop::collection::vec(-60.0f32..60.0, 1..700),
            pick in any::<prop::sample::Index>(),
        ) {
            let token = pick.index(logits.len());
            let found = logprobs(&logits, token as u32, 20);
            let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
            let exact = |id: u32| f64::from(logits[id as usize]) - sum.ln();
            for entry in found.top.iter().chain([&found.token]) {
                prop_assert!((f64::from(entry.logprob) - exact(entry.token_id)).abs() < 2e-5);
            }
            let more = logits.iter().filter(|&&other| other > logits[token]).count();
            prop_assert_eq!(found.token.rank as usize, more + 1);
            prop_assert_eq!(found.top.len(), logits.len().min(20));
        }
    }

    #[test]
    fn of_equal_tokens_the_lower_id_ranks_first() {
        let found = logprobs(&[1.0, 2.0, 2.0, 0.0], 2, 2);
        assert_eq!((found.top[0].token_id, found.top[1].token_id, found.token.rank), (1, 2, 2));
    }

    #[test]
    fn logits_that_are_no_numbers_give_finite_answers() {
        for logits in [[f32::NAN; 3], [f32::NEG_INFINITY; 3], [f32::INFINITY, 0.0, f32::NAN]] {
            for token in 0..3 {
                let found = logprobs(&logits, token, 3);
                assert!(found.top.iter().chain([&found.token]).all(|entry| entry.logprob.is_finite()));
            }
        }
    }
}
