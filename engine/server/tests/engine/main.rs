//! The engine thread over a fake runner.

mod ahead;
mod beams;
mod cache_events;
mod real_model;
mod recording;
mod scripted;

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use regatta_core::kv::KvGroups;
use regatta_core::runner::RunnerLimits;
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{AdmissionError, SchedulerConfig, SchedulingPolicy};
use regatta_core::testing::{FakeRunner, Reply};
use regatta_engine::engine::{
    ChoiceStream, Engine, EngineConfig, EngineHandle, EngineSnapshot, EngineState, EngineThread, Event,
    FinishReason, GenerateRequest, SubmitError,
};
use scripted::{Scripted, Word};

const MAX_MODEL_LEN: u32 = 512;
const REPLY: Reply = Reply::Hash { vocab_size: 50_000 };
const LIMITS: RunnerLimits = RunnerLimits {
    block_size: 4,
    num_blocks: 128,
    kv_groups: KvGroups::FULL,
    num_host_blocks: 0,
    max_num_seqs: 4,
    max_num_batched_tokens: 16,
    max_in_flight: 1,
    feeds_sampled_tokens: false,
};

fn config() -> EngineConfig {
    let scheduler = SchedulerConfig { max_model_len: MAX_MODEL_LEN, ..SchedulerConfig::default() };
    EngineConfig { scheduler, max_queued_requests: 64, max_queued_tokens: 4096, ..EngineConfig::default() }
}

fn start() -> (EngineHandle, EngineThread) {
    Engine::spawn(Box::new(FakeRunner::new(LIMITS, REPLY)), config()).unwrap()
}

/// An engine that runs a step for each word sent, and freely once the sender is dropped.
fn start_scripted() -> (Sender<Word>, EngineHandle, EngineThread) {
    let (words, runner) = Scripted::new(FakeRunner::new(LIMITS, REPLY));
    let (handle, thread) = Engine::spawn(Box::new(runner), config()).unwrap();
    (words, handle, thread)
}

fn request(prompt: impl IntoIterator<Item = u32>, n: u32, max_tokens: u32) -> GenerateRequest {
    GenerateRequest {
        request_id: "test".to_owned(),
        prompt: prompt.into_iter().collect(),
        n,
        priority: 0,
        sampling: SamplingParams { max_tokens, ..SamplingParams::default() },
        beams: None,
        cache_salt: None,
    }
}

/// All events of a stream, which must end in its only terminal one.
async fn read(mut stream: ChoiceStream) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = stream.recv().await {
        events.push(event);
    }
    let num_terminal = events.iter().filter(|event| event.is_terminal()).count();
    assert!(num_terminal == 1 && events.last().unwrap().is_terminal(), "{events:?}");
    events
}

fn token_ids(events: &[Event]) -> Vec<u32> {
    let token =
        |event: &Event| if let Event::Token { token_id, .. } = event { Some(*token_id) } else { None };
    events.iter().filter_map(token).collect()
}

fn reason(events: &[Event]) -> Option<FinishReason> {
    match events.last() {
        Some(Event::Finished { reason, .. }) => Some(*reason),
        _ => None,
    }
}

/// Waits until the engine's figures are as wanted.
async fn settle(handle: &EngineHandle, wanted: impl Fn(&EngineSnapshot) -> bool) -> EngineSnapshot {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let snapshot = handle.snapshot();
        if wanted(&snapshot) {
            return snapshot;
        }
        assert!(Instant::now() < deadline, "still {snapshot:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn priorities_are_honoured_or_refused() {
    let urgent = GenerateRequest { priority: -1, ..request(0..4, 1, 4) };
    let (handle, _thread) = start();
    assert_eq!(handle.submit(urgent.clone()).unwrap_err(), SubmitError::NoPriorities { priority: -1 });

    let (words, runner) = Scripted::new(FakeRunner::new(LIMITS, REPLY));
    let mut config = config();
    config.scheduler.policy = SchedulingPolicy::Priority { ageing_steps: 1000 };
    let (handle, _thread) = Engine::spawn(Box::new(runner), config).unwrap();
    let patient: Vec<_> = (0..5).map(|i| request([i], 1, 50)).collect();
    let _patient = handle.submit_all(&patient).unwrap();
    words.send(Word::Run).unwrap();
    settle(&handle, |s| s.stats.running == 4).await;
    let stream = handle.submit(urgent).unwrap().remove(0);
    // One step may be planned already; the urgent request has its four tokens in the four after it.
    (0..5).for_each(|_| words.send(Word::Run).unwrap());
    assert_eq!(token_ids(&read(stream).await).len(), 4);
    // While those before it still run: one of them gave way.
    assert_eq!(handle.snapshot().stats.recompute_preemptions, 1);
    drop(words);
}

#[tokio::test]
async fn requests_at_once_get_the_tokens_that_each_gets_alone() {
    let (handle, _thread) = start();
    let requests: Vec<_> = (0..32).map(|i| request(i..i * 3 + 1, 1, 1 + i)).collect();
    let streams: Vec<_> = requests.iter().map(|r| handle.submit(r.clone()).unwrap().remove(0)).collect();
    for (request, stream) in requests.iter().zip(streams) {
        let expected = REPLY.expected(&request.prompt, &request.sampling, MAX_MODEL_LEN);
        let events = read(stream).await;
        assert_eq!(token_ids(&events), expected.token_ids);
        assert_eq!(reason(&events), Some(expected.reason));
    }
    let snapshot = settle(&handle, |s| s.in_flight() == 0).await;
    assert_eq!(snapshot.stats.blocks.in_use, 0);
    assert_eq!(snapshot.stats.generation_tokens, (1..=32).sum::<u64>());
    assert_eq!(snapshot.stats.prompt_tokens, (0..32).map(|i| 2 * i + 1).sum::<u64>());
}

#[tokio::test]
async fn the_choices_of_a_request_differ_and_each_ends_once() {
    let (handle, _thread) = start();
    let streams = handle.submit(request(0..10, 3, 8)).unwrap();
    let mut answers = Vec::new();
    for stream in streams {
        answers.push(token_ids(&read(stream).await));
    }
    assert_eq!(answers.len(), 3);
    assert!(answers[0] != answers[1] && answers[1] != answers[2] && answers[0] != answers[2]);
}

#[tokio::test]
async fn the_choices_of_a_request_get_what_each_gets_alone_and_compute_the_prompt_once() {
    let (words, handle, _thread) = start_scripted();
    let request = request(0..11, 3, 8);
    let streams = handle.submit(request.clone()).unwrap();
    // The prompt, then a step of all three: its last token twice and a decode.
    words.send(Word::Run).unwrap();
    words.send(Word::Run).unwrap();
    let snapshot = settle(&handle, |s| s.stats.steps == 2).await;
    // Two full blocks in common, and one of each.
    assert_eq!((snapshot.stats.running, snapshot.stats.blocks.in_use), (3, 2 + 3));
    drop(words);
    for (choice, stream) in (0..).zip(streams) {
        let sampling = SamplingParams { choice, ..request.sampling.clone() };
        let expected = REPLY.expected(&request.prompt, &sampling, MAX_MODEL_LEN);
        assert_eq!(token_ids(&read(stream).await), expected.token_ids);
    }
    settle(&handle, |s| s.in_flight() == 0 && s.stats.blocks.in_use == 0).await;
}

#[tokio::test]
async fn a_dropped_stream_frees_its_blocks_within_one_step() {
    let (words, handle, _thread) = start_scripted();
    let gone = handle.submit(request(0..10, 1, 100)).unwrap();
    let mut other = handle.submit(request(100..104, 1, 100)).unwrap().remove(0);
    // The first step may be planned before the second request comes.
    words.send(Word::Run).unwrap();
    words.send(Word::Run).unwrap();
    assert!(other.recv().await.is_some());
    // A third step is planned with both and waits for its word; the step after it has one sequence.
    drop(gone);
    words.send(Word::Run).unwrap();
    words.send(Word::Run).unwrap();
    let snapshot = settle(&handle, |s| s.stats.steps >= 4).await;
    assert_eq!((snapshot.stats.running, snapshot.in_flight()), (1, 1));
    assert_eq!(snapshot.stats.blocks.in_use, 2);
}

#[tokio::test]
async fn a_stream_dropped_while_it_waits_is_gone_after_one_step() {
    let (words, handle, _thread) = start_scripted();
    let _running = handle.submit(request([1], 4, 100)).unwrap();
    words.send(Word::Run).unwrap();
    settle(&handle, |s| s.stats.running == 4).await;
    let waiting = handle.submit(request([9], 1, 100)).unwrap();
    drop(waiting);
    words.send(Word::Run).unwrap();
    words.send(Word::Run).unwrap();
    settle(&handle, |s| s.stats.waiting == 0 && s.stats.running == 4).await;
}

#[tokio::test]
async fn a_failing_or_panicking_step_ends_its_sequences_and_the_engine_goes_on() {
    for word in [Word::Fail, Word::Panic, Word::AnswerForNobody] {
        let (words, handle, _thread) = start_scripted();
        let stream = handle.submit(request(0..10, 1, 4)).unwrap().remove(0);
        words.send(word).unwrap();
        let events = read(stream).await;
        assert!(matches!(&events[..], [Event::Failed { .. }]), "{word:?}: {events:?}");

        drop(words);
        let next = request(0..10, 1, 4);
        let expected = REPLY.expected(&next.prompt, &next.sampling, MAX_MODEL_LEN);
        let stream = handle.submit(next).unwrap().remove(0);
        assert_eq!(token_ids(&read(stream).await), expected.token_ids, "{word:?}");
        settle(&handle, |s| s.in_flight() == 0 && s.stats.blocks.in_use == 0).await;
    }
}

#[tokio::test]
async fn shutdown_lets_what_runs_finish() {
    let (words, handle, thread) = start_scripted();
    let stream = handle.submit(request(0..10, 1, 20)).unwrap().remove(0);
    let shutdown = tokio::task::spawn_blocking(|| thread.shutdown(Instant::now() + Duration::from_secs(60)));
    settle(&handle, |s| s.state == EngineState::Draining).await;
    assert_eq!(handle.submit(request(0..10, 1, 20)).unwrap_err(), SubmitError::ShuttingDown);
    drop(words);
    assert_eq!(reason(&read(stream).await), Some(FinishReason::Length));
    assert!(shutdown.await.unwrap());
    assert_eq!(handle.snapshot().state, EngineState::Stopped);
    assert_eq!(handle.submit(request(0..10, 1, 20)).unwrap_err(), SubmitError::ShuttingDown);
}

#[tokio::test]
async fn shutdown_aborts_at_the_deadline_what_is_left() {
    let (words, handle, thread) = start_scripted();
    let streams: Vec<_> = (0..6).map(|i| handle.submit(request([i], 1, 100)).unwrap().remove(0)).collect();
    words.send(Word::Run).unwrap();
    settle(&handle, |s| s.stats.steps == 1).await;
    let shutdown = tokio::task::spawn_blocking(|| thread.shutdown(Instant::now()));
    settle(&handle, |s| s.state == EngineState::Draining).await;
    words.send(Word::Run).unwrap();
    for stream in streams {
        assert_eq!(reason(&read(stream).await), Some(FinishReason::Abort));
    }
    assert!(shutdown.await.unwrap());
    assert_eq!(handle.snapshot().stats.blocks.in_use, 0);
}

#[tokio::test]
async fn a_full_queue_refuses_and_says_how_much_waits() {
    let (_words, handle, _thread) = start_scripted();
    let _streams = handle.submit(request([1], 64, 1)).unwrap();
    let error = handle.submit(request([1], 1, 1)).unwrap_err();
    assert!(matches!(error, SubmitError::QueueFull { .. }), "{error}");
    // What could not wait in an empty queue either.
    for too_large in [request([1], 65, 1), request(0..500, 9, 1)] {
        let error = handle.submit(too_large).unwrap_err();
        assert!(matches!(error, SubmitError::TooLarge { .. }), "{error}");
    }
}

#[tokio::test]
async fn what_can_never_run_is_refused_with_numbers() {
    let limits = RunnerLimits { num_blocks: 8, ..LIMITS };
    let (handle, _thread) = Engine::spawn(Box::new(FakeRunner::new(limits, REPLY)), config()).unwrap();
    let refused = |prompt: u32, max_tokens| match handle.submit(request(0..prompt, 1, max_tokens)) {
        Err(SubmitError::Impossible(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(0, 1), AdmissionError::EmptyPrompt);
    assert_eq!(refused(600, 1), AdmissionError::TooLong { num_prompt_tokens: 600, max_model_len: 512 });
    let error = refused(30, 4);
    assert!(error.to_string().contains("need 9 KV blocks of 4 tokens, and the pool has 8"), "{error}");
    let fits = handle.submit(request(0..30, 1, 3)).unwrap().remove(0);
    assert_eq!(reason(&read(fits).await), Some(FinishReason::Length));
}

#[tokio::test]
async fn a_repeated_prompt_is_counted_as_cached_and_gives_the_same_tokens() {
    let (handle, _thread) = start();
    let first = read(handle.submit(request(0..10, 1, 8)).unwrap().remove(0)).await;
    let second = read(handle.submit(request(0..10, 1, 8)).unwrap().remove(0)).await;
    assert_eq!(token_ids(&first), token_ids(&second));
    let cached = |events: &[Event]| match events.last() {
        Some(Event::Finished { num_cached_tokens, .. }) => *num_cached_tokens,
        other => panic!("{other:?}"),
    };
    assert_eq!((cached(&first), cached(&second)), (0, 8));
    let snapshot = settle(&handle, |s| s.in_flight() == 0).await;
    assert_eq!((snapshot.stats.prefix_cache_queries, snapshot.stats.prefix_cache_hits), (20, 8));
}

#[tokio::test]
async fn streams_of_an_engine_that_is_dropped_end() {
    let (handle, thread) = start();
    let stream = handle.submit(request(0..10, 1, 500)).unwrap().remove(0);
    drop(thread);
    assert!(reason(&read(stream).await).is_some());
}
