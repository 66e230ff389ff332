//! Steps planned over what steps in flight compute.

use regatta_core::event::{Event, FinishReason};
use regatta_core::plan::StepPlan;
use regatta_core::runner::{RunnerLimits, Ticket};
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{Decision, SchedulerConfig, SchedulingPolicy, WaitReason};

use crate::world::{LIMITS, REPLY, World};

const TWO_IN_FLIGHT: RunnerLimits = RunnerLimits { max_in_flight: 2, feeds_sampled_tokens: true, ..LIMITS };

type Step = (StepPlan, Ticket);

fn world(limits: RunnerLimits) -> World {
    World::new(limits, SchedulerConfig::default())
}

/// Keeps two steps in flight wherever there is one more to plan, until all have ended; returns how many there were, and
/// how many came while another was in flight.
fn run_overlapped(world: &mut World) -> (usize, usize) {
    let (mut num_steps, mut num_overlaps) = (0, 0);
    let mut oldest: Option<Step> = None;
    loop {
        let step = world.submit();
        num_steps += usize::from(step.is_some());
        num_overlaps += usize::from(step.is_some() && oldest.is_some());
        if step.is_none() && oldest.is_none() {
            return (num_steps, num_overlaps);
        }
        oldest.into_iter().for_each(|step| world.settle(step));
        oldest = step;
    }
}

/// Generates up to `stop`, the token at `index`, of what follows the prompt 0, 1, ... in a world of its own.
fn stopping(num_prompt_tokens: u32, index: usize) -> SamplingParams {
    let sampling = SamplingParams { max_tokens: 100, ..SamplingParams::default() };
    let prompt: Vec<u32> = (0..num_prompt_tokens).collect();
    let stop = REPLY.expected(&prompt, &sampling, 2048).token_ids[index];
    SamplingParams { stop_token_ids: vec![stop], ..sampling }
}

#[test]
fn a_decode_goes_on_over_the_token_that_the_step_in_flight_samples() {
    let mut world = world(TWO_IN_FLIGHT);
    world.add(0..5, 10);
    let first = world.submit().unwrap();
    let second = world.submit().unwrap();
    let [ahead] = &second.0.sequences[..] else { panic!("{:?}", second.0) };
    assert_eq!((ahead.position, ahead.num_tokens, ahead.num_placeholders, ahead.samples), (5, 1, 1, true));
    assert_eq!(second.0.token_ids, [0]);
    world.settle(first);
    world.settle(second);
    let third = world.submit().unwrap();
    assert_eq!(third.0.sequences[0].num_placeholders, 0, "no step is in flight, so the token is known");
    world.settle(third);
    world.finish();
}

#[test]
fn a_batch_of_decodes_overlaps_in_every_step() {
    let (num_sequences, len) = if cfg!(miri) { (3, 12) } else { (8, 50) };
    let mut world = world(RunnerLimits { num_blocks: 16 * num_sequences, ..TWO_IN_FLIGHT });
    (0..num_sequences).for_each(|i| _ = world.add(100 * i..100 * i + 5, len));
    assert_eq!(run_overlapped(&mut world), (len as usize, len as usize - 1));
    world.finish();
}

#[test]
fn the_chunks_of_a_prompt_overlap_and_without_tokens_fed_back_nothing_else_does() {
    for (feeds_sampled_tokens, num_overlaps) in [(true, 13), (false, 9)] {
        let mut world =
            world(RunnerLimits { max_num_batched_tokens: 8, feeds_sampled_tokens, ..TWO_IN_FLIGHT });
        // Ten chunks, of which the last samples the first of five tokens.
        world.add(0..80, 5);
        assert_eq!(run_overlapped(&mut world), (14, num_overlaps));
        world.finish();
    }
}

#[test]
fn nothing_is_computed_behind_a_token_that_is_known_to_be_the_last() {
    let mut world = world(TWO_IN_FLIGHT);
    world.add(0..5, 3);
    run_overlapped(&mut world);
    assert_eq!(world.num_computed, 5 + 2);
}

#[test]
fn a_stop_ends_at_once_and_its_blocks_are_kept_for_the_step_that_ran_ahead() {
    let mut world = world(TWO_IN_FLIGHT);
    // The stop token is at position 7, so what runs ahead of it completes a block.
    let id = world.add_with(0..5, 0, stopping(5, 2));
    let mut steps: Vec<Step> = vec![world.submit().unwrap(), world.submit().unwrap()];
    while world.sequences[&id].end.is_none() {
        world.settle(steps.remove(0));
        steps.extend(world.submit());
    }
    assert_eq!(world.tokens_of(id).len(), 3);
    let stats = world.scheduler.stats();
    assert_eq!((stats.running, stats.blocks.in_use, steps.len()), (0, 2, 1));
    assert!(world.scheduler.has_work(), "a step is to be settled");
    world.settle(steps.remove(0));
    let stats = world.scheduler.stats();
    assert!(!world.scheduler.has_work());
    assert_eq!((stats.blocks.in_use, stats.generation_tokens), (0, 3));
    assert_eq!(stats.blocks.cached, 1, "what was computed behind the end is found by nobody");
}

#[test]
fn blocks_of_one_that_has_ended_are_given_to_another_only_when_nothing_writes_to_them() {
    let mut world = world(RunnerLimits { num_blocks: 2, ..TWO_IN_FLIGHT });
    let first = world.add_with(0..4, 0, SamplingParams { max_tokens: 4, ..stopping(4, 0) });
    let second = world.add(100..105, 3);
    let steps = [world.submit().unwrap(), world.submit().unwrap()];
    assert!(steps.iter().all(|(plan, _)| plan.sequences.len() == 1));
    let [one, two] = steps;
    world.settle(one);
    assert!(world.sequences[&first].end.is_some());
    assert!(world.submit().is_none(), "the blocks of the first are still written to");
    world.settle(two);
    world.finish();
    assert_eq!(world.tokens_of(second).len(), 3);
}

#[test]
fn a_cancelled_sequence_ends_with_the_first_of_its_steps_and_leaves_with_the_last() {
    let mut world = world(TWO_IN_FLIGHT);
    let ids = [world.add(0..5, 20), world.add(100..105, 20)];
    let steps = [world.submit().unwrap(), world.submit().unwrap()];
    world.cancel(ids[0]);
    let [one, two] = steps;
    world.settle(one);
    assert!(matches!(
        world.sequences[&ids[0]].end,
        Some(Event::Finished { reason: FinishReason::Abort, .. })
    ));
    let third = world.submit().unwrap();
    assert_eq!(world.ran(), [ids[1]]);
    world.cancel(ids[0]);
    world.settle(two);
    assert_eq!(world.scheduler.stats().blocks.in_use, 2, "those of the other one");
    world.settle(third);
    world.finish();
    assert_eq!(world.tokens_of(ids[1]).len(), 20);
}

#[test]
fn a_step_that_fails_ends_its_sequences_once_and_leaves_alone_who_is_in_the_next_one_only() {
    let mut world = world(TWO_IN_FLIGHT);
    let first = world.add(0..5, 20);
    let one = world.submit().unwrap();
    let other = world.add(100..105, 20);
    let two = world.submit().unwrap();
    assert_eq!(world.ran(), [first, other]);
    world.fail(one);
    assert!(matches!(world.sequences[&first].end, Some(Event::Failed { .. })));
    assert!(world.sequences[&other].end.is_none());
    world.settle(two);
    assert_eq!(world.tokens_of(other).len(), 1);
    world.finish();
    assert_eq!((world.tokens_of(first).len(), world.tokens_of(other).len()), (0, 20));
}

#[test]
fn two_steps_that_fail_one_after_the_other_leave_nothing_behind() {
    let mut world = world(TWO_IN_FLIGHT);
    world.add(0..5, 20);
    let steps = [world.submit().unwrap(), world.submit().unwrap()];
    steps.into_iter().for_each(|step| world.fail(step));
    world.finish();
}

#[test]
fn log_probabilities_of_a_prompt_are_whole_where_its_chunks_overlap() {
    let mut world = world(RunnerLimits { max_num_batched_tokens: 16, ..TWO_IN_FLIGHT });
    let sampling = SamplingParams { max_tokens: 3, prompt_logprobs: Some(0), ..SamplingParams::default() };
    let id = world.add_with(0..50, 0, sampling);
    let (_, num_overlaps) = run_overlapped(&mut world);
    assert_eq!(num_overlaps, 5);
    assert_eq!(world.sequences[&id].prompt_logprobs.len(), 49);
}

#[test]
fn a_full_pool_empties_the_pipeline_and_everybody_ends() {
    for num_blocks in 9..if cfg!(miri) { 10 } else { 16 } {
        let config = SchedulerConfig { reserve_full_isl: false, ..SchedulerConfig::default() };
        let mut world = World::new(RunnerLimits { num_blocks, ..TWO_IN_FLIGHT }, config);
        (0..4).for_each(|i| _ = world.add(100 * i..100 * i + 8, 24));
        let (num_steps, num_overlaps) = run_overlapped(&mut world);
        assert!(num_steps <= 4 * 24 * 2, "{num_steps} steps");
        assert!(num_overlaps > num_steps / 2, "{num_overlaps} of {num_steps} steps");
        assert!(world.scheduler.stats().recompute_preemptions > 0);
        world.finish();
    }
}

#[test]
fn an_urgent_sequence_gets_what_those_that_run_ahead_hold() {
    // In the first world it lacks a row, in the second one blocks of both others.
    for limits in
        [RunnerLimits { max_num_seqs: 2, ..TWO_IN_FLIGHT }, RunnerLimits { num_blocks: 24, ..TWO_IN_FLIGHT }]
    {
        let policy = SchedulingPolicy::Priority { ageing_steps: 1000 };
        let mut world = World::new(limits, SchedulerConfig { policy, ..SchedulerConfig::default() });
        let patient = [world.add_with_priority(0..16, 8, 5), world.add_with_priority(100..116, 8, 5)];
        let mut steps: Vec<Step> = vec![world.submit().unwrap(), world.submit().unwrap()];
        assert_eq!(world.ran(), patient);
        let urgent = world.add_with_priority(200..288, 2, 0);
        let mut num_tries = 0;
        while !world.ran().contains(&urgent) {
            num_tries += 1;
            assert!(num_tries <= 2, "it waits for more than the steps that were in flight");
            steps.drain(..1).for_each(|step| world.settle(step));
            steps.extend(world.submit());
        }
        steps.into_iter().for_each(|step| world.settle(step));
        world.finish();
    }
}

#[test]
fn a_step_says_who_waits_for_what_is_in_flight() {
    let mut world = world(RunnerLimits { feeds_sampled_tokens: false, ..TWO_IN_FLIGHT });
    let id = world.add(0..5, 10);
    let step = world.submit().unwrap();
    assert!(world.submit().is_none());
    assert_eq!(world.scheduler.decisions(), [Decision::Waits { id, because: WaitReason::InFlight }]);
    world.settle(step);
    world.finish();
}
