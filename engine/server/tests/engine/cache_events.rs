//! What the engine thread tells of its prefix cache.

use std::sync::Arc;

use regatta_core::kv::KvEvent;
use regatta_core::plan::{StepOutput, StepPlan};
use regatta_core::runner::ModelRunner;
use regatta_core::scheduler::{NewSequence, Scheduler};
use regatta_core::sequence::SequenceId;
use regatta_engine::kv_events::KvEventSender;

use super::*;

/// A pool that is too small for all that is asked.
const SMALL: RunnerLimits = RunnerLimits { num_blocks: 12, ..LIMITS };

/// Requests with a beginning in common and others that push it out; the cache is emptied before the one at this place.
fn requests() -> (Vec<GenerateRequest>, usize) {
    let ranges = [0..13, 0..22, 100..130, 0..22, 200..217, 0..13];
    (ranges.into_iter().map(|prompt| request(prompt, 1, 6)).collect(), 4)
}

/// The changes that a scheduler alone makes for the same requests, one after the other.
fn expected() -> Vec<KvEvent> {
    let mut scheduler = Scheduler::new(SchedulerConfig { kv_events: true, ..config().scheduler }, SMALL);
    let mut runner = FakeRunner::new(SMALL, REPLY);
    let (mut plan, mut output) = (StepPlan::default(), StepOutput::default());
    let (mut all, mut events) = (Vec::new(), Vec::new());
    let (requests, reset) = requests();
    for (place, request) in requests.into_iter().enumerate() {
        if place == reset {
            scheduler.reset_prefix_cache();
        }
        let id = SequenceId(place as u64);
        scheduler.add(NewSequence::new(id, request.prompt, Arc::new(request.sampling))).unwrap();
        while scheduler.schedule(&mut plan) {
            let ticket = runner.submit(&plan).unwrap();
            runner.collect(ticket, &mut output).unwrap();
            scheduler.settle(&plan, &mut output, &mut Vec::new());
            scheduler.take_kv_events(&mut events);
            all.append(&mut events);
        }
    }
    all
}

#[tokio::test]
async fn the_changes_of_the_cache_are_told_before_the_answer_ends_each_once_and_in_order() {
    let (sender, mut receiver) = KvEventSender::new(1000);
    let config = EngineConfig { kv_events: Some(sender), ..config() };
    let (handle, _thread) = Engine::spawn(Box::new(FakeRunner::new(SMALL, REPLY)), config).unwrap();
    let (requests, reset) = requests();
    let mut told = Vec::new();
    for (place, request) in requests.into_iter().enumerate() {
        if place == reset {
            handle.reset_prefix_cache();
        }
        read(handle.submit(request).unwrap().remove(0)).await;
        while let Ok(batch) = receiver.try_recv() {
            assert_eq!((batch.block_size, batch.kv_groups), (SMALL.block_size, SMALL.kv_groups));
            told.extend(batch.events);
        }
    }
    let expected = expected();
    for kind in [
        |event: &KvEvent| matches!(event, KvEvent::Stored { .. }),
        |event: &KvEvent| matches!(event, KvEvent::Removed { .. }),
        |event: &KvEvent| matches!(event, KvEvent::Cleared),
    ] {
        assert!(expected.iter().any(kind), "a kind of change that does not happen: {expected:?}");
    }
    assert_eq!(told, expected);
}
