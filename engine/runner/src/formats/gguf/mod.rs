//! GGUF, versions 2 and 3: one memory-mapped file with key-value pairs, a tensor index and the tensors' data.
//!
//! Every count, length and offset is checked against the file and against a stated bound before it is used.

mod cursor;
mod header;
mod metadata;
mod types;

use std::path::Path;
use std::sync::Arc;

pub use metadata::Metadata;

use super::{FormatError, MappedFile};
use header::Header;
pub(crate) use header::TensorInfo;

/// An opened GGUF file.
#[derive(Debug)]
pub struct Gguf {
    /// The mapped file.
    pub(crate) file: Arc<MappedFile>,
    /// Key-value pairs.
    pub metadata: Metadata,
    /// The tensor index, by place in the file.
    pub(crate) tensors: Vec<TensorInfo>,
    /// Bytes before the tensors' data.
    pub(crate) header_bytes: usize,
}

impl Gguf {
    /// Maps the file and reads its header.
    ///
    /// # Errors
    /// The file cannot be read, breaks GGUF's rules or holds a tensor type without support.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let file = Arc::new(MappedFile::open(path)?);
        let Header { entries, tensors, header_bytes } =
            header::read(file.bytes()).map_err(|problem| problem.in_file(path))?;
        Ok(Self { metadata: Metadata::new(file.clone(), entries), file, tensors, header_bytes })
    }
}
