//! Kinds of faults that engines of this sort have had, each with a test that fails when it comes back.
//!
//! | fault | kind | test |
//! | --- | --- | --- |
//! | vllm#15996 | the cache is nearly full and nothing is scheduled | [`a_nearly_full_cache_always_lets_someone_go_on`] |
//! | vllm#39863 | the engine is gone and its server says that all is well | `a_dead_engine_is_unhealthy_and_ends_streams_with_an_error` (server, `tests/http/lifecycle.rs`) |
//! | mistral.rs#1470 | a prefix cache full of old sequences blocks new ones | [`a_cache_full_of_old_prefixes_gives_way`] |
//! | mistral.rs#1383 | a choice of token never ends | [`a_model_that_never_stops_is_stopped_by_length`] |
//! | sglang#6778 | blocks that are not given back stop everyone | [`blocks_of_failed_and_cancelled_sequences_let_others_in`] |
//! | vllm#546 | all stop as soon as one is swapped | [`swapping_with_every_pool_full_still_ends`], [`a_swap_that_no_step_took_along_is_not_waited_for`] |
//! | sglang#36333 | a cancelled sequence is computed to its end | [`a_cancelled_sequence_is_in_no_later_step`] |
//! | llama.cpp fork#20 | a client that leaves keeps its slot | [`a_cancelled_sequence_gives_its_row_back_in_flight_or_not`] |
//! | lmdeploy#1334, #1524 | memory grows with each request | [`a_thousand_requests_leave_no_memory_behind`] |

use regatta_core::event::Event;
use regatta_core::runner::RunnerLimits;
use regatta_core::scheduler::{PreemptionMode, SchedulerConfig};

use crate::world::{LIMITS, World};

#[test]
fn a_nearly_full_cache_always_lets_someone_go_on() {
    // Each sequence needs all blocks but one before it ends, so that they preempt each other over and over.
    for num_blocks in 5..if cfg!(miri) { 6 } else { 12 } {
        let mut world = World::new(RunnerLimits { num_blocks, ..LIMITS }, SchedulerConfig::default());
        let num_sequences = if cfg!(miri) { 3 } else { 6 };
        for i in 0..num_sequences {
            world.add(100 * i..100 * i + 6, 4 * num_blocks - 6);
        }
        let most_steps = num_sequences * 4 * num_blocks;
        let num_steps = (0..).take_while(|_| world.step()).count();
        assert!(num_steps <= most_steps as usize, "{num_steps} steps in {num_blocks} blocks");
        world.finish();
    }
}

#[test]
fn a_cache_full_of_old_prefixes_gives_way() {
    let mut world = World::new(RunnerLimits { num_blocks: 8, ..LIMITS }, SchedulerConfig::default());
    for i in 0..if cfg!(miri) { 3 } else { 20 } {
        world.add(100 * i..100 * i + 28, 4);
        world.finish();
        assert!(world.scheduler.stats().blocks.cached >= 7);
    }
}

#[test]
fn a_model_that_never_stops_is_stopped_by_length() {
    let config = SchedulerConfig { max_model_len: 40, ..SchedulerConfig::default() };
    let mut world = World::new(LIMITS, config);
    let id = world.add(0..4, u32::MAX);
    world.finish();
    assert_eq!(world.tokens_of(id).len(), 36);
}

#[test]
fn blocks_of_failed_and_cancelled_sequences_let_others_in() {
    let mut world = World::new(RunnerLimits { num_blocks: 8, ..LIMITS }, SchedulerConfig::default());
    for _ in 0..if cfg!(miri) { 3 } else { 20 } {
        world.add(0..24, 8);
        let step = world.submit().unwrap();
        world.fail(step);
        let gone = world.add(0..24, 8);
        let step = world.submit().unwrap();
        world.cancel(gone);
        world.settle(step);
        assert_eq!(world.scheduler.stats().blocks.in_use, 0);
    }
    let last = world.add(100..124, 8);
    world.finish();
    assert!(matches!(world.sequences[&last].end, Some(Event::Finished { .. })));
}

#[test]
fn swapping_with_every_pool_full_still_ends() {
    let config = SchedulerConfig { preemption_mode: PreemptionMode::Swap, ..SchedulerConfig::default() };
    let pools = [(6, 1), (6, 5), (7, 40), (12, 6)];
    for &(num_blocks, num_host_blocks) in if cfg!(miri) { &pools[1..2] } else { &pools[..] } {
        let mut world = World::new(RunnerLimits { num_blocks, num_host_blocks, ..LIMITS }, config.clone());
        for i in 0..if cfg!(miri) { 3 } else { 8 } {
            world.add(100 * i..100 * i + 5, 4 * 6 - 5);
        }
        let num_steps = (0..).take_while(|_| world.step()).count();
        assert!(num_steps <= 8 * 24, "{num_steps} steps");
        world.finish();
    }
}

#[test]
fn a_swap_that_no_step_took_along_is_not_waited_for() {
    let config = SchedulerConfig {
        preemption_mode: PreemptionMode::Swap,
        enable_prefix_caching: false,
        reserve_full_isl: false,
        ..SchedulerConfig::default()
    };
    let limits = RunnerLimits { num_blocks: 5, num_host_blocks: 8, max_in_flight: 2, ..LIMITS };
    let mut world = World::new(limits, config);
    let first = world.add(0..7, 13);
    let mut first_step = world.submit().unwrap();
    let second = world.add(100..107, 8);
    let mut second_step = world.submit();
    // They take turns, and the first takes the last block.
    for _ in 0..2 {
        world.settle(first_step);
        first_step = world.submit().unwrap();
        assert_eq!(world.ran(), [first]);
        second_step.into_iter().for_each(|step| world.settle(step));
        second_step = world.submit();
    }
    assert!(second_step.is_none());
    // The second gives its own blocks up while the first is in flight: no step takes them to host memory.
    assert_eq!(world.scheduler.stats().swap_preemptions, 1);
    world.settle(first_step);
    world.cancel(first);
    world.finish();
    assert_eq!(world.tokens_of(second).len(), 8);
}

#[test]
fn a_cancelled_sequence_is_in_no_later_step() {
    let mut world = World::new(LIMITS, SchedulerConfig::default());
    let ids = [world.add(0..9, 100), world.add(100..109, 100)];
    world.step();
    let step = world.submit().unwrap();
    world.cancel(ids[0]);
    world.settle(step);
    world.step();
    assert_eq!(world.ran(), [ids[1]]);
    world.cancel(ids[1]);
    assert!(!world.step());
}

#[test]
fn a_cancelled_sequence_gives_its_row_back_in_flight_or_not() {
    let mut world = World::new(RunnerLimits { max_num_seqs: 1, ..LIMITS }, SchedulerConfig::default());
    for in_flight in [false, true].repeat(if cfg!(miri) { 2 } else { 10 }) {
        let gone = world.add(0..9, 100);
        let step = world.submit().unwrap();
        if in_flight {
            world.cancel(gone);
            world.settle(step);
        } else {
            world.settle(step);
            world.cancel(gone);
        }
        assert_eq!(world.scheduler.stats().running, 0);
    }
    world.add(0..9, 3);
    world.finish();
}

#[test]
fn a_thousand_requests_leave_no_memory_behind() {
    let mut world = World::new(LIMITS, SchedulerConfig::default());
    let mut requests = |num: u32| {
        for i in 0..num {
            let gone = world.add([i, 1, 2, 3, 4, 5, 6, 7, 8], 4);
            world.step();
            world.cancel(gone);
            world.add([i, 1, 2, 3, 4, 5, 6, 7, 8], 4);
            world.finish();
            // What the test itself knows is not the engine's.
            world.forget();
        }
    };
    let num = if cfg!(miri) { 4 } else { 1000 };
    requests(num);
    let info = allocation_counter::measure(|| requests(num));
    assert!(info.bytes_current < 8 * 1000, "{} bytes more after {num} requests", info.bytes_current);
}
