//! Tiny random models against an independent implementation, teacher-forced, in F32.

use std::path::Path;

use crate::play::{Transcript, data, greedy, play_alone, windowed};
use regatta_runner::backend::KvType;
use regatta_runner::load::{KvMemory, LoadOptions, load};
use serde::Deserialize;
use serde_json::json;

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

const WINDOW: u32 = 16;

/// A file as `tiny-llama.gguf`, with a window in its metadata.
fn windowed_gguf(folder: &Path) -> std::path::PathBuf {
    let mut bytes = std::fs::read(data("tiny-llama.gguf")).unwrap();
    // The second entry fills up what the first adds: the data keep their alignment of 32.
    let entries: Vec<u8> = ["llama.attention.sliding_window", "zz"]
        .iter()
        .flat_map(|key| {
            let number = [4u32.to_le_bytes(), WINDOW.to_le_bytes()].concat();
            [&(key.len() as u64).to_le_bytes()[..], key.as_bytes(), &number].concat()
        })
        .collect();
    assert!(entries.len().is_multiple_of(32));
    let num_entries = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) + 2;
    bytes[16..24].copy_from_slice(&num_entries.to_le_bytes());
    bytes.splice(24..24, entries);
    let path = folder.join("windowed.gguf");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_window_in_gguf_metadata_is_that_of_a_folder_with_it_in_all_layers() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["model.safetensors", "tokenizer.json"] {
        std::fs::copy(data("tiny-llama").join(file), folder.path().join(file)).unwrap();
    }
    let config = std::fs::read(data("tiny-llama/config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    config["sliding_window"] = json!(WINDOW);
    config["layer_types"] = json!(["sliding_attention", "sliding_attention"]);
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let play = |model: &Path| {
        let options =
            LoadOptions { kv_type: KvType::F32, kv_memory: KvMemory::Blocks(256), ..Default::default() };
        let prompt = (0..80).map(|k| k * 37 % 250).collect();
        let mut runner = load(model, &options).unwrap().runner;
        let Transcript { prompt_logprobs, .. } =
            play_alone(runner.as_mut(), &[greedy(prompt, 1, 1)]).remove(0);
        prompt_logprobs.iter().map(|position| position.token.logprob).collect::<Vec<f32>>()
    };
    let wanted = play(folder.path());
    let furthest = |found: &[f32]| {
        assert_eq!(found.len(), wanted.len());
        found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    };
    assert!(furthest(&play(&windowed_gguf(folder.path()))) < TOLERANCE);
    assert!(furthest(&play(&data("tiny-llama.gguf"))) > 10.0 * TOLERANCE, "the window matters here");
}
