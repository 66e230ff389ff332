//! Memory-mapped files.

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::FormatError;

/// A file mapped for reading. Weights are read in place and paged in on first use.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    map: Mmap,
}

impl MappedFile {
    /// Maps a regular file.
    ///
    /// # Errors
    /// The file is missing, unreadable, or not a regular file.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let io = |cause| FormatError::Io { path: path.to_owned(), cause };
        let file = File::open(path).map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(io(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file")));
        }
        // SAFETY: the map is private and read-only. Nobody may shorten a model file while an engine serves it: models
        // are mounted read-only, and a download reaches its final name only when it is complete.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Ok(Self { path: path.to_owned(), map })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its content.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    pub(crate) fn malformed(&self, reason: impl Into<String>) -> FormatError {
        FormatError::Malformed { path: self.path.clone(), reason: reason.into() }
    }
}
