//! Beam search through the engine against a plain one that asks for one token at a time.

use std::path::Path;

use regatta_core::beam::EarlyStopping;
use regatta_core::plan::TokenLogprob;
use regatta_core::scheduler::PreemptionMode;
use regatta_engine::engine::BeamOptions;
use regatta_runner::load::{KvMemory, LoadOptions, load};

use super::*;

const SMALL: Reply = Reply::Hash { vocab_size: 20 };
const STOPS: [u32; 2] = [3, 11];

pub(crate) fn search(prompt: impl IntoIterator<Item = u32>, width: u32, max_tokens: u32) -> GenerateRequest {
    let options = BeamOptions { length_penalty: 1.0, early_stopping: EarlyStopping::Never };
    let mut request = request(prompt, width, max_tokens);
    request.sampling.stop_token_ids = STOPS.to_vec();
    request.sampling.logprobs = Some(1);
    GenerateRequest { beams: Some(options), ..request }
}

/// The best hypotheses by the book, with their sums. `next` gives the likeliest tokens after some.
async fn plain(
    request: &GenerateRequest,
    next: impl AsyncFn(Vec<u32>) -> Vec<TokenLogprob>,
) -> Vec<(Vec<u32>, f64)> {
    let width = request.n as usize;
    let num_prompt_tokens = request.prompt.len();
    let score = |(tokens, sum): &(Vec<u32>, f64)| {
        let stops = tokens.last().is_some_and(|token| STOPS.contains(token));
        sum / (num_prompt_tokens + tokens.len() - usize::from(stops)) as f64
    };
    let by_score = |a: &(Vec<u32>, f64), b: &(Vec<u32>, f64)| score(b).total_cmp(&score(a));
    let (mut beams, mut complete) = (vec![(Vec::new(), 0.0)], Vec::new());
    for _ in 0..request.sampling.max_tokens {
        let mut open = Vec::new();
        for (tokens, sum) in &beams {
            let known = request.prompt.iter().chain(tokens).copied().collect();
            for token in next(known).await.into_iter().take(2 * width) {
                let tokens: Vec<u32> = tokens.iter().copied().chain([token.token_id]).collect();
                let candidate = (tokens, sum + f64::from(token.logprob));
                if STOPS.contains(&token.token_id) { complete.push(candidate) } else { open.push(candidate) }
            }
        }
        open.sort_by(by_score);
        open.truncate(width);
        beams = open;
    }
    complete.extend(beams);
    complete.sort_by(by_score);
    complete.truncate(width);
    complete
}

async fn plain_over_fake(request: &GenerateRequest) -> Vec<Vec<u32>> {
    let sampling =
        SamplingParams { max_tokens: 1, logprobs: Some(2 * request.n), ..SamplingParams::default() };
    let next = async |known: Vec<u32>| SMALL.expected(&known, &sampling, u32::MAX).logprobs.remove(0).top;
    plain(request, next).await.into_iter().map(|(tokens, _)| tokens).collect()
}

async fn answers(streams: Vec<ChoiceStream>) -> Vec<Vec<u32>> {
    let mut answers = Vec::new();
    for stream in streams {
        answers.push(token_ids(&read(stream).await));
    }
    answers
}

#[tokio::test]
async fn searches_find_what_a_plain_search_does_in_any_pool_and_any_company() {
    let config = |enable_prefix_caching, preemption_mode| {
        let scheduler = SchedulerConfig {
            max_model_len: 64,
            enable_prefix_caching,
            preemption_mode,
            ..SchedulerConfig::default()
        };
        EngineConfig { scheduler, ..config() }
    };
    // Plenty; rows for fewer than the beams; one row; and hardly the blocks of one beam.
    for (max_num_seqs, num_blocks) in [(16, 256), (3, 256), (1, 256), (16, 12), (2, 10)] {
        for (prefix_caching, mode) in [
            (true, PreemptionMode::Recompute),
            (false, PreemptionMode::Recompute),
            (true, PreemptionMode::Swap),
            (false, PreemptionMode::Swap),
        ] {
            let limits = RunnerLimits { max_num_seqs, num_blocks, num_host_blocks: 40, ..LIMITS };
            let runner = Box::new(FakeRunner::new(limits, SMALL));
            let (handle, _thread) = Engine::spawn(runner, config(prefix_caching, mode)).unwrap();
            let searches = [search(0..9, 4, 12), search(5..6, 2, 20), search(0..13, 3, 7)];
            let others: Vec<_> = (0..4).map(|i| request(i..i + 8, 1, 10)).collect();
            let mut streams: Vec<_> =
                searches.iter().map(|request| handle.submit(request.clone()).unwrap()).collect();
            streams.extend(others.iter().map(|request| handle.submit(request.clone()).unwrap()));
            let mut found = Vec::new();
            for stream in streams {
                found.push(answers(stream).await);
            }
            for (request, found) in searches.iter().zip(&found) {
                let expected = plain_over_fake(request).await;
                assert_eq!(*found, expected, "{max_num_seqs} rows, {num_blocks} blocks");
            }
            for (request, found) in others.iter().zip(&found[searches.len()..]) {
                assert_eq!(found[0], SMALL.expected(&request.prompt, &request.sampling, 64).token_ids);
            }
            let snapshot = settle(&handle, |s| s.in_flight() == 0).await;
            assert_eq!(snapshot.stats.blocks.in_use, 0);
        }
    }
}

#[tokio::test]
async fn each_hypothesis_has_its_tokens_log_probabilities_and_its_own_end() {
    let (handle, _thread) = Engine::spawn(Box::new(FakeRunner::new(LIMITS, SMALL)), config()).unwrap();
    for stream in handle.submit(search(0..9, 4, 12)).unwrap() {
        let events = read(stream).await;
        let tokens = token_ids(&events);
        for event in &events {
            let Event::Token { logprobs, .. } = event else { continue };
            assert_eq!(logprobs.as_ref().unwrap().top.len(), 1, "as many alternatives as asked for");
        }
        let stop = tokens.last().copied().filter(|token| STOPS.contains(token));
        let expected = stop.map_or(FinishReason::Length, |token_id| FinishReason::Stop { token_id });
        assert_eq!(reason(&events), Some(expected));
    }
}

#[tokio::test]
async fn a_search_over_a_real_model_finds_what_single_steps_do() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runner/tests/data/tiny-llama.gguf");
    let kv_memory = KvMemory::Blocks(64);
    let options =
        LoadOptions { max_num_seqs: 8, kv_memory, max_model_len: Some(128), ..LoadOptions::default() };
    let runner = load(&model, &options).expect("the test data is readable").runner;
    let scheduler = SchedulerConfig { max_model_len: 128, ..SchedulerConfig::default() };
    let (handle, _thread) = Engine::spawn(runner, EngineConfig { scheduler, ..config() }).unwrap();
    let request = search((0..21).map(|k| k * 7 % 256), 3, 9);
    let found = answers(handle.submit(request.clone()).unwrap()).await;
    let next = async |known: Vec<u32>| {
        let sampling = SamplingParams {
            temperature: 0.0,
            max_tokens: 1,
            logprobs: Some(6),
            ..SamplingParams::default()
        };
        let one = GenerateRequest { beams: None, n: 1, prompt: known.into(), sampling, ..request.clone() };
        let events = read(handle.submit(one).unwrap().remove(0)).await;
        let first = events.into_iter().find_map(|event| match event {
            Event::Token { logprobs, .. } => logprobs,
            _ => None,
        });
        first.expect("a token with its log-probabilities").top
    };
    let expected: Vec<Vec<u32>> = plain(&request, next).await.into_iter().map(|(tokens, _)| tokens).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_search_that_nobody_wants_any_more_frees_its_blocks() {
    let (words, runner) = Scripted::new(FakeRunner::new(LIMITS, SMALL));
    let (handle, _thread) = Engine::spawn(Box::new(runner), config()).unwrap();
    let streams = handle.submit(search(0..9, 4, 200)).unwrap();
    (0..4).for_each(|_| words.send(Word::Run).unwrap());
    settle(&handle, |s| s.stats.steps == 4 && s.in_flight() > 1).await;
    drop(streams);
    words.send(Word::Run).unwrap();
    settle(&handle, |s| s.in_flight() == 0 && s.stats.blocks.in_use == 0).await;
}

#[tokio::test]
async fn a_failing_step_or_the_end_of_the_engine_ends_all_streams_of_a_search() {
    let (words, runner) = Scripted::new(FakeRunner::new(LIMITS, SMALL));
    let (handle, thread) = Engine::spawn(Box::new(runner), config()).unwrap();
    let streams = handle.submit(search(0..9, 3, 50)).unwrap();
    [Word::Run, Word::Run, Word::Fail].into_iter().for_each(|word| words.send(word).unwrap());
    for stream in streams {
        let events = read(stream).await;
        assert!(token_ids(&events).is_empty() && matches!(events.last(), Some(Event::Failed { .. })));
    }
    settle(&handle, |s| s.in_flight() == 0 && s.stats.blocks.in_use == 0).await;

    let streams = handle.submit(search(0..9, 3, 50)).unwrap();
    words.send(Word::Run).unwrap();
    words.send(Word::Run).unwrap();
    // Both steps are done, and the next one waits for its word.
    settle(&handle, |s| s.stats.steps == 5 && s.in_flight() > 1).await;
    let shutdown = tokio::task::spawn_blocking(|| thread.shutdown(Instant::now()));
    settle(&handle, |s| s.state == EngineState::Draining).await;
    words.send(Word::Run).unwrap();
    for stream in streams {
        assert_eq!(reason(&read(stream).await), Some(FinishReason::Abort));
    }
    assert!(shutdown.await.unwrap());
    assert_eq!(handle.snapshot().stats.blocks.in_use, 0);
}
