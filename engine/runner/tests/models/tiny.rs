//! Tiny random models against an independent implementation, teacher-forced, in F32.

use std::path::Path;

use crate::play::{Transcript, data, greedy, play_alone, windowed};
use regatta_runner::backend::KvType;
use regatta_runner::load::{KvMemory, LoadOptions, load};
use serde::Deserialize;

/// `reference.json`, as `tests/data/README.md` explains it.
#[derive(Deserialize)]
struct Reference {
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    ids: Vec<u32>,
    /// By position: the ten most likely next tokens.
    top: Vec<Vec<(u32, f32)>>,
    greedy: Vec<(u32, f32)>,
}

const TOLERANCE: f32 = 1e-3;

fn check(model: &Path, reference: &Path) {
    let reference: Reference = serde_json::from_slice(&std::fs::read(reference).unwrap()).unwrap();
    let options =
        LoadOptions { kv_type: KvType::F32, kv_memory: KvMemory::Blocks(256), ..Default::default() };
    let mut runner = load(model, &options).unwrap().runner;
    for prompt in &reference.prompts {
        // The greedy tokens are part of the prompt, so that one close call cannot hide all that follows.
        let ids = prompt.ids.iter().copied().chain(prompt.greedy.iter().map(|&(id, _)| id)).collect();
        let Transcript { prompt_logprobs, .. } = play_alone(runner.as_mut(), &[greedy(ids, 1, 10)]).remove(0);
        for (found, expected) in prompt_logprobs.iter().zip(&prompt.top) {
            for (found, &(id, logprob)) in found.top.iter().zip(expected) {
                assert_eq!(found.token_id, id);
                assert!((found.logprob - logprob).abs() < TOLERANCE, "{found:?} is not {logprob}");
            }
        }
        for (found, &(id, logprob)) in prompt_logprobs[prompt.ids.len() - 1..].iter().zip(&prompt.greedy) {
            assert_eq!((found.token.token_id, found.token.rank, found.top[0].token_id), (id, 1, id));
            assert!((found.token.logprob - logprob).abs() < TOLERANCE, "{:?} is not {logprob}", found.token);
        }
    }
}

#[test]
fn llama_with_llama3_rope_scaling_agrees_with_its_reference() {
    check(&data("tiny-llama"), &data("tiny-llama/reference.json"));
}

#[test]
fn llama_as_gguf_agrees_with_the_same_reference() {
    check(&data("tiny-llama.gguf"), &data("tiny-llama/reference.json"));
}

#[test]
fn mistral_agrees_with_its_reference() {
    check(&data("tiny-mistral"), &data("tiny-mistral/reference.json"));
}

#[test]
fn mistral_with_a_window_in_all_layers_agrees_with_its_reference() {
    let folder = windowed(16, &["sliding_attention", "sliding_attention"]);
    check(folder.path(), &data("tiny-mistral/reference-window.json"));
}

#[test]
fn mistral_with_a_window_in_one_layer_agrees_with_its_reference() {
    let folder = windowed(16, &["sliding_attention", "full_attention"]);
    check(folder.path(), &data("tiny-mistral/reference-mixed.json"));
}
