//! A folder as published on the Hugging Face hub.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::formats::FormatError;

/// Largest file that is read whole: the largest tokenizers in use take half of it.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// A model folder: `config.json`, weights, `tokenizer.json` and more.
#[derive(Clone, Debug)]
pub struct HfFolder {
    path: PathBuf,
}

impl HfFolder {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a small file of the folder, or `None` where there is none of this name.
    ///
    /// # Errors
    /// The file cannot be read or has more than 64 MiB.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, FormatError> {
        self.read_bounded(name, MAX_TEXT_BYTES)
    }

    /// Reads a file of the folder that has at most `max_bytes`.
    pub(super) fn read_bounded(&self, name: &str, max_bytes: u64) -> Result<Option<Vec<u8>>, FormatError> {
        let path = self.path.join(name);
        let io = |cause| FormatError::Io { path: path.clone(), cause };
        let file = match File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(io)?,
        };
        let mut text = Vec::new();
        file.take(max_bytes + 1).read_to_end(&mut text).map_err(io)?;
        if text.len() as u64 > max_bytes {
            let reason = format!("it has more than {max_bytes} bytes");
            return Err(FormatError::Malformed { path, reason });
        }
        Ok(Some(text))
    }
}
