//! Opening models: what the headers say, and texts that help when they cannot be used.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use regatta_runner::facts::ModelFacts;
use regatta_runner::formats::Checkpoint;
use regatta_runner::load::{KvMemory, LoadError, LoadOptions, load};
use rstest::rstest;
use safetensors::tensor::{SafeTensors, TensorView, serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::play::{data, demo_model};

fn facts(path: &Path) -> Value {
    serde_json::to_value(ModelFacts::of(&Checkpoint::open(path).unwrap())).unwrap()
}

/// A copy of a model folder that a test may change.
fn copy(name: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(data(name).join(file), folder.path().join(file)).unwrap();
    }
    folder
}

fn change_config(folder: &Path, key: &str, value: Value) {
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config[key] = value;
    fs::write(&path, config.to_string()).unwrap();
}

fn refusal(path: &Path) -> String {
    match load(path, &LoadOptions::default()) {
        Ok(_) => panic!("{} was loaded", path.display()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn facts_of_a_folder_come_from_its_headers() {
    let facts = facts(&data("tiny-llama"));
    let expected = json!({
        "format": "huggingface", "architecture": "llama", "num_layers": 2, "num_heads": 4, "num_kv_heads": 2,
        "head_dim": 16, "hidden_size": 64, "intermediate_size": 160, "vocab_size": 320, "context_length": 2048,
        "rms_norm_eps": 1e-5f32, "tie_word_embeddings": false,
        "rope": {"theta": 500_000.0, "scaling": {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64.0}},
        "parameters": 127_296, "weight_bytes": {"F32": 509_184}, "file_bytes": 511_322, "kv_bytes_per_token": 256,
        "digest": facts["digest"],
    });
    assert_eq!(facts, expected);
}

#[test]
fn facts_of_the_demo_model_come_from_its_header() {
    let facts = facts(&demo_model());
    assert_eq!(facts["kv_bytes_per_token"], 2 * 30 * 3 * 64 * 2);
    assert_eq!(facts["file_bytes"], 98_362_432);
    assert_eq!(facts["parameters"], 134_515_008);
    let types: Vec<&String> = facts["weight_bytes"].as_object().unwrap().keys().collect();
    assert_eq!(types, ["F32", "Q8_0", "Q4_1"]);
}

#[test]
fn the_digest_is_of_the_headers_and_not_of_the_data() {
    let digest = |path: &Path| facts(path)["digest"].as_str().unwrap().to_owned();
    let original = digest(&data("tiny-mistral"));
    let folder = copy("tiny-mistral");
    let weights = folder.path().join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    assert_eq!(digest(folder.path()), original);
    change_config(folder.path(), "rope_theta", json!(20_000.0));
    assert_ne!(digest(folder.path()), original);
    assert_ne!(digest(&data("tiny-llama")), original);
    assert_eq!(original.len(), 64);
}

#[test]
fn rope_parameters_of_newer_folders_mean_the_same_with_either_or_both_names_of_the_type() {
    let folder = copy("tiny-llama");
    let original = facts(folder.path())["rope"].clone();
    let mut rope = original["scaling"].clone();
    rope["rope_type"] = rope["type"].clone();
    rope["rope_theta"] = original["theta"].clone();
    for (key, value) in
        [("rope_scaling", Value::Null), ("rope_theta", Value::Null), ("rope_parameters", rope)]
    {
        change_config(folder.path(), key, value);
    }
    assert_eq!(facts(folder.path())["rope"], original);
}

#[test]
fn tied_embeddings_need_no_output_matrix() {
    let folder = copy("tiny-mistral");
    change_config(folder.path(), "tie_word_embeddings", json!(true));
    load(folder.path(), &LoadOptions { kv_memory: KvMemory::Blocks(128), ..Default::default() }).unwrap();
}

/// Splits a folder's weights into two files with an index.
fn shard(folder: &Path) {
    let path = folder.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut shards: [BTreeMap<String, TensorView<'_>>; 2] = Default::default();
    for (index, (name, view)) in tensors.tensors().into_iter().enumerate() {
        shards[index % 2].insert(name, view);
    }
    let mut weight_map = BTreeMap::new();
    for (number, shard) in shards.iter().enumerate() {
        let file = format!("model-0000{}-of-00002.safetensors", number + 1);
        fs::write(folder.join(&file), serialize(shard, None).unwrap()).unwrap();
        weight_map.extend(shard.keys().map(|name| (name.clone(), file.clone())));
    }
    fs::write(folder.join("model.safetensors.index.json"), json!({"weight_map": weight_map}).to_string())
        .unwrap();
}

#[test]
fn a_sharded_folder_is_the_same_model() {
    let folder = copy("tiny-mistral");
    shard(folder.path());
    assert_eq!(facts(folder.path())["parameters"], facts(&data("tiny-mistral"))["parameters"]);
    load(folder.path(), &LoadOptions { kv_memory: KvMemory::Blocks(128), ..Default::default() }).unwrap();
}

#[test]
fn a_window_of_attention_is_that_of_all_layers_or_of_those_that_are_named() {
    let folder = copy("tiny-mistral");
    let windows = |key, value| {
        change_config(folder.path(), key, value);
        let facts = facts(folder.path());
        assert_eq!(facts["context_length"], 2048);
        facts.get("windows").cloned()
    };
    assert_eq!(windows("sliding_window", json!(512)), Some(json!([512, 512])));
    let types = json!(["full_attention", "sliding_attention"]);
    assert_eq!(windows("layer_types", types), Some(json!([null, 512])));
    assert_eq!(windows("sliding_window", json!(2048)), None);
}

#[test]
fn windows_let_a_pool_hold_sequences_longer_than_itself() {
    let folder = copy("tiny-mistral");
    change_config(folder.path(), "sliding_window", json!(64));
    let options = LoadOptions { max_num_batched_tokens: 64, ..Default::default() };
    // 63 positions before a chunk of 64 touch nine blocks of 16.
    let least = LoadOptions { kv_memory: KvMemory::Blocks(9), ..options.clone() };
    assert_eq!(load(folder.path(), &least).unwrap().max_model_len, 2048);
    let error = load(folder.path(), &LoadOptions { kv_memory: KvMemory::Blocks(8), ..options.clone() });
    let error = error.err().expect("a block is missing");
    assert!(matches!(error, LoadError::KvTooSmall { held: 128, .. }), "{error}");
    change_config(folder.path(), "layer_types", json!(["full_attention", "sliding_attention"]));
    let mixed = LoadOptions { kv_memory: KvMemory::Blocks(128 + 8), ..options };
    let error = load(folder.path(), &mixed).err().expect("a block is missing");
    assert!(matches!(error, LoadError::KvTooSmall { held: 2032, .. }), "{error}");
}

#[rstest]
#[case("architectures", json!(["GPT2LMHeadModel"]), "the architecture `GPT2LMHeadModel` is not supported; supported: Llama")]
#[case("attention_bias", json!(true), "a bias in attention or mlp is not supported")]
#[case("hidden_act", json!("gelu"), "the activation `gelu` is not supported; supported: silu")]
#[case("rope_scaling", json!({"rope_type": "yarn", "factor": 4.0}), "rope scaling `yarn` is not supported")]
#[case("rope_scaling", json!({"rope_type": "linear"}), "rope's factor is NaN")]
#[case("quantization_config", json!({"quant_method": "awq"}), "the quantisation `awq` of safetensors")]
#[case("num_hidden_layers", json!(3), "lacks the tensor `model.layers.2.input_layernorm.weight`")]
#[case("num_hidden_layers", json!(1), "tensor `model.layers.1.input_layernorm.weight`, one of 9 without a place")]
#[case("num_hidden_layers", json!(1_000_000_000), "the number of layers is 1000000000, it must be 1 to 1024")]
#[case("hidden_size", json!(32), "has shape [320, 64], the model's sizes ask for [320, 32]")]
#[case("num_key_value_heads", json!(3), "4 heads cannot share 3 key/value heads evenly")]
#[case("head_dim", json!(15), "the head size 15 is odd")]
#[case("layer_types", json!([]), "0 layer_types for 2 layers is not supported")]
#[case("layer_types", json!(["linear_attention", "full_attention"]), "a layer of the type `linear_attention` is not supported")]
#[case("vocab_size", json!("many"), "invalid type: string")]
fn a_configuration_outside_the_family_is_refused_by_name(
    #[case] key: &str,
    #[case] value: Value,
    #[case] reason: &str,
) {
    let folder = copy("tiny-llama");
    change_config(folder.path(), key, value);
    let refusal = refusal(folder.path());
    assert!(refusal.contains(reason), "{refusal}");
}

#[test]
fn a_layer_with_a_window_of_no_size_is_refused() {
    let folder = copy("tiny-mistral");
    change_config(folder.path(), "sliding_window", Value::Null);
    change_config(folder.path(), "layer_types", json!(["sliding_attention", "full_attention"]));
    let refusal = refusal(folder.path());
    assert!(refusal.contains("`sliding_attention` and no sliding_window is not supported"), "{refusal}");
}

#[rstest]
#[case("../outside.safetensors")]
#[case("/etc/passwd.safetensors")]
#[case("model.bin")]
fn an_index_cannot_point_outside_its_folder(#[case] file: &str) {
    let folder = copy("tiny-llama");
    let index = json!({"weight_map": {"model.norm.weight": file}});
    fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    let refusal = refusal(folder.path());
    assert!(refusal.contains("is not the name of a safetensors file in this folder"), "{refusal}");
}

#[test]
fn what_is_no_model_is_refused_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    assert!(refusal(folder.path()).contains("it has no `config.json`"));
    assert!(refusal(&folder.path().join("missing")).starts_with("cannot read /"));
    assert!(refusal(&data("tiny-llama/config.json")).contains("it does not begin with `GGUF`"));
    assert!(refusal(&data("tiny-llama/model.safetensors")).contains("give the folder"));
    fs::write(folder.path().join("empty.gguf"), "").unwrap();
    assert!(refusal(&folder.path().join("empty.gguf")).contains("the magic number at byte 0 needs 4 bytes"));
}

#[test]
fn a_pool_below_one_sequence_is_refused_with_what_would_fit() {
    let options = LoadOptions { kv_memory: KvMemory::Bytes(100 * 16 * 256), ..Default::default() };
    let error = load(&data("tiny-llama"), &options).err().expect("100 blocks are 1600 tokens");
    assert!(matches!(error, LoadError::KvTooSmall { held: 1600, max_model_len: 2048, .. }), "{error}");
    let options = LoadOptions { max_model_len: Some(1600), ..options };
    assert_eq!(load(&data("tiny-llama"), &options).unwrap().runner.limits().num_blocks, 100);
}

#[test]
fn a_share_of_memory_is_no_more_than_all_sequences_can_use() {
    let options = LoadOptions { max_num_seqs: 3, max_model_len: Some(100), ..Default::default() };
    let loaded = load(&data("tiny-llama"), &options).unwrap();
    assert_eq!(loaded.runner.limits().num_blocks, 3 * 7);
    assert_eq!(loaded.max_model_len, 100);
}

#[rstest]
#[case(LoadOptions { max_model_len: Some(4096), ..Default::default() }, "this model takes 1 to 2048 tokens")]
#[case(LoadOptions { max_num_seqs: 0, ..Default::default() }, "max_num_seqs is 0")]
#[case(LoadOptions { threads: Some(0), ..Default::default() }, "threads is 0; give 1 to 1024")]
#[case(LoadOptions { block_size: 1 << 20, ..Default::default() }, "block_size is 1048576; give 1 to 1024")]
#[case(LoadOptions { kv_memory: KvMemory::Share(f32::NAN), ..Default::default() }, "kv_memory is NaN")]
#[case(LoadOptions { kv_memory: KvMemory::Blocks(u32::MAX), ..Default::default() }, "the KV cache of 4294967295 blocks takes")]
#[case(LoadOptions { kv_memory: KvMemory::Bytes(u64::MAX), ..Default::default() }, "bytes of memory are left")]
fn options_out_of_bounds_are_refused_by_name(#[case] options: LoadOptions, #[case] reason: &str) {
    let error = load(&data("tiny-llama"), &options).err().expect("out of bounds").to_string();
    assert!(error.contains(reason), "{error}");
}
