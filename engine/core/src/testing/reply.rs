//! What the fake model says: a pure function of the tokens so far.

use super::sight::Sight;
use crate::event::FinishReason;
use crate::kv::KvGroups;
use crate::plan::{PositionLogprobs, TokenLogprob};
use crate::sampling::SamplingParams;

/// How a [`FakeRunner`](super::FakeRunner) chooses tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A token below `vocab_size` that depends on all tokens before it, on the seed and on the choice.
    Hash {
        /// Size of the vocabulary.
        vocab_size: u32,
    },
    /// The prompt again, then the first stop token (without one, the prompt over and over).
    Echo,
}

/// What a sequence must produce, whatever is scheduled beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// Generated tokens.
    pub token_ids: Vec<u32>,
    /// Their log-probabilities, when asked for.
    pub logprobs: Vec<PositionLogprobs>,
    /// Those of the prompt from its second token on, when asked for.
    pub prompt_logprobs: Vec<PositionLogprobs>,
    /// Why it ends.
    pub reason: FinishReason,
}

/// All that the fake model knows of some tokens in a row: order matters, and so does each one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Context(u64);

impl Context {
    /// What is stored for `token_id` after this context.
    pub(super) fn entry(self, token_id: u32) -> u64 {
        mix(self.0 ^ mix(u64::from(token_id) + 1))
    }

    /// The context with one more entry, as read back from storage.
    pub(super) fn with(self, entry: u64) -> Self {
        Self(mix(self.0).wrapping_add(entry))
    }

    /// Both, in this order.
    pub(super) fn and(self, other: Self) -> Self {
        Self(mix(self.0) ^ other.0.rotate_left(1))
    }

    fn logprob(self, token_id: u32) -> f32 {
        -((self.entry(token_id) % 4096) as f32) / 256.0
    }
}

impl Reply {
    /// The token after `context`, the `index`-th generated one. `prompt_token` reads the prompt.
    pub(super) fn choose(
        self,
        context: Context,
        sampling: &SamplingParams,
        index: u32,
        num_prompt_tokens: u32,
        prompt_token: impl FnOnce(u32) -> u32,
    ) -> u32 {
        match self {
            Self::Hash { vocab_size } => {
                let salt = mix(sampling.seed).wrapping_add(u64::from(sampling.choice));
                (mix(context.0 ^ mix(salt)) % u64::from(vocab_size)) as u32
            }
            Self::Echo => match sampling.stop_token_ids.first() {
                Some(&stop) if index >= num_prompt_tokens => stop,
                _ => prompt_token(index % num_prompt_tokens),
            },
        }
    }

    /// Log-probabilities where `token_id` follows `context`, with `num_top` alternatives.
    pub(super) fn logprobs(self, context: Context, token_id: u32, num_top: u32) -> PositionLogprobs {
        let token = TokenLogprob { token_id, logprob: context.logprob(token_id), rank: 1 };
        let top = (0..num_top).map(|i| TokenLogprob {
            token_id: token_id.wrapping_add(i),
            logprob: token.logprob - i as f32,
            rank: i + 1,
        });
        PositionLogprobs { token, top: top.collect() }
    }

    /// What a sequence run alone and without blocks, chunks or preemption produces, where all layers attend fully.
    pub fn expected(self, prompt: &[u32], sampling: &SamplingParams, max_model_len: u32) -> Expected {
        self.expected_of(KvGroups::FULL, prompt, sampling, max_model_len)
    }

    /// The same with these groups of layers.
    pub fn expected_of(
        self,
        groups: KvGroups,
        prompt: &[u32],
        sampling: &SamplingParams,
        max_model_len: u32,
    ) -> Expected {
        let mut sight = Sight::new(groups);
        let mut prompt_logprobs = Vec::new();
        for (index, &token_id) in prompt.iter().enumerate() {
            if let Some(num_top) = sampling.prompt_logprobs.filter(|_| index > 0) {
                prompt_logprobs.push(self.logprobs(sight.context(), token_id, num_top));
            }
            sight.see_in_all(sight.before_next().entry(token_id));
        }
        let (mut token_ids, mut logprobs) = (Vec::new(), Vec::new());
        let reason = loop {
            let num_prompt_tokens = prompt.len() as u32;
            let index = token_ids.len() as u32;
            let context = sight.context();
            let token_id = self.choose(context, sampling, index, num_prompt_tokens, |i| prompt[i as usize]);
            token_ids.push(token_id);
            logprobs.extend(sampling.logprobs.map(|num_top| self.logprobs(context, token_id, num_top)));
            sight.see_in_all(sight.before_next().entry(token_id));
            if sampling.stop_token_ids.contains(&token_id) {
                break FinishReason::Stop { token_id };
            }
            if index + 1 == sampling.max_tokens || num_prompt_tokens + index + 1 == max_model_len {
                break FinishReason::Length;
            }
        };
        Expected { token_ids, logprobs, prompt_logprobs, reason }
    }
}

/// The finaliser of SplitMix64: every input bit changes half the output bits.
fn mix(z: u64) -> u64 {
    let z = (z.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
