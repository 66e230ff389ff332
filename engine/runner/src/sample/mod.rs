//! From logits to a token.
//!
//! The order is that of vLLM's sampler (`vllm/v1/sample/sampler.py`):
//!
//! 1. masks: `allowed_token_ids`, `bad_words`, stop tokens before `min_tokens`;
//! 2. `logit_bias`;
//! 3. penalties: repetition, frequency, presence;
//! 4. greedy sequences take the likeliest token here;
//! 5. `temperature`;
//! 6. cuts, each of what the one before it left: `min_p`, `top_k`, `top_p`, and `typical_p`, which vLLM does not have
//!    and which comes last in Hugging Face's samplers, too;
//! 7. the draw.
//!
//! Raw log-probabilities are those before the first of these, processed ones those before the fourth or the last.
//! A sequence that asks for none of the first three pays nothing for them; one that does pays a copy of its logits.

mod adjust;
mod exp;
mod history;
mod logprobs;
mod random;
mod top;
mod weights;

pub(crate) use history::History;
pub(crate) use logprobs::logprobs;
use regatta_core::plan::PositionLogprobs;
use regatta_core::sampling::{LogprobsMode, SamplingParams};

use adjust::adjusted;
use top::argmax;
use weights::Weights;

/// Chooses tokens; keeps its working memory.
#[derive(Default)]
pub(crate) struct Sampler {
    adjusted: Vec<f32>,
    weights: Weights,
    processed: Vec<f32>,
}

/// What a sequence's next token is chosen by, beside its logits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) params: &'a SamplingParams,
    /// Where the token will stand in the sequence.
    pub(crate) position: u32,
    /// How many tokens were generated before it.
    pub(crate) num_generated: u32,
    /// Which ones were, for parameters that look back.
    pub(crate) history: Option<&'a History>,
}

/// A chosen token.
pub(crate) struct Sampled {
    pub(crate) token_id: u32,
    /// When asked for.
    pub(crate) logprobs: Option<PositionLogprobs>,
}

impl Sampler {
    /// Chooses the token at `place`; none where the masks leave none.
    pub(crate) fn sample(&mut self, logits: &[f32], place: Place<'_>) -> Option<Sampled> {
        let params = place.params;
        let adjusted = adjusted(logits, place, &mut self.adjusted);
        if adjusted.iter().all(|&logit| logit == f32::NEG_INFINITY) {
            return None;
        }
        let greedy = params.temperature <= 0.0;
        let token_id = if greedy { argmax(adjusted) } else { self.weights.draw(adjusted, place) };
        let logprobs = params.logprobs.map(|num_top| {
            let mode = params.logprobs_mode;
            let is_raw = matches!(mode, LogprobsMode::RawLogprobs | LogprobsMode::RawLogits);
            let reported = match (is_raw, greedy) {
                (true, _) => logits,
                (false, true) => adjusted,
                (false, false) => {
                    self.weights.processed(adjusted, params.temperature, &mut self.processed);
                    &self.processed
                }
            };
            match mode {
                LogprobsMode::RawLogprobs | LogprobsMode::ProcessedLogprobs => {
                    logprobs(reported, token_id, num_top)
                }
                LogprobsMode::RawLogits | LogprobsMode::ProcessedLogits => {
                    logprobs::logits(reported, token_id, num_top)
                }
            }
        });
        Some(Sampled { token_id, logprobs })
    }
}

#[cfg(test)]
mod tests;
