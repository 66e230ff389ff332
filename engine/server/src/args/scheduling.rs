//! What is said about scheduling, by the same flags wherever something is scheduled.

use clap::{ArgAction, Args, ValueEnum};
use regatta_core::scheduler::{PreemptionMode, SchedulerConfig, SchedulingPolicy};

use super::{
    settings::within,
    units::{Count, Length},
};

/// Upper bounds that keep buffers, which grow with these, within reason.
const MAX_NUM_SEQS: u32 = 4096;
const MAX_NUM_BATCHED_TOKENS: u64 = 1 << 20;
const MAX_BLOCK_SIZE: u32 = 256;
/// Where priorities decide and nothing else is said.
const PRIORITY_AGEING_STEPS: u32 = 10_000;
/// Longest sequence that can be asked for.
const MAX_MODEL_LEN: u64 = 1 << 24;

#[derive(Debug, Args)]
pub(super) struct SchedulerFlags {
    /// Most tokens in a sequence (8k is 8000, 8K is 8192); auto: the model's own limit, or what fits
    #[arg(long, value_name = "TOKENS", default_value = "auto", allow_hyphen_values = true)]
    max_model_len: Length,
    /// Most sequences that run at once
    #[arg(long, value_name = "N", default_value_t = 128)]
    max_num_seqs: u32,
    /// Most tokens computed in one step
    #[arg(long, value_name = "TOKENS", default_value = "512")]
    max_num_batched_tokens: Count,
    /// Most tokens that one sequence gets in a step; 0: all of --max-num-batched-tokens
    #[arg(long, value_name = "TOKENS", default_value = "0")]
    long_prefill_token_threshold: Count,
    /// Most prompts of a step that are computed in part and not to their end
    #[arg(long, value_name = "N", default_value_t = 1)]
    max_num_partial_prefills: u32,
    /// Admit a prompt only where there are KV blocks for all of it; the default
    #[arg(long, action = ArgAction::SetTrue, overrides_with = "no_scheduler_reserve_full_isl")]
    scheduler_reserve_full_isl: bool,
    /// Admit a prompt where there are KV blocks for what its first step computes
    #[arg(long, action = ArgAction::SetTrue, overrides_with = "scheduler_reserve_full_isl")]
    no_scheduler_reserve_full_isl: bool,
    /// Who goes first: who came first, or who has the lower `priority`
    #[arg(long, value_name = "POLICY", value_enum, default_value = "fcfs")]
    scheduling_policy: Policy,
    /// Steps that a request waits at most, in all, before it goes before every priority; absent: 10000
    #[arg(long, value_name = "STEPS")]
    priority_ageing_steps: Option<u32>,
    /// What becomes of the KV of a preempted request; absent: the cheaper of both, as measured
    #[arg(long, value_name = "MODE", value_enum)]
    preemption_mode: Option<Preempts>,
    /// Tokens in a KV block
    #[arg(long, value_name = "TOKENS", default_value_t = 16)]
    block_size: u32,
    /// Use the KV of a beginning that was computed before; the default
    #[arg(long, action = ArgAction::SetTrue, overrides_with = "no_enable_prefix_caching")]
    enable_prefix_caching: bool,
    /// Compute every prompt from its first token
    #[arg(long, action = ArgAction::SetTrue, overrides_with = "enable_prefix_caching")]
    no_enable_prefix_caching: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Policy {
    Fcfs,
    Priority,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Preempts {
    Recompute,
    Swap,
}

/// How steps are planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerSettings {
    /// Longest sequence, prompt and answer together.
    pub max_model_len: MaxModelLen,
    /// Most sequences that run at once.
    pub max_num_seqs: u32,
    /// Most tokens in a step.
    pub max_num_batched_tokens: u32,
    /// Most tokens that one sequence gets in a step; absent: all of them.
    pub long_prefill_token_threshold: Option<u32>,
    /// Most sequences of a step that get a part of their pending tokens and not all.
    pub max_num_partial_prefills: u32,
    /// Whether admission keeps room for whole prompts.
    pub reserve_full_isl: bool,
    /// Whom to serve first.
    pub policy: SchedulingPolicy,
    /// What becomes of the KV of preempted sequences.
    pub preemption_mode: PreemptionMode,
    /// Tokens in a KV block; a power of two.
    pub block_size: u32,
    /// Whether beginnings in common are computed once.
    pub enable_prefix_caching: bool,
}

/// How long a sequence may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxModelLen {
    /// The model's own limit, or less where the KV cache holds less.
    Auto,
    /// This many tokens; refused when the model or the KV cache cannot.
    Tokens(u32),
}

impl SchedulerSettings {
    /// The scheduler's settings for sequences of at most `max_model_len` tokens.
    pub fn config(&self, max_model_len: u32) -> SchedulerConfig {
        SchedulerConfig {
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            max_model_len,
            policy: self.policy,
            long_prefill_token_threshold: self.long_prefill_token_threshold,
            max_num_partial_prefills: self.max_num_partial_prefills,
            reserve_full_isl: self.reserve_full_isl,
            preemption_mode: self.preemption_mode,
            enable_prefix_caching: self.enable_prefix_caching,
            ..SchedulerConfig::default()
        }
    }
}

impl TryFrom<SchedulerFlags> for SchedulerSettings {
    /// A sentence that names the flag, what is wrong, and what would be right.
    type Error = String;

    fn try_from(flags: SchedulerFlags) -> Result<Self, String> {
        let block_size = flags.block_size;
        if !block_size.is_power_of_two() || block_size > MAX_BLOCK_SIZE {
            return Err(format!(
                "--block-size {block_size}: must be a power of two, at most {MAX_BLOCK_SIZE}"
            ));
        }
        Ok(Self {
            max_model_len: match flags.max_model_len {
                Length::Auto => MaxModelLen::Auto,
                Length::Tokens(Count(n)) => {
                    MaxModelLen::Tokens(within("--max-model-len", n, 2, MAX_MODEL_LEN)?)
                }
            },
            max_num_seqs: within("--max-num-seqs", flags.max_num_seqs.into(), 1, MAX_NUM_SEQS.into())?,
            max_num_batched_tokens: within(
                "--max-num-batched-tokens",
                flags.max_num_batched_tokens.0,
                1,
                MAX_NUM_BATCHED_TOKENS,
            )?,
            long_prefill_token_threshold: match flags.long_prefill_token_threshold.0 {
                0 => None,
                n => Some(within("--long-prefill-token-threshold", n, 1, MAX_NUM_BATCHED_TOKENS)?),
            },
            max_num_partial_prefills: within(
                "--max-num-partial-prefills",
                flags.max_num_partial_prefills.into(),
                1,
                MAX_NUM_SEQS.into(),
            )?,
            // The later of the two flags clears the earlier.
            reserve_full_isl: flags.scheduler_reserve_full_isl || !flags.no_scheduler_reserve_full_isl,
            policy: policy(flags.scheduling_policy, flags.priority_ageing_steps)?,
            preemption_mode: match flags.preemption_mode {
                None => PreemptionMode::ByCost,
                Some(Preempts::Recompute) => PreemptionMode::Recompute,
                Some(Preempts::Swap) => PreemptionMode::Swap,
            },
            block_size,
            // The later of the two flags clears the earlier.
            enable_prefix_caching: flags.enable_prefix_caching || !flags.no_enable_prefix_caching,
        })
    }
}

fn policy(policy: Policy, ageing_steps: Option<u32>) -> Result<SchedulingPolicy, String> {
    match (policy, ageing_steps) {
        (Policy::Fcfs, None) => Ok(SchedulingPolicy::Fcfs),
        (Policy::Fcfs, Some(_)) => {
            Err("--priority-ageing-steps: nobody has a priority; give --scheduling-policy priority as well"
                .into())
        }
        (Policy::Priority, steps) => {
            let steps = steps.unwrap_or(PRIORITY_AGEING_STEPS).into();
            let ageing_steps = within("--priority-ageing-steps", steps, 1, u32::MAX.into())?;
            Ok(SchedulingPolicy::Priority { ageing_steps })
        }
    }
}
