//! The demo model against an exact F32 pass over the same weights, teacher-forced.

use crate::play::{data, demo_model, greedy, play_alone};
use regatta_runner::load::{KvMemory, LoadOptions, load};
use serde::Deserialize;

/// The parts of the reference that are used here; its `how_to_read` explains all.
#[derive(Deserialize)]
struct Reference {
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    name: String,
    prompt_ids: Vec<u32>,
    output_ids: Vec<u32>,
    /// By output position: the five most likely tokens.
    fp32_top5: Vec<Vec<(u32, f32)>>,
}

/// Bounds for activations quantised to eight bits.
const MAX_MEAN: f32 = 0.05;
const MAX_P99: f32 = 0.3;
/// Where the exact gap between first and second is wider, the first must be the same.
const CLEAR_GAP: f32 = 0.3;

#[test]
fn log_probabilities_of_the_demo_model_stay_close_to_the_exact_ones() {
    let text = std::fs::read(data("smollm2-135m-q4_1.json")).unwrap();
    let reference: Reference = serde_json::from_slice(&text).unwrap();
    let options = LoadOptions { kv_memory: KvMemory::Blocks(512), ..Default::default() };
    let mut runner = load(&demo_model(), &options).unwrap().runner;
    let mut differences = Vec::new();
    for prompt in &reference.prompts {
        let ids = [&prompt.prompt_ids[..], &prompt.output_ids].concat();
        let transcript = play_alone(runner.as_mut(), &[greedy(ids, 1, 5)]).remove(0);
        let outputs = &transcript.prompt_logprobs[prompt.prompt_ids.len() - 1..];
        assert_eq!(outputs.len(), prompt.output_ids.len());
        for (position, (found, exact)) in outputs.iter().zip(&prompt.fp32_top5).enumerate() {
            if let Some((_, logprob)) = exact.iter().find(|(id, _)| *id == found.token.token_id) {
                differences.push((found.token.logprob - logprob).abs());
            }
            if exact[0].1 - exact[1].1 > CLEAR_GAP {
                assert_eq!(found.top[0].token_id, exact[0].0, "`{}` at output {position}", prompt.name);
            }
        }
    }
    differences.sort_by(f32::total_cmp);
    let mean = differences.iter().sum::<f32>() / differences.len() as f32;
    let p99 = differences[differences.len() * 99 / 100];
    println!(
        "{} positions: mean {mean:.4}, p99 {p99:.4}, max {:.4}",
        differences.len(),
        differences.last().unwrap()
    );
    assert!(differences.len() > 400, "only {} positions were compared", differences.len());
    assert!(mean <= MAX_MEAN && p99 <= MAX_P99, "mean {mean}, p99 {p99}");
}
