//! GGUF, versions 2 and 3: one memory-mapped file with key-value pairs, a tensor index and the tensors' data.
//!
//! Every count, length and offset is checked against the file and against a stated bound before it is used.

mod config;
mod cursor;
mod header;
mod metadata;
mod names;
mod types;

use std::path::Path;
use std::sync::Arc;

pub use metadata::Metadata;

use super::{Checkpoint, FormatError, MappedFile, Tensor, TokenizerSource};
use header::{Header, TensorInfo};

/// An opened GGUF file.
#[derive(Debug)]
pub struct Gguf {
    file: Arc<MappedFile>,
    /// Key-value pairs.
    pub metadata: Metadata,
    /// The tensor index, by place in the file.
    tensors: Vec<TensorInfo>,
    /// Bytes before the tensors' data.
    header_bytes: usize,
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

/// Turns an opened file into a checkpoint.
pub(super) fn open(gguf: Gguf) -> Result<Checkpoint, FormatError> {
    let config = config::read(&gguf)?;
    let Gguf { file, metadata, tensors, header_bytes } = gguf;
    let mut checkpoint = Checkpoint::new(file.path(), "gguf", config, TokenizerSource::Gguf(metadata));
    checkpoint.digest_header(&file.bytes()[..header_bytes]);
    let tensors = tensors.into_iter().map(|TensorInfo { name, ty, shape, range }| {
        (names::published(&name), Tensor { file: 0, ty, shape, range })
    });
    checkpoint.add_file(file, tensors.collect())?;
    Ok(checkpoint)
}
