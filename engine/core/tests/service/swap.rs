//! What becomes of the KV of those who give way.

use regatta_core::runner::RunnerLimits;
use regatta_core::scheduler::{
    Decision, Preemption, PreemptionCosts, PreemptionMode, SchedulerConfig, SchedulingPolicy,
};
use regatta_core::sequence::SequenceId;

use crate::world::{LIMITS, World};

fn config(preemption_mode: PreemptionMode) -> SchedulerConfig {
    SchedulerConfig {
        policy: SchedulingPolicy::Priority { ageing_steps: 1000 },
        preemption_mode,
        // What the cache keeps of a sequence would be found again.
        enable_prefix_caching: false,
        ..SchedulerConfig::default()
    }
}

const ONE_ROW: RunnerLimits = RunnerLimits { max_num_seqs: 1, num_host_blocks: 16, ..LIMITS };

/// A patient sequence that has run two steps and then lost its row to an urgent one.
fn ousted(
    limits: RunnerLimits,
    config: SchedulerConfig,
    costs: Option<PreemptionCosts>,
) -> (World, SequenceId) {
    let mut world = World::new(limits, config);
    costs.into_iter().for_each(|costs| world.scheduler.set_preemption_costs(costs));
    let patient = world.add_with_priority(0..18, 10, 1);
    world.step();
    world.step();
    world.add_with_priority(100..104, 3, 0);
    world.step();
    (world, patient)
}

fn how(world: &World) -> Option<Preemption> {
    world.scheduler.decisions().iter().find_map(|decision| match *decision {
        Decision::Preempted { how, .. } => Some(how),
        _ => None,
    })
}

#[test]
fn a_swapped_sequence_goes_on_where_it_was_and_computes_nothing_again() {
    let (mut world, _) = ousted(ONE_ROW, config(PreemptionMode::Swap), None);
    let stats = world.scheduler.stats();
    assert_eq!((stats.swapped, stats.host_blocks.in_use, stats.swap_preemptions), (1, 5, 1));
    assert_eq!(world.plan.swapped_out.len(), 5);
    world.finish();
    // All tokens once but for the last of each, whose KV nobody needs.
    assert_eq!(world.num_computed, 18 + 9 + 4 + 2);
    assert_eq!(world.scheduler.stats().recompute_preemptions, 0);
}

#[test]
fn a_recomputed_sequence_computes_what_it_had_again() {
    let (mut world, _) = ousted(ONE_ROW, config(PreemptionMode::Recompute), None);
    world.finish();
    assert_eq!(world.num_computed, (18 + 9 + 4 + 2) + 19);
    let stats = world.scheduler.stats();
    assert_eq!((stats.recompute_preemptions, stats.swap_preemptions), (1, 0));
}

#[test]
fn where_host_blocks_are_short_a_sequence_is_computed_again() {
    let limits = RunnerLimits { num_host_blocks: 4, ..ONE_ROW };
    let (mut world, _) = ousted(limits, config(PreemptionMode::Swap), None);
    assert_eq!(how(&world), Some(Preemption::Recompute));
    world.finish();
}

#[test]
fn the_cheaper_way_is_taken() {
    let how_with = |costs| how(&ousted(ONE_ROW, config(PreemptionMode::ByCost), costs).0);
    let costs = |recompute_ns_per_token, swap_ns_per_block| {
        Some(PreemptionCosts { recompute_ns_per_token, swap_ns_per_block })
    };
    // Five blocks there and back against 19 tokens.
    assert_eq!(how_with(costs(100, 189)), Some(Preemption::Swap));
    assert_eq!(how_with(costs(100, 191)), Some(Preemption::Recompute));
    assert_eq!(how_with(None), Some(Preemption::Recompute), "nobody knows what swapping costs");
}

#[test]
fn blocks_that_others_keep_count_as_lost_by_nobody() {
    let mut config = config(PreemptionMode::ByCost);
    config.enable_prefix_caching = true;
    let mut world = World::new(RunnerLimits { max_num_seqs: 2, num_host_blocks: 16, ..LIMITS }, config);
    world
        .scheduler
        .set_preemption_costs(PreemptionCosts { recompute_ns_per_token: 10, swap_ns_per_block: 10 });
    world.add_with_priority(0..18, 20, 0);
    world.step();
    // Shares four of its five blocks with the first: three tokens are lost, against five blocks to copy.
    world.add_with_priority(0..18, 10, 1);
    world.step();
    world.step();
    world.add_with_priority(100..104, 3, 0);
    world.step();
    assert_eq!(how(&world), Some(Preemption::Recompute));
    world.finish();
}

#[test]
fn swapped_sequences_return_in_order() {
    let limits = RunnerLimits { max_num_seqs: 2, num_host_blocks: 32, ..LIMITS };
    let mut world = World::new(limits, config(PreemptionMode::Swap));
    let patient = [1, 2].map(|priority| world.add_with_priority(0..10, 10, priority));
    world.step();
    for i in 0..2 {
        world.add_with_priority(100 * i..100 * i + 4, 2 + i, 0);
    }
    world.step();
    assert_eq!(world.scheduler.stats().swapped, 2);
    let mut returned = Vec::new();
    while world.step() {
        returned.extend(world.scheduler.decisions().iter().filter_map(|decision| match *decision {
            Decision::Admitted { id, .. } => Some(id),
            _ => None,
        }));
    }
    assert_eq!(returned, patient);
    world.finish();
}

#[test]
fn what_a_failed_step_was_to_swap_is_computed_again() {
    let mut world = World::new(ONE_ROW, config(PreemptionMode::Swap));
    let patient = world.add_with_priority(0..18, 10, 1);
    world.step();
    world.add_with_priority(100..104, 3, 0);
    let step = world.submit().unwrap();
    assert_eq!(step.0.swapped_out.len(), 5);
    world.fail(step);
    assert_eq!(world.scheduler.stats().host_blocks.in_use, 0);
    world.step();
    assert_eq!((world.ran(), world.plan.token_ids.len()), (vec![patient], 19));
    world.finish();
}

#[test]
fn a_swapped_sequence_that_is_cancelled_gives_its_host_blocks_back() {
    let (mut world, patient) = ousted(ONE_ROW, config(PreemptionMode::Swap), None);
    world.cancel(patient);
    let stats = world.scheduler.stats();
    assert_eq!((stats.swapped, stats.host_blocks.in_use), (0, 0));
    world.finish();
}
