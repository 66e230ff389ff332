//! How one sequence's next token is chosen.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Sampling parameters of one sequence. Every field is already validated and defaulted. The order in which they apply
/// is the runner's to document; it is vLLM's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingParams {
    /// Softmax temperature; 0 is greedy.
    pub temperature: f32,
    /// Nucleus mass in (0, 1]; 1 keeps all.
    pub top_p: f32,
    /// Keep the `top_k` most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep tokens at least this times as likely as the most likely one, in [0, 1]; 0 keeps all.
    pub min_p: f32,
    /// Mass of the locally typical tokens to keep, in (0, 1]; 1 keeps all.
    pub typical_p: f32,
    /// Taken from the logit of each token that was generated before; 0 changes nothing.
    pub presence_penalty: f32,
    /// Taken from a token's logit for each time that it was generated before; 0 changes nothing.
    pub frequency_penalty: f32,
    /// Divides positive and multiplies negative logits of tokens in the prompt or generated before; above 0, 1 changes
    /// nothing.
    pub repetition_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: Arc<[(u32, f32)]>,
    /// Only these tokens are chosen, if given; not empty.
    pub allowed_token_ids: Option<Arc<[u32]>>,
    /// Token sequences that are never completed among the generated tokens; none is empty.
    pub bad_words: Arc<[Vec<u32>]>,
    /// Stop tokens are not chosen before this many tokens.
    pub min_tokens: u32,
    /// Seed of the counter-based random numbers: (seed, choice, position) decides each draw.
    pub seed: u64,
    /// Which of the `n` choices of its request this sequence is, from 0.
    pub choice: u32,
    /// Alternatives to report for each generated token; absent: no log-probabilities.
    pub logprobs: Option<u32>,
    /// What `logprobs` reports.
    pub logprobs_mode: LogprobsMode,
    /// Alternatives to report for each prompt token from the second on, always as raw log-probabilities; absent: none.
    pub prompt_logprobs: Option<u32>,
    /// Most tokens to generate; at least 1.
    pub max_tokens: u32,
    /// Token ids that end the sequence (end-of-sequence and the request's own).
    pub stop_token_ids: Vec<u32>,
}

/// What is reported as the log-probability of a generated token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogprobsMode {
    /// Logarithm of the softmax of the model's own logits.
    #[default]
    RawLogprobs,
    /// The same of the logits that the token was drawn from: after masks, bias, penalties, temperature and cuts.
    ProcessedLogprobs,
    /// The model's own logits.
    RawLogits,
    /// The logits that the token was drawn from.
    ProcessedLogits,
}

impl SamplingParams {
    /// Whether the choice of a token depends on which tokens came before, beyond what the model makes of them.
    pub fn looks_back(&self) -> bool {
        self.penalises() || self.bad_words.iter().any(|word| word.len() > 1)
    }

    /// Whether tokens that came before are penalised.
    pub fn penalises(&self) -> bool {
        self.presence_penalty != 0.0 || self.frequency_penalty != 0.0 || self.repetition_penalty != 1.0
    }
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            typical_p: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            logit_bias: Arc::default(),
            allowed_token_ids: None,
            bad_words: Arc::default(),
            min_tokens: 0,
            seed: 0,
            choice: 0,
            logprobs: None,
            logprobs_mode: LogprobsMode::default(),
            prompt_logprobs: None,
            max_tokens: 16,
            stop_token_ids: Vec::new(),
        }
    }
}
