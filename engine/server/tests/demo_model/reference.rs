//! The demo model and its reference, made with llama.cpp and an exact F32 pass.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// One prompt of the reference; the file's `how_to_read` explains all keys.
#[derive(Deserialize)]
pub(crate) struct Prompt {
    pub(crate) name: String,
    pub(crate) text: Option<String>,
    pub(crate) messages: Option<Value>,
    pub(crate) formatted: Option<String>,
    pub(crate) prompt_ids: Vec<u32>,
    pub(crate) output_ids: Vec<u32>,
    pub(crate) output_text: String,
    /// By output position: the five most likely tokens and their log-probabilities.
    pub(crate) fp32_top5: Vec<Vec<(u32, f64)>>,
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The model's file: `REGATTA_MODEL`, or where `make model` puts it.
pub(crate) fn model_path() -> PathBuf {
    let default = || workspace().join(".models/SmolLM2-135M-Instruct.Q4_1.gguf");
    let path = std::env::var_os("REGATTA_MODEL").map_or_else(default, PathBuf::from);
    assert!(path.exists(), "{} is not there; `make model` fetches it", path.display());
    path
}

pub(crate) fn prompts() -> Vec<Prompt> {
    #[derive(Deserialize)]
    struct Reference {
        prompts: Vec<Prompt>,
    }
    let path = workspace().join("engine/runner/tests/data/smollm2-135m-q4_1.json");
    let reference: Reference = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(reference.prompts.len(), 7);
    reference.prompts
}
