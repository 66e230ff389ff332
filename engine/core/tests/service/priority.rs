//! Lower priorities go first, and nobody waits for ever.

use proptest::prelude::*;
use regatta_core::runner::RunnerLimits;
use regatta_core::scheduler::{SchedulerConfig, SchedulingPolicy};
use regatta_core::sequence::SequenceId;

use crate::world::{LIMITS, World};

const ONE_ROW: RunnerLimits = RunnerLimits { max_num_seqs: 1, ..LIMITS };

fn by_priority(ageing_steps: u32) -> SchedulerConfig {
    SchedulerConfig { policy: SchedulingPolicy::Priority { ageing_steps }, ..SchedulerConfig::default() }
}

/// Runs all and lists them by their end.
fn order_of_ends(world: &mut World) -> Vec<SequenceId> {
    let mut ends = Vec::new();
    while world.step() {
        let ended = world.sequences.iter().filter(|(_, known)| known.end.is_some()).map(|(&id, _)| id);
        let new: Vec<_> = ended.filter(|id| !ends.contains(id)).collect();
        ends.extend(new);
    }
    ends
}

#[test]
fn the_lowest_priority_goes_first_among_those_that_wait() {
    let mut world = World::new(ONE_ROW, by_priority(1000));
    let ids = [3, i32::MAX, -7, 3, i32::MIN].map(|priority| world.add_with_priority(0..4, 2, priority));
    let expected = [4, 2, 0, 3, 1].map(|index: usize| ids[index]);
    assert_eq!(order_of_ends(&mut world), expected);
}

#[test]
fn first_come_first_served_does_not_look_at_priorities() {
    let mut world = World::new(ONE_ROW, SchedulerConfig::default());
    let ids = [3, -7, i32::MIN].map(|priority| world.add_with_priority(0..4, 2, priority));
    assert_eq!(order_of_ends(&mut world), ids);
}

#[test]
fn an_urgent_sequence_takes_the_row_of_a_patient_one_which_comes_back() {
    let mut world = World::new(ONE_ROW, by_priority(1000));
    let patient = world.add_with_priority(0..4, 10, 1);
    world.step();
    let urgent = world.add_with_priority(100..104, 3, 0);
    world.step();
    assert_eq!(world.ran(), [urgent]);
    assert_eq!(order_of_ends(&mut world), [urgent, patient]);
    assert_eq!(world.scheduler.stats().recompute_preemptions, 1);
}

#[test]
fn an_urgent_sequence_takes_blocks_of_the_last_in_line_only() {
    let mut world = World::new(RunnerLimits { num_blocks: 9, ..LIMITS }, by_priority(1000));
    let kept = world.add_with_priority(0..8, 4, 1);
    world.add_with_priority(100..108, 4, 2);
    world.step();
    assert_eq!(world.ran().len(), 2);
    let urgent = world.add_with_priority(200..208, 4, 0);
    world.step();
    assert_eq!(world.ran(), [urgent, kept]);
    world.finish();
}

#[test]
fn nobody_gives_way_where_that_would_not_be_enough() {
    let mut world = World::new(RunnerLimits { num_blocks: 9, ..LIMITS }, by_priority(1000));
    let first = world.add_with_priority(0..16, 4, 0);
    let small = world.add_with_priority(100..104, 4, 2);
    world.step();
    world.add_with_priority(200..220, 4, 1);
    world.step();
    assert_eq!(world.ran(), [first, small]);
    assert_eq!(world.scheduler.stats().recompute_preemptions, 0);
    world.finish();
}

#[test]
fn a_stream_of_urgent_sequences_delays_a_patient_one_by_no_more_than_the_bound() {
    let most_steps = if cfg!(miri) { 30 } else { 300 };
    let first_step = |ageing_steps: u32| {
        let mut world = World::new(ONE_ROW, by_priority(ageing_steps));
        world.add_with_priority(0..4, 3, 0);
        let patient = world.add_with_priority(100..104, 3, 1);
        let mut step = 0;
        while world.tokens_of(patient).is_empty() && step < most_steps {
            world.add_with_priority(0..4, 3, 0);
            world.step();
            step += 1;
        }
        step
    };
    // At most those that run when it has aged go before it, three steps each.
    assert!((20..=20 + 4).contains(&first_step(20)), "{}", first_step(20));
    assert_eq!(first_step(1000), most_steps, "without ageing it would wait for ever");
}

#[test]
fn ageing_takes_nothing_from_those_that_run() {
    let mut world = World::new(ONE_ROW, by_priority(3));
    let running = world.add_with_priority(0..4, 30, 0);
    let waiting = world.add_with_priority(100..104, 3, 0);
    assert_eq!(order_of_ends(&mut world), [running, waiting]);
    assert_eq!(world.scheduler.stats().recompute_preemptions, 0);
}

#[test]
fn who_has_aged_is_not_ousted_any_more() {
    let mut world = World::new(ONE_ROW, by_priority(3));
    world.add_with_priority(0..4, 6, 0);
    let aged = world.add_with_priority(100..104, 10, 5);
    while world.tokens_of(aged).is_empty() {
        world.step();
    }
    world.add_with_priority(200..204, 3, -5);
    world.step();
    assert_eq!(world.ran(), [aged]);
    world.finish();
}

/// Cases, and most arrivals in each.
const SIZES: (u32, usize) = if cfg!(miri) { (2, 8) } else { (256, 40) };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(SIZES.0))]

    #[test]
    fn nobody_waits_longer_than_the_bound_and_the_sequences_before_it(
        ageing_steps in 0u32..30,
        arrivals in prop::collection::vec((0u32..6, 1u32..5, any::<i32>()), 1..SIZES.1),
    ) {
        let mut world = World::new(ONE_ROW, by_priority(ageing_steps));
        let mut waited = vec![0u32; arrivals.len()];
        let mut step = |world: &mut World| {
            let any = world.step();
            let ran = if any { world.ran() } else { Vec::new() };
            let waits = world.sequences.iter().filter(|(id, known)| known.end.is_none() && !ran.contains(id));
            waits.for_each(|(id, _)| waited[id.0 as usize] += 1);
            any
        };
        for (pause, max_tokens, priority) in arrivals {
            (0..pause).for_each(|_| { step(&mut world); });
            world.add_with_priority(0..4, max_tokens, priority);
        }
        while step(&mut world) {}
        for (index, waited) in waited.into_iter().enumerate() {
            // Four tokens at most for each that came before, and for the one that runs then, which may begin anew.
            let bound = ageing_steps + 4 * (index as u32 + 2);
            prop_assert!(waited <= bound, "sequence {index} waited {waited} steps, more than {bound}");
        }
    }
}
