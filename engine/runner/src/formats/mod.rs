//! Model files: what is in them, read from their headers alone.

mod checkpoint;
mod error;
pub mod gguf;
mod hf;
mod map;

pub(crate) use checkpoint::Tensor;
pub use checkpoint::{Checkpoint, TokenizerSource};
pub use error::FormatError;
pub use hf::HfFolder;
pub use map::MappedFile;
