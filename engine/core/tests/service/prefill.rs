//! What long prompts cost others.

use regatta_core::runner::RunnerLimits;
use regatta_core::scheduler::SchedulerConfig;

use crate::world::{LIMITS, World};

#[test]
fn a_prompt_of_100_000_tokens_costs_decodes_one_budget_a_step_and_no_step() {
    let (len, budget, num_blocks) = if cfg!(miri) { (500, 64, 160) } else { (100_000, 512, 8192) };
    let limits = RunnerLimits { block_size: 16, num_blocks, max_num_batched_tokens: budget, ..LIMITS };
    let config = SchedulerConfig { max_model_len: 120_000, ..SchedulerConfig::default() };
    let mut world = World::new(limits, config);
    let decoding: Vec<_> = (0..4).map(|i| world.add([i; 8], 400)).collect();
    world.step();
    let long = world.add((0..len).map(|i| i % 997), 1);
    let mut num_steps = 0;
    while world.tokens_of(long).is_empty() {
        world.step();
        num_steps += 1;
        assert!(world.plan.token_ids.len() <= budget as usize);
        assert_eq!(world.ran()[..4], decoding, "a decode was left out");
    }
    assert_eq!(num_steps, len.div_ceil(budget - 4));
}

fn num_partial(world: &World) -> usize {
    world.plan.sequences.iter().filter(|sequence| !sequence.samples).count()
}

#[test]
fn no_more_prompts_are_in_parts_than_allowed() {
    for max_num_partial_prefills in if cfg!(miri) { 2..3 } else { 1..4 } {
        let config = SchedulerConfig {
            long_prefill_token_threshold: Some(4),
            max_num_partial_prefills,
            ..SchedulerConfig::default()
        };
        let mut world = World::new(LIMITS, config);
        for i in 0..5 {
            world.add(100 * i..100 * i + 21, 2);
        }
        world.step();
        assert_eq!(num_partial(&world), max_num_partial_prefills as usize);
        while world.step() {
            assert!(num_partial(&world) <= max_num_partial_prefills as usize);
        }
        world.finish();
    }
}

#[test]
fn a_short_prompt_behind_a_long_one_in_parts_is_computed_at_once() {
    let config = SchedulerConfig { long_prefill_token_threshold: Some(4), ..SchedulerConfig::default() };
    let mut world = World::new(LIMITS, config);
    world.add(0..40, 2);
    let short = world.add(100..104, 2);
    world.step();
    assert_eq!(world.tokens_of(short).len(), 1);
    world.finish();
}

#[test]
fn without_the_reserve_a_prompt_is_admitted_to_its_first_part() {
    let admitted = |reserve_full_isl| {
        let limits = RunnerLimits { num_blocks: 12, max_num_batched_tokens: 12, ..LIMITS };
        let config = SchedulerConfig { reserve_full_isl, ..SchedulerConfig::default() };
        let mut world = World::new(limits, config);
        world.add(0..8, 16);
        world.step();
        world.add(100..140, 1);
        world.step();
        let num_ran = world.ran().len();
        world.finish();
        num_ran
    };
    assert_eq!((admitted(true), admitted(false)), (1, 2));
}
