//! What can happen, as proptest strategies.

use proptest::prelude::*;
use regatta_core::kv::{FreeOrder, KvGroup, KvGroups};
use regatta_core::runner::RunnerLimits;
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{PreemptionCosts, PreemptionMode, SchedulerConfig, SchedulingPolicy};

/// A world and what happens in it.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) limits: RunnerLimits,
    pub(crate) config: SchedulerConfig,
    pub(crate) vocab_size: u32,
    pub(crate) operations: Vec<Operation>,
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// A sequence whose prompt is `shared` tokens that many have in common, then `own` ones; of one seed, with a salt.
    Arrive { shared: u32, own: u32, own_seed: u32, priority: i32, holds: bool, sampling: SamplingParams },
    /// Another choice of a sequence that has arrived, ended or not, for the same prompt; of one that holds, another
    /// continuation of what it has so far.
    Fork { of: prop::sample::Index, choice: u32, max_tokens: u32 },
    /// Resumes one of those that are held.
    Resume { which: prop::sample::Index, token_id: u32 },
    /// Cancels one of those that have arrived, ended or not.
    Cancel(prop::sample::Index),
    /// Plans and submits a step if one may be in flight, else settles the oldest.
    Step,
    /// The same, several times.
    Steps(u32),
    /// Tells the scheduler what preempting costs.
    Costs(PreemptionCosts),
    /// Settles the oldest step in flight as one that could not be run.
    FailStep,
    /// Empties the prefix cache.
    Reset,
}

/// Longest of some random length; under Miri, which takes a thousand times as long, no more than `miri`.
const fn most(len: u32, miri: u32) -> u32 {
    if cfg!(miri) { miri } else { len }
}

fn sampling() -> impl Strategy<Value = SamplingParams> {
    let logprobs = || prop::option::weighted(0.3, 0u32..3);
    let stops = prop::collection::vec(0u32..8, 0..3);
    let penalty = prop::sample::select(vec![0.0, 0.0, 0.5]);
    (1..most(40, 8), any::<u8>(), 0u32..3, logprobs(), logprobs(), stops, penalty).prop_map(
        |(max_tokens, seed, choice, logprobs, prompt_logprobs, stop_token_ids, frequency_penalty)| {
            SamplingParams {
                // The fake runner checks the tokens that a penalty looks back at.
                frequency_penalty,
                max_tokens,
                seed: u64::from(seed),
                choice,
                logprobs,
                prompt_logprobs,
                stop_token_ids,
                ..SamplingParams::default()
            }
        },
    )
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => (0..most(48, 8), 0..most(24, 6), 0u32..4, priority(), prop::bool::weighted(0.2), sampling()).prop_map(
            |(shared, own, own_seed, priority, holds, sampling)| {
                Operation::Arrive { shared, own, own_seed, priority, holds, sampling }
            }
        ),
        1 => (any::<prop::sample::Index>(), 0u32..3, 1..most(40, 8))
            .prop_map(|(of, choice, max_tokens)| Operation::Fork { of, choice, max_tokens }),
        3 => (any::<prop::sample::Index>(), 0u32..8)
            .prop_map(|(which, token_id)| Operation::Resume { which, token_id }),
        1 => any::<prop::sample::Index>().prop_map(Operation::Cancel),
        8 => Just(Operation::Step),
        1 => (1..most(60, 8)).prop_map(Operation::Steps),
        1 => Just(Operation::FailStep),
        1 => (0u64..4, 0u64..40).prop_map(|(recompute_ns_per_token, swap_ns_per_block)| {
            Operation::Costs(PreemptionCosts { recompute_ns_per_token, swap_ns_per_block })
        }),
        1 => Just(Operation::Reset),
    ]
}

/// One group of full attention half of the time; else up to three of any kind.
fn kv_groups() -> impl Strategy<Value = KvGroups> {
    let window = (1u32..40).prop_map(|window| KvGroup::SlidingWindow { window });
    let group = prop_oneof![1 => Just(KvGroup::Full), 2 => window];
    let groups = prop::collection::vec(group, 1..4).prop_map(|groups| KvGroups::new(&groups).unwrap());
    prop_oneof![Just(KvGroups::FULL), groups]
}

fn priority() -> impl Strategy<Value = i32> {
    prop_oneof![4 => -2i32..3, 1 => Just(i32::MIN), 1 => Just(i32::MAX)]
}

fn limits() -> impl Strategy<Value = RunnerLimits> {
    let budget = prop_oneof![1u32..8, 8u32..200];
    (1u32..9, 1..most(60, 20), kv_groups(), 0..most(80, 20), 1u32..9, budget, (1u32..4, any::<bool>()))
        .prop_map(
            |(
                block_size,
                num_blocks,
                kv_groups,
                num_host_blocks,
                max_num_seqs,
                max_num_batched_tokens,
                (max_in_flight, feeds_sampled_tokens),
            )| {
                RunnerLimits {
                    block_size,
                    num_blocks,
                    kv_groups,
                    num_host_blocks,
                    max_num_seqs,
                    max_num_batched_tokens,
                    max_in_flight,
                    feeds_sampled_tokens,
                }
            },
        )
}

fn config() -> impl Strategy<Value = SchedulerConfig> {
    let free_order = prop_oneof![Just(FreeOrder::Ascending), any::<u64>().prop_map(FreeOrder::Shuffled)];
    let policy = prop_oneof![
        Just(SchedulingPolicy::Fcfs),
        (0u32..40).prop_map(|ageing_steps| SchedulingPolicy::Priority { ageing_steps }),
    ];
    let preemption_mode = prop_oneof![
        Just(PreemptionMode::ByCost),
        Just(PreemptionMode::Recompute),
        Just(PreemptionMode::Swap)
    ];
    let prefill = (prop::option::of(1u32..16), 1u32..4, any::<bool>());
    (2u32..120, prefill, policy, preemption_mode, any::<bool>(), free_order).prop_map(
        |(max_model_len, prefill, policy, preemption_mode, enable_prefix_caching, free_order)| {
            let (long_prefill_token_threshold, max_num_partial_prefills, reserve_full_isl) = prefill;
            SchedulerConfig {
                max_model_len,
                policy,
                long_prefill_token_threshold,
                max_num_partial_prefills,
                reserve_full_isl,
                preemption_mode,
                enable_prefix_caching,
                free_order,
                kv_events: true,
                ..SchedulerConfig::default()
            }
        },
    )
}

pub(crate) fn scenario() -> impl Strategy<Value = Scenario> {
    (limits(), config(), 2u32..100, prop::collection::vec(operation(), 1..most(120, 24) as usize)).prop_map(
        |(limits, config, vocab_size, operations)| Scenario { limits, config, vocab_size, operations },
    )
}
