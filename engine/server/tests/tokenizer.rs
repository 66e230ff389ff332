//! The demo model's tokenizer and chat template against the reference made with llama.cpp.

use std::path::{Path, PathBuf};

use regatta_engine::text::{self, Detokenizer, DetokenizerOptions, ModelText};
use regatta_runner::formats::Checkpoint;
use serde_json::Value;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn demo_model() -> ModelText {
    let path = std::env::var_os("REGATTA_MODEL")
        .map_or_else(|| workspace().join(".models/SmolLM2-135M-Instruct.Q4_1.gguf"), PathBuf::from);
    let checkpoint =
        Checkpoint::open(&path).unwrap_or_else(|error| panic!("{error}; `make model` fetches it"));
    text::load(checkpoint.tokenizer()).unwrap()
}

fn reference() -> Vec<Value> {
    let path = workspace().join("engine/runner/tests/data/smollm2-135m-q4_1.json");
    let reference: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    reference["prompts"].as_array().unwrap().clone()
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn prompt_ids_equal_the_reference() {
    let ModelText { tokenizer, chat_template } = demo_model();
    let prompts = reference();
    assert_eq!(prompts.len(), 7);
    for prompt in prompts {
        let text = match prompt["kind"].as_str().unwrap() {
            "completion" => prompt["text"].as_str().unwrap().to_owned(),
            _ => chat_template.render(&prompt["messages"], None, true, &Default::default()).unwrap(),
        };
        if let Some(formatted) = prompt["formatted"].as_str() {
            assert_eq!(text, formatted, "{}", prompt["name"]);
        }
        assert_eq!(tokenizer.encode(&text, true).unwrap(), ids(&prompt["prompt_ids"]), "{}", prompt["name"]);
        assert_eq!(tokenizer.decode(&ids(&prompt["prompt_ids"]), false), text, "{}", prompt["name"]);
    }
}

#[test]
fn answers_read_as_in_the_reference() {
    let ModelText { tokenizer, .. } = demo_model();
    for prompt in reference() {
        let mut detokenizer = Detokenizer::new(tokenizer.clone(), DetokenizerOptions::default());
        let output_ids = ids(&prompt["output_ids"]);
        let mut text: String = output_ids.iter().map(|&id| detokenizer.push(id).text).collect();
        text.push_str(&detokenizer.finish());
        assert_eq!(text, prompt["output_text"].as_str().unwrap(), "{}", prompt["name"]);
    }
}

#[test]
fn the_end_of_a_turn_ends_a_generation() {
    let ModelText { tokenizer, .. } = demo_model();
    let end = tokenizer.encode("<|im_end|>", false).unwrap();
    assert!(tokenizer.eos_token_ids().contains(&end[0]) && end.len() == 1);
    assert_eq!(tokenizer.vocab_size(), 49152);
}

#[test]
fn long_and_odd_texts_come_back_whole() {
    let ModelText { tokenizer, .. } = demo_model();
    let texts = [
        " ".repeat(100_000),
        "\n\t ".repeat(30_000),
        "a".repeat(100_000),
        "7".repeat(10_000),
        "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}".repeat(1000),
        "\0\u{1}\u{7f}\u{85}\u{2028}\u{feff}\u{fffd}\u{10ffff}".to_owned(),
        "e\u{301}\u{327} \u{5e9}\u{5dc} \u{915}\u{94d}\u{937} \u{1100}\u{1161}".to_owned(),
    ];
    for text in texts {
        let ids = tokenizer.encode(&text, false).unwrap();
        assert!(tokenizer.decode(&ids, false) == text, "{:.40}", text.escape_unicode());
    }
}
