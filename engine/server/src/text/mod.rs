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
pub(crate) mod testing;
mod tokenizer;

use regatta_runner::formats::TokenizerSource;

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

/// Reads tokenizer and chat template from where the model keeps them.
///
/// # Errors
/// Something is missing, damaged or of a kind without support; the text says which file or key.
pub fn load(source: &TokenizerSource) -> Result<ModelText, TextError> {
    match source {
        TokenizerSource::Gguf(metadata) => gguf::load(metadata),
        TokenizerSource::Folder(folder) => folder::load(folder),
    }
}
