//! What the scheduler may do, and what it can ever run.

use serde::{Deserialize, Serialize};

use crate::kv::{FreeOrder, KvGroups};
use crate::runner::RunnerLimits;

/// Whom the scheduler serves first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchedulingPolicy {
    /// Who arrived first; priorities are not looked at.
    #[default]
    Fcfs,
    /// Who has the lower priority, then who arrived first; takes rows and blocks from sequences of higher numbers.
    Priority {
        /// Steps that a sequence waits at most, over all its waits, before it goes before every priority.
        ageing_steps: u32,
    },
}

/// What becomes of the KV of a sequence that must give its blocks back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreemptionMode {
    /// The cheaper of both, by the [`PreemptionCosts`] that the scheduler was told; without them, [`Self::Recompute`].
    #[default]
    ByCost,
    /// It is lost and computed again.
    Recompute,
    /// It goes to host memory and comes back; where that is full, it is computed again.
    Swap,
}

/// What both ways of preempting cost on this machine, measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreemptionCosts {
    /// Nanoseconds to compute the KV of one token in a prefill.
    pub recompute_ns_per_token: u64,
    /// Nanoseconds to copy one block to host memory, or back.
    pub swap_ns_per_block: u64,
}

impl PreemptionCosts {
    /// Whether `num_blocks` go to host memory and back in less time than `num_tokens` are computed.
    pub fn favour_swap(&self, num_blocks: u32, num_tokens: u32) -> bool {
        let swap = self.swap_ns_per_block.saturating_mul(2 * u64::from(num_blocks));
        swap < self.recompute_ns_per_token.saturating_mul(u64::from(num_tokens))
    }
}

/// The scheduler's settings. Where the runner holds less, the runner's limits win.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerConfig {
    /// Most sequences in a step; at least 1.
    pub max_num_seqs: u32,
    /// Most tokens in a step; at least 1.
    pub max_num_batched_tokens: u32,
    /// Most tokens in a sequence, prompt and generated; at least 2.
    pub max_model_len: u32,
    /// Whom to serve first.
    pub policy: SchedulingPolicy,
    /// Most tokens that one sequence gets in a step; absent: the whole budget.
    pub long_prefill_token_threshold: Option<u32>,
    /// Most sequences in a step that get a part of their pending tokens and not all; at least 1.
    pub max_num_partial_prefills: u32,
    /// Whether a sequence is admitted only where there are blocks for all its known tokens, and not just for those of
    /// its first step.
    pub reserve_full_isl: bool,
    /// What becomes of the KV of preempted sequences.
    pub preemption_mode: PreemptionMode,
    /// Whether full blocks are found again by later sequences with the same beginning.
    pub enable_prefix_caching: bool,
    /// Names the model in block hashes: whatever changes the KV of equal tokens must change it.
    pub model_identity: String,
    /// Whether changes of the prefix cache are kept for [`Scheduler::take_kv_events`](super::Scheduler::take_kv_events).
    #[serde(default)]
    pub kv_events: bool,
    /// Order in which free blocks are handed out.
    pub free_order: FreeOrder,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            max_num_seqs: 256,
            max_num_batched_tokens: 2048,
            max_model_len: 2048,
            policy: SchedulingPolicy::Fcfs,
            long_prefill_token_threshold: None,
            max_num_partial_prefills: 1,
            reserve_full_isl: true,
            preemption_mode: PreemptionMode::ByCost,
            enable_prefix_caching: true,
            model_identity: String::new(),
            kv_events: false,
            free_order: FreeOrder::Ascending,
        }
    }
}

/// A sequence that can never run here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// There is nothing to continue.
    #[error("the prompt is empty; send at least one token")]
    EmptyPrompt,
    /// No room for even one new token.
    #[error(
        "the prompt has {num_prompt_tokens} tokens and the model's length is {max_model_len}, which leaves no room \
         for a new one; shorten the prompt"
    )]
    TooLong {
        /// Prompt length.
        num_prompt_tokens: usize,
        /// The limit.
        max_model_len: u32,
    },
    /// Its KV would need more blocks than there are.
    #[error(
        "{num_prompt_tokens} prompt tokens and up to {max_tokens} new ones need {num_blocks_needed} KV blocks of \
         {block_size} tokens, and the pool has {num_blocks}; ask for less, or give the engine more KV memory"
    )]
    DoesNotFit {
        /// Prompt length.
        num_prompt_tokens: usize,
        /// New tokens asked for.
        max_tokens: u32,
        /// Blocks for all of them.
        num_blocks_needed: u32,
        /// Tokens in a block.
        block_size: u32,
        /// Blocks in the pool.
        num_blocks: u32,
    },
}

/// Limits on one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceLimits {
    /// Most tokens, prompt and generated.
    pub max_model_len: u32,
    /// Tokens in a KV block.
    pub block_size: u32,
    /// KV blocks in the pool.
    pub num_blocks: u32,
    /// Groups of layers, each with blocks of its own.
    pub kv_groups: KvGroups,
    /// Most tokens of one sequence that are computed at a time.
    pub max_step_tokens: u32,
}

impl SequenceLimits {
    pub(super) fn new(config: &SchedulerConfig, runner: &RunnerLimits) -> Self {
        let budget = config.max_num_batched_tokens.min(runner.max_num_batched_tokens).max(1);
        let share = config.long_prefill_token_threshold.unwrap_or(u32::MAX).clamp(1, budget);
        Self {
            max_model_len: config.max_model_len,
            block_size: runner.block_size,
            num_blocks: runner.num_blocks,
            kv_groups: runner.kv_groups,
            max_step_tokens: share.saturating_mul(runner.max_in_flight.max(1)),
        }
    }

    /// How many of `max_tokens` new tokens a prompt of this length may get (at least 1).
    pub fn check(&self, num_prompt_tokens: usize, max_tokens: u32) -> Result<u32, AdmissionError> {
        if num_prompt_tokens == 0 {
            return Err(AdmissionError::EmptyPrompt);
        }
        let max_model_len = self.max_model_len;
        let room = (max_model_len as usize).saturating_sub(num_prompt_tokens) as u32;
        if room == 0 {
            return Err(AdmissionError::TooLong { num_prompt_tokens, max_model_len });
        }
        let max_tokens = max_tokens.clamp(1, room);
        // The last new token ends the sequence, so its KV is never computed.
        let num_tokens = num_prompt_tokens as u32 + max_tokens - 1;
        let num_blocks_needed = self.kv_groups.max_blocks(num_tokens, self.max_step_tokens, self.block_size);
        if num_blocks_needed > self.num_blocks {
            let (block_size, num_blocks) = (self.block_size, self.num_blocks);
            let error = AdmissionError::DoesNotFit {
                num_prompt_tokens,
                max_tokens,
                num_blocks_needed,
                block_size,
                num_blocks,
            };
            return Err(error);
        }
        Ok(max_tokens)
    }
}
