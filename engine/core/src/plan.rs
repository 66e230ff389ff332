//! The border between deciding and computing: what a step does, and what came of it.
//!
//! A [`StepPlan`] is plain, serialisable data. Lists that belong to sequences are concatenated in the order of
//! [`StepPlan::sequences`], so that a plan is a handful of flat arrays whose memory is reused from step to step.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::sampling::SamplingParams;

/// A KV block: `block_size` consecutive token positions of one sequence, in every layer of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlockId(pub u32);

impl BlockId {
    /// No block: the entry of a table for positions that its group of layers does not see any more.
    pub const NONE: Self = Self(u32::MAX);
}

/// A block of host memory, as large as a [`BlockId`]'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostBlockId(pub u32);

/// A sequence's row in the runner: `0..max_num_seqs`, used again after release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Row(pub u32);

/// One sequence's share of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SequencePlan {
    /// The runner's row for this sequence.
    pub row: Row,
    /// Position of the first token computed in this step (its `num_computed_tokens` before the step).
    pub position: u32,
    /// How many entries of [`StepPlan::token_ids`] are this sequence's; at least 1.
    pub num_tokens: u32,
    /// How many of those entries, from the first on, stand for the tokens that this row's previous step samples, in
    /// their order: that step is in flight, so only the runner can know them. Such entries are 0 and are not read.
    pub num_placeholders: u32,
    /// How many entries of [`StepPlan::new_blocks`] are appended to this row's block tables before the step: as many
    /// to that of each group of layers, group by group.
    pub num_new_blocks: u32,
    /// Whether the last computed token's logits choose a new token.
    pub samples: bool,
    /// The prompt token at `position + num_tokens`, given when the sequence asked for prompt log-probabilities and its
    /// prompt goes on after this step: a runner knows only the tokens it was given.
    pub next_prompt_token: Option<u32>,
}

/// A sequence that enters a row: what the runner keeps for it until it is released.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Admission {
    /// The row; its block tables start empty.
    pub row: Row,
    /// How its tokens are chosen.
    pub sampling: Arc<SamplingParams>,
    /// Prompt length in tokens: positions below it are prompt, also after a preemption.
    pub num_prompt_tokens: u32,
    /// The tokens known so far, for sampling that [looks back](SamplingParams::looks_back): those whose KV is taken
    /// over from elsewhere are never computed in this row. The runner adds what it chooses.
    pub known_tokens: Option<KnownTokens>,
}

/// The tokens of a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownTokens {
    /// The prompt.
    pub prompt: Arc<[u32]>,
    /// What has been generated after it.
    pub generated: Vec<u32>,
}

/// A whole-block copy `from -> to`, done before any token of the step is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockCopy {
    /// Source block.
    pub from: BlockId,
    /// Destination block.
    pub to: BlockId,
}

/// A whole-block copy between KV memory and host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSwap {
    /// The block of KV memory.
    pub device: BlockId,
    /// The block of host memory.
    pub host: HostBlockId,
}

/// All that one step does. Applied in this order: `released`, `swapped_out`, `admitted`, `swapped_in`,
/// `block_copies`, then `sequences`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepPlan {
    /// Number of the step, from 1.
    pub step: u64,
    /// Rows whose sequences are gone (finished, cancelled, preempted or failed). Releasing an empty row does nothing:
    /// after a step that failed, its releases come again.
    pub released: Vec<Row>,
    /// Copies of whole blocks to host memory; whoever held them has been released.
    pub swapped_out: Vec<BlockSwap>,
    /// Rows that get a sequence in this step.
    pub admitted: Vec<Admission>,
    /// Copies of whole blocks from host memory, to blocks of rows that are admitted in this step.
    pub swapped_in: Vec<BlockSwap>,
    /// Copies of whole blocks.
    pub block_copies: Vec<BlockCopy>,
    /// Who computes, in the order of the concatenated lists below.
    pub sequences: Vec<SequencePlan>,
    /// Tokens to compute, concatenated: `sum(num_tokens)`.
    pub token_ids: Vec<u32>,
    /// Blocks appended to block tables, concatenated by sequence, then by group: `sum(num_new_blocks)`.
    pub new_blocks: Vec<BlockId>,
}

impl StepPlan {
    /// Empties every list and keeps its memory.
    pub fn clear(&mut self) {
        self.released.clear();
        self.swapped_out.clear();
        self.admitted.clear();
        self.swapped_in.clear();
        self.block_copies.clear();
        self.sequences.clear();
        self.token_ids.clear();
        self.new_blocks.clear();
    }
}

/// A token with its log-probability (see [`LogprobsMode`](crate::sampling::LogprobsMode)) and rank (1 is most likely).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// The token.
    pub token_id: u32,
    /// Natural-log probability, or the logit.
    pub logprob: f32,
    /// Place in the vocabulary by probability, from 1.
    pub rank: u32,
}

/// Log-probabilities at one position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PositionLogprobs {
    /// The token at this position (sampled, or the prompt's).
    pub token: TokenLogprob,
    /// The most likely tokens, best first; as many as were asked for.
    pub top: Vec<TokenLogprob>,
}

/// What came of one [`SequencePlan`], at the same index.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SequenceOutput {
    /// Tokens chosen: empty when the plan did not sample; one without speculation.
    pub token_ids: Vec<u32>,
    /// For each of `token_ids`, when the sequence asked for log-probabilities.
    pub logprobs: Vec<PositionLogprobs>,
    /// For the prompt tokens at positions `position + 1 ..= position + num_tokens` that are in the prompt, when asked for.
    pub prompt_logprobs: Vec<PositionLogprobs>,
}

/// The result of a step: one entry for each of [`StepPlan::sequences`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepOutput {
    /// In the plan's order.
    pub sequences: Vec<SequenceOutput>,
}
