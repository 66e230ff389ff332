//! Model files: what is in them, read from their headers alone.

mod error;
pub mod gguf;
mod map;

pub use error::FormatError;
pub use map::MappedFile;
