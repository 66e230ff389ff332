//! A real, tiny model with a window of attention under the engine thread: blocks that leave the window are given back
//! while sequences run, and what a request gets is the same bits all the same.

use std::fs;
use std::path::Path;

use regatta_core::plan::PositionLogprobs;
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{PreemptionMode, SchedulerConfig};
use regatta_engine::engine::{ChoiceStream, Engine, EngineConfig, EngineSnapshot, Event, GenerateRequest};
use regatta_runner::load::{KvMemory, LoadOptions, load};
use serde_json::{Value, json};
use tempfile::TempDir;

const WINDOW: u32 = 32;
const MAX_MODEL_LEN: u32 = 256;
const BLOCK_SIZE: u32 = 8;
const BUDGET: u32 = 24;

/// Which layers have the window.
#[derive(Clone, Copy, Debug)]
enum Windows {
    All,
    One,
}

/// How an engine is set up.
#[derive(Clone, Copy)]
struct Setup {
    num_blocks: u32,
    enable_prefix_caching: bool,
    preemption_mode: PreemptionMode,
}

const ROOMY: Setup =
    Setup { num_blocks: 1024, enable_prefix_caching: false, preemption_mode: PreemptionMode::Recompute };

/// Token ids and what is known of each.
type Answer = Vec<(u32, Option<PositionLogprobs>)>;

/// A copy of the Mistral model with a window shorter than the prompts.
fn model(windows: Windows) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runner/tests/data/tiny-mistral");
    for file in ["model.safetensors", "tokenizer.json"] {
        fs::copy(data.join(file), folder.path().join(file)).unwrap();
    }
    let mut config: Value = serde_json::from_slice(&fs::read(data.join("config.json")).unwrap()).unwrap();
    config["sliding_window"] = json!(WINDOW);
    if let Windows::One = windows {
        config["layer_types"] = json!(["full_attention", "sliding_attention"]);
    }
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    folder
}

fn start(
    model: &Path,
    setup: Setup,
) -> (regatta_engine::engine::EngineHandle, regatta_engine::engine::EngineThread) {
    let options = LoadOptions {
        block_size: BLOCK_SIZE,
        max_num_seqs: 6,
        max_num_batched_tokens: BUDGET,
        max_model_len: Some(MAX_MODEL_LEN),
        kv_memory: KvMemory::Blocks(setup.num_blocks),
        swap_bytes: 1 << 22,
        threads: Some(2),
        ..LoadOptions::default()
    };
    let scheduler = SchedulerConfig {
        max_model_len: MAX_MODEL_LEN,
        enable_prefix_caching: setup.enable_prefix_caching,
        preemption_mode: setup.preemption_mode,
        // Sequences are let in that will need more blocks than there are.
        reserve_full_isl: false,
        ..SchedulerConfig::default()
    };
    let runner = load(model, &options).expect("the model is whole").runner;
    Engine::spawn(runner, EngineConfig { scheduler, ..EngineConfig::default() }).unwrap()
}

/// Prompts around, below and far beyond the window, two in three with a beginning in common that is longer than it.
fn requests() -> Vec<GenerateRequest> {
    let request = |i: u32| {
        let common = if i.is_multiple_of(3) { 0 } else { 70 };
        let own = (0..3 + i * 23 % 90).map(|k| (i * 31 + k * 7) % 256);
        GenerateRequest {
            request_id: i.to_string(),
            prompt: (0..common).map(|k| k * 5 % 256).chain(own).collect(),
            n: 1,
            priority: 0,
            sampling: SamplingParams {
                temperature: if i.is_multiple_of(2) { 0.0 } else { 0.9 },
                seed: u64::from(i),
                logprobs: Some(3),
                max_tokens: 12 + i * 11 % 60,
                ..SamplingParams::default()
            },
            beams: None,
            cache_salt: None,
        }
    };
    (0..12).map(request).collect()
}

async fn read(mut stream: ChoiceStream) -> Answer {
    let mut answer = Vec::new();
    while let Some(event) = stream.recv().await {
        match event {
            Event::Token { token_id, logprobs } => answer.push((token_id, logprobs)),
            Event::Failed { reason } => panic!("{reason}"),
            _ => {}
        }
    }
    answer
}

/// All requests one after the other, nothing cached, in a pool where nobody gives anything up.
async fn alone(model: &Path) -> Vec<Answer> {
    let (handle, _thread) = start(model, ROOMY);
    let mut answers = Vec::new();
    for request in requests() {
        answers.push(read(handle.submit(request).unwrap().remove(0)).await);
    }
    answers
}

/// All requests at once, `rounds` times; the answers of the last round.
async fn together(model: &Path, setup: Setup, rounds: usize) -> (Vec<Answer>, EngineSnapshot) {
    let (handle, _thread) = start(model, setup);
    let mut answers = Vec::new();
    for _ in 0..rounds {
        let streams: Vec<_> =
            requests().into_iter().map(|request| handle.submit(request).unwrap().remove(0)).collect();
        answers.clear();
        for stream in streams {
            answers.push(read(stream).await);
        }
    }
    (answers, handle.snapshot())
}

fn assert_same(found: &[Answer], wanted: &[Answer], what: &str) {
    let differing: Vec<_> = (0..wanted.len()).filter(|&i| found[i] != wanted[i]).collect();
    assert!(differing.is_empty(), "{what}: requests {differing:?} differ");
}

/// A pool that one sequence can fill.
fn small_pool(windows: Windows) -> u32 {
    let of_window = (WINDOW - 1 + BUDGET).div_ceil(BLOCK_SIZE) + 1;
    match windows {
        Windows::All => of_window + 3,
        Windows::One => MAX_MODEL_LEN / BLOCK_SIZE + of_window,
    }
}

#[tokio::test]
async fn the_window_matters_to_these_requests() {
    let (windowed, mixed) = (model(Windows::All), model(Windows::One));
    assert_ne!(alone(windowed.path()).await, alone(mixed.path()).await);
}

#[tokio::test]
async fn at_once_and_from_the_prefix_cache_the_bits_are_those_of_each_alone() {
    for windows in [Windows::All, Windows::One] {
        let model = model(windows);
        let wanted = alone(model.path()).await;
        let (cold, _) = together(model.path(), ROOMY, 1).await;
        assert_same(&cold, &wanted, &format!("{windows:?}, cold"));
        let (warm, snapshot) =
            together(model.path(), Setup { enable_prefix_caching: true, ..ROOMY }, 2).await;
        assert_same(&warm, &wanted, &format!("{windows:?}, warm"));
        assert!(snapshot.stats.prefix_cache_hits > 0, "{snapshot:?}");
        assert_eq!(snapshot.stats.blocks.in_use, 0);
    }
}

#[tokio::test]
async fn preempted_sequences_go_on_with_the_same_bits() {
    for windows in [Windows::All, Windows::One] {
        let model = model(windows);
        let wanted = alone(model.path()).await;
        for preemption_mode in [PreemptionMode::Recompute, PreemptionMode::Swap] {
            for enable_prefix_caching in [false, true] {
                let setup = Setup { num_blocks: small_pool(windows), enable_prefix_caching, preemption_mode };
                let (found, snapshot) = together(model.path(), setup, 2).await;
                let what = format!("{windows:?}, {preemption_mode:?}, caching: {enable_prefix_caching}");
                assert_same(&found, &wanted, &what);
                let preemptions = match preemption_mode {
                    PreemptionMode::Swap => snapshot.stats.swap_preemptions,
                    _ => snapshot.stats.recompute_preemptions,
                };
                assert!(preemptions > 0, "{what}: {snapshot:?}");
                assert_eq!(
                    (snapshot.stats.blocks.in_use, snapshot.stats.host_blocks.in_use),
                    (0, 0),
                    "{what}"
                );
            }
        }
    }
}
