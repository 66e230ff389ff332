//! Steps planned while another one runs.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use regatta_core::runner::RunnerLimits;
use regatta_core::testing::{FakeRunner, StagedRunner};
use regatta_engine::engine::{Engine, EngineState, Event, FinishReason, GenerateRequest};

use super::scripted::{Scripted, Word};
use super::{LIMITS, MAX_MODEL_LEN, REPLY, config, read, reason, request, settle, token_ids};

const TWO_IN_FLIGHT: RunnerLimits = RunnerLimits { max_in_flight: 2, ..LIMITS };
const FEEDS_BACK: RunnerLimits = RunnerLimits { feeds_sampled_tokens: true, ..TWO_IN_FLIGHT };

/// Each fills a step's budget, so that they are in different steps.
fn requests(num: u32) -> Vec<GenerateRequest> {
    (0..num).map(|i| request(100 * i..100 * i + LIMITS.max_num_batched_tokens, 1, 10 + i)).collect()
}

#[tokio::test]
async fn steps_overlap_where_the_runner_has_two_stages_and_answers_are_the_same() {
    let (num_overlaps, runner) = StagedRunner::new(FakeRunner::new(TWO_IN_FLIGHT, REPLY));
    let (handle, _thread) = Engine::spawn(Box::new(runner), config()).unwrap();
    let requests = requests(6);
    let streams = handle.submit_all(&requests).unwrap();
    for (request, stream) in requests.iter().zip(streams) {
        let expected = REPLY.expected(&request.prompt, &request.sampling, MAX_MODEL_LEN);
        let events = read(stream).await;
        assert_eq!(token_ids(&events), expected.token_ids);
        assert_eq!(reason(&events), Some(expected.reason));
    }
    let snapshot = settle(&handle, |s| s.in_flight() == 0).await;
    assert_eq!(snapshot.stats.blocks.in_use, 0);
    // Whenever another sequence can run, its step comes before the first one's result.
    assert!(num_overlaps.load(Ordering::Relaxed) >= 10, "{num_overlaps:?} of {} steps", snapshot.stats.steps);
}

/// Runs `requests` on two stages, each to what it would get alone; how many steps there were, and how many of them came
/// while another was under way.
async fn run_staged(limits: RunnerLimits, requests: &[GenerateRequest]) -> (u64, u64) {
    let (num_overlaps, runner) = StagedRunner::new(FakeRunner::new(limits, REPLY));
    let (handle, _thread) = Engine::spawn(Box::new(runner), config()).unwrap();
    let streams = handle.submit_all(requests).unwrap();
    let mut num_tokens = 0;
    for (request, stream) in requests.iter().zip(streams) {
        let expected = REPLY.expected(&request.prompt, &request.sampling, MAX_MODEL_LEN);
        let events = read(stream).await;
        assert_eq!((token_ids(&events), reason(&events)), (expected.token_ids, Some(expected.reason)));
        num_tokens += token_ids(&events).len() as u64;
    }
    let snapshot = settle(&handle, |s| s.in_flight() == 0 && s.stats.blocks.in_use == 0).await;
    assert_eq!(snapshot.stats.generation_tokens, num_tokens);
    (snapshot.stats.steps, num_overlaps.load(Ordering::Relaxed))
}

#[tokio::test]
async fn a_batch_of_decodes_overlaps_with_itself() {
    let requests: Vec<_> = (0..4).map(|i| request(100 * i..100 * i + 4, 1, 60)).collect();
    assert_eq!(run_staged(FEEDS_BACK, &requests).await, (60, 59));
    let (steps, num_overlaps) = run_staged(TWO_IN_FLIGHT, &requests).await;
    assert_eq!((steps, num_overlaps), (60, 0), "the runner does not feed back what it samples");
}

#[tokio::test]
async fn the_chunks_of_a_long_prompt_overlap() {
    for limits in [FEEDS_BACK, TWO_IN_FLIGHT] {
        assert_eq!(run_staged(limits, &[request(0..160, 1, 1)]).await, (10, 9));
    }
}

#[tokio::test]
async fn a_stop_token_is_the_last_that_is_told_and_counted_where_another_step_ran_ahead_of_it() {
    let mut requests: Vec<_> = (0..4).map(|i| request(100 * i..100 * i + 4, 1, 60)).collect();
    for (index, request) in requests.iter_mut().enumerate() {
        let expected = REPLY.expected(&request.prompt, &request.sampling, MAX_MODEL_LEN);
        request.sampling.stop_token_ids = vec![expected.token_ids[7 * index]];
    }
    // The last stops in step 22, and one ran ahead.
    assert_eq!(run_staged(FEEDS_BACK, &requests).await, (23, 22));
}

#[tokio::test]
async fn a_step_that_fails_takes_those_that_ran_ahead_along_and_nobody_else() {
    for word in [Word::Fail, Word::Panic, Word::AnswerForNobody] {
        let (words, runner) = Scripted::new(FakeRunner::new(FEEDS_BACK, REPLY));
        let (handle, _thread) = Engine::spawn(Box::new(runner), config()).unwrap();
        words.send(Word::Run).unwrap();
        words.send(word).unwrap();
        drop(words);
        let stream = handle.submit(request(0..4, 1, 20)).unwrap().remove(0);
        let failed = read(stream).await;
        assert!(matches!(failed.last(), Some(Event::Failed { .. })), "{word:?}: {failed:?}");
        settle(&handle, |s| s.in_flight() == 0 && s.stats.blocks.in_use == 0).await;
        let next = request(100..104, 1, 20);
        let expected = REPLY.expected(&next.prompt, &next.sampling, MAX_MODEL_LEN);
        let events = read(handle.submit(next).unwrap().remove(0)).await;
        assert_eq!(token_ids(&events), expected.token_ids);
    }
}

#[tokio::test]
async fn no_step_goes_on_where_one_was_refused() {
    let (words, runner) = Scripted::new(FakeRunner::new(FEEDS_BACK, REPLY));
    let (handle, _thread) = Engine::spawn(Box::new(runner), config()).unwrap();
    words.send(Word::Run).unwrap();
    words.send(Word::Fail).unwrap();
    drop(words);
    // The first fills a step. The second shares the next one with it, which is refused, and the third is in neither.
    let streams = handle.submit_all(&requests(3)).unwrap();
    let mut ends = Vec::new();
    for stream in streams {
        ends.push(read(stream).await);
    }
    let [first, second, third] = &ends[..] else { panic!("{ends:?}") };
    assert!(
        matches!(first[..], [Event::PromptComputed { .. }, Event::Token { .. }, Event::Failed { .. }]),
        "{first:?}"
    );
    assert!(matches!(second[..], [Event::Failed { .. }]), "{second:?}");
    assert_eq!(reason(third), Some(FinishReason::Length));
}

#[tokio::test]
async fn a_stream_dropped_with_two_steps_under_way_frees_its_blocks_and_leaves_the_other_alone() {
    let (words, runner) = Scripted::new(FakeRunner::new(TWO_IN_FLIGHT, REPLY));
    let (handle, _thread) = Engine::spawn(Box::new(runner), config()).unwrap();
    let requests = requests(2);
    let mut streams = handle.submit_all(&requests).unwrap();
    words.send(Word::Run).unwrap();
    // The first step is under way, and the second one waits for its word.
    drop(streams.remove(0));
    drop(words);
    let expected = REPLY.expected(&requests[1].prompt, &requests[1].sampling, MAX_MODEL_LEN);
    assert_eq!(token_ids(&read(streams.remove(0)).await), expected.token_ids);
    settle(&handle, |s| s.in_flight() == 0 && s.stats.blocks.in_use == 0).await;
}

#[tokio::test]
async fn a_step_that_fails_behind_another_takes_only_its_own_sequences_along() {
    for word in [Word::Fail, Word::Panic] {
        let (words, runner) = Scripted::new(FakeRunner::new(TWO_IN_FLIGHT, REPLY));
        let (handle, _thread) = Engine::spawn(Box::new(runner), config()).unwrap();
        let requests = requests(2);
        words.send(Word::Run).unwrap();
        words.send(word).unwrap();
        drop(words);
        let mut streams = handle.submit_all(&requests).unwrap().into_iter();
        let expected = REPLY.expected(&requests[0].prompt, &requests[0].sampling, MAX_MODEL_LEN);
        assert_eq!(token_ids(&read(streams.next().unwrap()).await), expected.token_ids);
        let failed = read(streams.next().unwrap()).await;
        assert!(matches!(&failed[..], [Event::Failed { .. }]), "{word:?}: {failed:?}");
        settle(&handle, |s| s.in_flight() == 0 && s.stats.blocks.in_use == 0).await;
    }
}

#[tokio::test]
async fn shutdown_waits_for_both_steps_under_way_and_aborts_what_is_left() {
    let (words, runner) = Scripted::new(FakeRunner::new(TWO_IN_FLIGHT, REPLY));
    let (handle, thread) = Engine::spawn(Box::new(runner), config()).unwrap();
    let streams = handle.submit_all(&requests(2)).unwrap();
    words.send(Word::Run).unwrap();
    let shutdown = tokio::task::spawn_blocking(|| thread.shutdown(Instant::now()));
    settle(&handle, |s| s.state != EngineState::Running).await;
    // Nobody waits for the word where the end came before the second step.
    words.send(Word::Run).ok();
    for stream in streams {
        let aborted = tokio::time::timeout(Duration::from_secs(60), read(stream)).await.unwrap();
        assert_eq!(reason(&aborted), Some(FinishReason::Abort));
    }
    drop(words);
    assert!(shutdown.await.unwrap());
    assert_eq!(handle.snapshot().stats.blocks.in_use, 0);
}
