//! Hugging Face folders: `config.json`, safetensors and the tokenizer's files.

mod config;
mod folder;
mod shards;

pub use folder::HfFolder;

use super::{Checkpoint, FormatError, TokenizerSource};

const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Reads the headers of a folder.
pub(super) fn open(folder: HfFolder) -> Result<Checkpoint, FormatError> {
    let missing = || FormatError::Malformed {
        path: folder.path().to_owned(),
        reason: "it has no `config.json`, so it is not a whole model in Hugging Face's layout".into(),
    };
    let text = folder.read_bounded("config.json", MAX_CONFIG_BYTES)?.ok_or_else(missing)?;
    let config = config::read(&folder, &text)?;
    let shards = shards::open(&folder)?;
    let path = folder.path().to_owned();
    let mut checkpoint = Checkpoint::new(&path, "huggingface", config, TokenizerSource::Folder(folder));
    checkpoint.digest_header(&text);
    for shard in shards {
        checkpoint.digest_header(&shard.file.bytes()[..shard.header_bytes]);
        checkpoint.add_file(shard.file, shard.tensors)?;
    }
    Ok(checkpoint)
}
