//! Hugging Face folders: `config.json`, safetensors and the tokenizer's files.

mod config;
mod folder;
mod shards;

pub use folder::HfFolder;

use super::{Checkpoint, FormatError, TokenizerSource};

/// Reads the headers of a folder.
pub(super) fn open(folder: HfFolder) -> Result<Checkpoint, FormatError> {
    let text = folder.require("config.json")?;
    let config = config::read(&folder, &text)?;
    let shards = shards::open(&folder)?;
    let mut checkpoint = Checkpoint::new("huggingface", config, TokenizerSource::Folder(folder));
    checkpoint.digest_header(&text);
    for shard in shards {
        checkpoint.digest_header(&shard.file.bytes()[..shard.header_bytes]);
        checkpoint.add_file(shard.file, shard.tensors)?;
    }
    Ok(checkpoint)
}
