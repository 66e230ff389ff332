//! What can happen, as proptest strategies.

use proptest::prelude::*;
use regatta_core::kv::{FreeOrder, KvGroup, KvGroups};
use regatta_core::sampling::SamplingParams;

/// A world and what happens in it.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) block_size: u32,
    pub(crate) num_blocks: u32,
    pub(crate) kv_groups: KvGroups,
    pub(crate) num_rows: u32,
    pub(crate) budget: u32,
    pub(crate) max_model_len: u32,
    pub(crate) threshold: Option<u32>,
    pub(crate) free_order: FreeOrder,
    pub(crate) max_in_flight: u32,
    pub(crate) prefix_caching: bool,
    pub(crate) vocab_size: u32,
    pub(crate) operations: Vec<Operation>,
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// A sequence whose prompt is `shared` tokens that many have in common, then `own` ones.
    Arrive { shared: u32, own: u32, own_seed: u32, sampling: SamplingParams },
    /// Cancels one of those that have arrived, ended or not.
    Cancel(prop::sample::Index),
    /// Plans and submits a step if one may be in flight, else settles the oldest.
    Step,
    /// The same, several times.
    Steps(u8),
    /// Settles the oldest step in flight as one that could not be run.
    FailStep,
}

fn sampling() -> impl Strategy<Value = SamplingParams> {
    let logprobs = || prop::option::weighted(0.3, 0u32..3);
    let stops = prop::collection::vec(0u32..8, 0..3);
    let penalty = prop::sample::select(vec![0.0, 0.0, 0.5]);
    (1u32..40, any::<u8>(), 0u32..3, logprobs(), logprobs(), stops, penalty).prop_map(
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
        3 => (0u32..48, 0u32..24, 0u32..4, sampling())
            .prop_map(|(shared, own, own_seed, sampling)| Operation::Arrive { shared, own, own_seed, sampling }),
        1 => any::<prop::sample::Index>().prop_map(Operation::Cancel),
        8 => Just(Operation::Step),
        1 => (1u8..60).prop_map(Operation::Steps),
        1 => Just(Operation::FailStep),
    ]
}

/// One group of full attention half of the time; else up to three of any kind.
fn kv_groups() -> impl Strategy<Value = KvGroups> {
    let window = (1u32..40).prop_map(|window| KvGroup::SlidingWindow { window });
    let group = prop_oneof![1 => Just(KvGroup::Full), 2 => window];
    let groups = prop::collection::vec(group, 1..4).prop_map(|groups| KvGroups::new(&groups).unwrap());
    prop_oneof![Just(KvGroups::FULL), groups]
}

pub(crate) fn scenario() -> impl Strategy<Value = Scenario> {
    let order = prop_oneof![Just(FreeOrder::Ascending), any::<u64>().prop_map(FreeOrder::Shuffled)];
    let sizes = (1u32..9, 1u32..60, kv_groups(), 1u32..9, prop_oneof![1u32..8, 8u32..200], 2u32..120);
    let modes = (prop::option::of(1u32..16), order, 1u32..3, any::<bool>(), 2u32..100);
    (sizes, modes, prop::collection::vec(operation(), 1..120)).prop_map(|(sizes, modes, operations)| {
        let (block_size, num_blocks, kv_groups, num_rows, budget, max_model_len) = sizes;
        let (threshold, free_order, max_in_flight, prefix_caching, vocab_size) = modes;
        Scenario {
            block_size,
            num_blocks,
            kv_groups,
            num_rows,
            budget,
            max_model_len,
            threshold,
            free_order,
            max_in_flight,
            prefix_caching,
            vocab_size,
            operations,
        }
    })
}
