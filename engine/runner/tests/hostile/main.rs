//! Hostile model files: a typed error, never a panic, and never more memory than a small multiple of the file.

mod allocations;
mod gguf;
mod gguf_writer;
mod safetensors;

use std::path::Path;

use regatta_runner::backend::cpu::CpuBackend;
use regatta_runner::facts::ModelFacts;
use regatta_runner::formats::{Checkpoint, TokenizerSource};
use regatta_runner::model::Llama;

/// No test model has more than some hundred kilobytes.
const MAX_BYTES: usize = 16 << 20;

/// Does all that is done with a model file before it runs. `Err` is the refusal's text.
fn open(path: &Path, backend: &CpuBackend) -> Result<(), String> {
    let (result, peak) = allocations::peak(|| {
        let checkpoint = Checkpoint::open(path).map_err(|error| error.to_string())?;
        ModelFacts::of(&checkpoint);
        if let TokenizerSource::Gguf(metadata) = checkpoint.tokenizer() {
            metadata.array_str("tokenizer.ggml.tokens");
            metadata.array_i32("tokenizer.ggml.token_type");
            metadata.array_f32("tokenizer.ggml.scores");
        }
        Llama::load(&checkpoint, backend).map_err(|error| error.to_string())?;
        Ok(())
    });
    assert!(peak < MAX_BYTES, "{peak} bytes were allocated at once");
    result
}

fn backend() -> CpuBackend {
    CpuBackend::new().expect("this machine can run")
}

#[test]
fn a_device_is_refused_before_it_is_opened() {
    let refusal = open(Path::new("/dev/zero"), &backend()).unwrap_err();
    assert!(refusal.contains("neither a file nor a folder"), "{refusal}");
}
