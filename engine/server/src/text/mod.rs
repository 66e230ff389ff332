//! Text in and out: tokenizer, chat template, incremental detokenizer with stop strings.
//!
//! [`load`] reads all that a model says about its text, from a GGUF file or a Hugging Face folder. Nothing here
//! knows a request or a socket.

mod chat_template;
mod detokenizer;
mod error;
mod folder;
mod gguf;
mod gguf_bpe;
mod gguf_spm;
mod pieces;
mod stop;
mod template_env;
#[cfg(test)]
mod testing;
mod tokenizer;

use std::path::Path;

pub use chat_template::ChatTemplate;
pub use detokenizer::{Delta, Detokenizer, DetokenizerOptions};
pub use error::TextError;
pub use gguf::GgufVocab;
pub use tokenizer::Tokenizer;

/// A model's tokenizer and chat template.
#[derive(Clone, Debug)]
pub struct ModelText {
    /// Text to token ids and back.
    pub tokenizer: Tokenizer,
    /// Messages to a prompt; rendering fails with a remedy when the model has none.
    pub chat_template: ChatTemplate,
}

/// Reads tokenizer and chat template of the model at `path`: a GGUF file or a Hugging Face folder.
pub fn load(path: &Path) -> Result<ModelText, TextError> {
    if path.is_dir() { folder::load(path) } else { gguf::load(path) }
}
