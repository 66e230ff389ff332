//! A real, tiny model under the engine thread: what a request gets is the same bits, whatever is scheduled beside it.

use std::path::Path;

use regatta_core::kv::FreeOrder;
use regatta_core::plan::PositionLogprobs;
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{PreemptionMode, SchedulerConfig};
use regatta_engine::engine::{ChoiceStream, Engine, EngineConfig, EngineSnapshot, Event, GenerateRequest};
use regatta_runner::load::{KvMemory, LoadOptions, load};

const MAX_MODEL_LEN: u32 = 128;

/// How an engine is set up.
struct Setup {
    block_size: u32,
    num_blocks: u32,
    budget: u32,
    free_order: FreeOrder,
    enable_prefix_caching: bool,
    preemption_mode: PreemptionMode,
    at_once: bool,
}

/// All that a request got.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    token_ids: Vec<u32>,
    logprobs: Vec<PositionLogprobs>,
    prompt_logprobs: Option<Vec<PositionLogprobs>>,
}

/// 32 requests of mixed lengths, half of them with a beginning in common; greedy and sampled, some with penalties; one in four asks for
/// log-probabilities of its prompt.
fn requests() -> Vec<GenerateRequest> {
    let request = |i: u32| {
        let common = if i.is_multiple_of(2) { 40 } else { 0 };
        let own = (0..1 + i * 13 % 50).map(|k| (i * 31 + k * 7) % 256);
        let sampling = SamplingParams {
            temperature: if i.is_multiple_of(3) { 0.0 } else { 0.9 },
            seed: u64::from(i),
            frequency_penalty: if i % 5 < 2 { 0.6 } else { 0.0 },
            repetition_penalty: if i % 7 < 2 { 1.3 } else { 1.0 },
            bad_words: if i % 6 == 1 { [vec![i, i + 1]].into() } else { Default::default() },
            logprobs: Some(2),
            prompt_logprobs: i.is_multiple_of(4).then_some(1),
            max_tokens: 1 + i * 5 % 30,
            ..SamplingParams::default()
        };
        let prompt = (0..common).map(|k| k * 5 % 256).chain(own).collect();
        GenerateRequest {
            request_id: i.to_string(),
            prompt,
            n: 1,
            priority: 0,
            sampling,
            beams: None,
            cache_salt: None,
        }
    };
    (0..32).map(request).collect()
}

async fn answers(setup: Setup) -> (Vec<Answer>, EngineSnapshot) {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runner/tests/data/tiny-llama.gguf");
    let options = LoadOptions {
        block_size: setup.block_size,
        max_num_seqs: 8,
        max_num_batched_tokens: setup.budget,
        max_model_len: Some(MAX_MODEL_LEN),
        kv_memory: KvMemory::Blocks(setup.num_blocks),
        threads: Some(2),
        swap_bytes: 1 << 22,
        ..LoadOptions::default()
    };
    let scheduler = SchedulerConfig {
        max_model_len: MAX_MODEL_LEN,
        preemption_mode: setup.preemption_mode,
        free_order: setup.free_order,
        enable_prefix_caching: setup.enable_prefix_caching,
        ..SchedulerConfig::default()
    };
    let runner = load(&model, &options).expect("the test data is readable").runner;
    let (handle, _thread) =
        Engine::spawn(runner, EngineConfig { scheduler, ..EngineConfig::default() }).unwrap();
    let mut answers = Vec::new();
    let mut streams = Vec::new();
    for request in requests() {
        streams.extend(handle.submit(request).unwrap());
        if !setup.at_once {
            answers.push(read(streams.remove(0)).await);
        }
    }
    for stream in streams {
        answers.push(read(stream).await);
    }
    (answers, handle.snapshot())
}

async fn read(mut stream: ChoiceStream) -> Answer {
    let mut answer = Answer::default();
    while let Some(event) = stream.recv().await {
        match event {
            Event::Token { token_id, logprobs } => {
                answer.token_ids.push(token_id);
                answer.logprobs.extend(logprobs);
            }
            Event::PromptLogprobs(logprobs) => answer.prompt_logprobs = Some(logprobs),
            Event::PromptComputed { .. } => {}
            Event::Finished { .. } => {}
            Event::Failed { reason } => panic!("{reason}"),
        }
    }
    answer
}

/// One request after the other, whole prompts, nothing cached. Sums run block by block, so the bits are those of one
/// block size.
async fn alone(block_size: u32) -> Vec<Answer> {
    let setup = Setup {
        block_size,
        num_blocks: 256,
        budget: 512,
        free_order: FreeOrder::Ascending,
        enable_prefix_caching: false,
        preemption_mode: PreemptionMode::Recompute,
        at_once: false,
    };
    answers(setup).await.0
}

#[tokio::test]
async fn the_choices_of_one_request_are_bit_identical_to_separate_requests_with_the_same_seeds() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runner/tests/data/tiny-llama.gguf");
    let kv_memory = KvMemory::Blocks(64);
    let options =
        LoadOptions { max_num_seqs: 8, kv_memory, max_model_len: Some(MAX_MODEL_LEN), ..Default::default() };
    let runner = load(&model, &options).expect("the test data is readable").runner;
    let scheduler =
        SchedulerConfig { max_model_len: MAX_MODEL_LEN, enable_prefix_caching: false, ..Default::default() };
    let (handle, _thread) =
        Engine::spawn(runner, EngineConfig { scheduler, ..EngineConfig::default() }).unwrap();
    let sampling = SamplingParams {
        seed: 5,
        logprobs: Some(2),
        presence_penalty: 0.5,
        max_tokens: 20,
        ..Default::default()
    };
    let request = |n, choice| GenerateRequest {
        request_id: "choices".to_owned(),
        // Not a whole number of blocks, so that the forks copy one.
        prompt: (0..37).map(|k| k * 5 % 256).collect(),
        n,
        priority: 0,
        sampling: SamplingParams { choice, ..sampling.clone() },
        beams: None,
        cache_salt: None,
    };
    let mut together = Vec::new();
    for stream in handle.submit(request(4, 0)).unwrap() {
        together.push(read(stream).await);
    }
    for choice in 0..4 {
        let alone = read(handle.submit(request(1, choice)).unwrap().remove(0)).await;
        assert_eq!(together[choice as usize], alone, "choice {choice}");
        assert!(together[..choice as usize].iter().all(|other| other.token_ids != alone.token_ids));
    }
}

/// Other servers' answers changed at some number of sequences; so did this one's at 44 in one report.
#[tokio::test]
async fn forty_four_sequences_at_once_are_bit_identical_to_each_alone() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runner/tests/data/tiny-llama.gguf");
    let kv_memory = KvMemory::Blocks(44 * 4);
    let options =
        LoadOptions { max_num_seqs: 44, kv_memory, max_model_len: Some(MAX_MODEL_LEN), ..Default::default() };
    let runner = load(&model, &options).expect("the test data is readable").runner;
    let scheduler = SchedulerConfig { max_model_len: MAX_MODEL_LEN, ..Default::default() };
    let (handle, _thread) =
        Engine::spawn(runner, EngineConfig { scheduler, ..EngineConfig::default() }).unwrap();
    let request = |i: u32| GenerateRequest {
        request_id: i.to_string(),
        prompt: (0..20 + i % 3).map(|k| (i * 17 + k * 5) % 256).collect(),
        n: 1,
        priority: 0,
        sampling: SamplingParams {
            temperature: if i.is_multiple_of(2) { 0.0 } else { 1.0 },
            seed: 42,
            logprobs: Some(3),
            max_tokens: 24,
            ..SamplingParams::default()
        },
        beams: None,
        cache_salt: None,
    };
    let streams: Vec<_> = (0..44).map(|i| handle.submit(request(i)).unwrap().remove(0)).collect();
    let mut together = Vec::new();
    for stream in streams {
        together.push(read(stream).await);
    }
    for (i, together) in (0..44).zip(&together) {
        assert_eq!(read(handle.submit(request(i)).unwrap().remove(0)).await, *together, "request {i}");
    }
}

fn assert_same(together: &[Answer], alone: &[Answer]) {
    let differing: Vec<_> = (0..alone.len()).filter(|&i| together.get(i) != Some(&alone[i])).collect();
    assert!(differing.is_empty() && together.len() == alone.len(), "requests {differing:?} differ");
}

#[tokio::test]
async fn requests_at_once_are_bit_identical_to_the_same_alone() {
    let setup = Setup {
        block_size: 16,
        num_blocks: 64,
        budget: 64,
        free_order: FreeOrder::Ascending,
        enable_prefix_caching: false,
        preemption_mode: PreemptionMode::Recompute,
        at_once: true,
    };
    let (together, snapshot) = answers(setup).await;
    assert_same(&together, &alone(16).await);
    assert_eq!(snapshot.stats.blocks.in_use, 0);
}

/// As few blocks as one sequence may need, in no order.
fn smallest_pool(preemption_mode: PreemptionMode) -> Setup {
    Setup {
        block_size: 4,
        num_blocks: MAX_MODEL_LEN / 4,
        budget: 13,
        free_order: FreeOrder::Shuffled(7),
        enable_prefix_caching: false,
        preemption_mode,
        at_once: true,
    }
}

#[tokio::test]
async fn the_smallest_pool_with_shuffled_blocks_changes_no_bit() {
    let (together, snapshot) = answers(smallest_pool(PreemptionMode::Recompute)).await;
    assert_same(&together, &alone(4).await);
    assert!(snapshot.stats.recompute_preemptions > 0, "{snapshot:?}");
    assert_eq!(snapshot.stats.blocks.in_use, 0);
}

#[tokio::test]
async fn blocks_that_went_to_host_memory_and_back_change_no_bit() {
    let (together, snapshot) = answers(smallest_pool(PreemptionMode::Swap)).await;
    assert_same(&together, &alone(4).await);
    assert!(snapshot.stats.swap_preemptions > 0 && snapshot.stats.recompute_preemptions == 0, "{snapshot:?}");
    assert_eq!(
        (snapshot.stats.blocks.in_use, snapshot.stats.host_blocks.in_use, snapshot.stats.swapped),
        (0, 0, 0)
    );
}

#[tokio::test]
async fn blocks_from_the_prefix_cache_change_no_bit() {
    let setup = Setup {
        block_size: 16,
        num_blocks: 20,
        budget: 29,
        free_order: FreeOrder::Shuffled(8),
        enable_prefix_caching: true,
        preemption_mode: PreemptionMode::Recompute,
        at_once: true,
    };
    let (together, snapshot) = answers(setup).await;
    assert_same(&together, &alone(16).await);
    assert!(snapshot.stats.prefix_cache_hits > 0, "{snapshot:?}");
    assert_eq!(snapshot.stats.blocks.in_use, 0);
}
