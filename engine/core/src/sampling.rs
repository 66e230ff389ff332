//! How one sequence's next token is chosen.

use serde::{Deserialize, Serialize};

/// Sampling parameters of one sequence. Every field is already validated and defaulted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingParams {
    /// Softmax temperature; 0 is greedy.
    pub temperature: f32,
    /// Nucleus mass in (0, 1]; 1 keeps all.
    pub top_p: f32,
    /// Keep the `top_k` most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Seed of the counter-based random numbers: (seed, choice, position) decides each draw.
    pub seed: u64,
    /// Which of the `n` choices of its request this sequence is, from 0.
    pub choice: u32,
    /// Alternatives to report for each generated token (0 to 20); absent: no log-probabilities.
    pub logprobs: Option<u32>,
    /// Alternatives to report for each prompt token from the second on; absent: none.
    pub prompt_logprobs: Option<u32>,
    /// Most tokens to generate; at least 1.
    pub max_tokens: u32,
    /// Token ids that end the sequence (end-of-sequence and the request's own).
    pub stop_token_ids: Vec<u32>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            seed: 0,
            choice: 0,
            logprobs: None,
            prompt_logprobs: None,
            max_tokens: 16,
            stop_token_ids: Vec::new(),
        }
    }
}
