//! The file while it grows.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::FetchError;
use super::checksum::{self, Sha256Hex};

/// What `PATH.part.json` says about the bytes in `PATH.part`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Origin {
    /// Where they came from, without secrets.
    uri: String,
    /// The strong ETag of the content that they begin.
    etag: String,
    /// Bytes of the whole content.
    total: u64,
}

/// `PATH.part` and what is known about it; no other process writes it.
#[derive(Debug)]
pub(super) struct Partial {
    path: PathBuf,
    file: File,
    len: u64,
    hasher: Sha256,
    uri: String,
    origin: Option<Origin>,
}

impl Partial {
    /// Opens what an earlier fetch of `uri` to the file `to` left, or begins anew.
    pub(super) fn open(to: &Path, uri: &str) -> Result<Self, FetchError> {
        let path = with_suffix(to, ".part");
        let failed = |error| FetchError::file(&path, error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FetchError::Busy { path }),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let origin = read_origin(&origin_path(&path)).filter(|origin| origin.uri == uri);
        if origin.is_none() {
            file.set_len(0).map_err(failed)?;
        }
        let (hasher, len) = checksum::hash_rest(&mut file).map_err(failed)?;
        Ok(Self { path, file, len, hasher, uri: uri.to_owned(), origin })
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether an earlier fetch brought all bytes.
    pub(super) fn is_complete(&self) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.total == self.len)
    }

    /// The ETag to go on from [`Self::len`] with, and the length of the whole; nothing to go on from without.
    pub(super) fn resumable(&self) -> Option<(&str, u64)> {
        let origin = self.origin.as_ref().filter(|origin| (1..origin.total).contains(&self.len))?;
        Some((&origin.etag, origin.total))
    }

    /// Begins anew with content that has this strong ETag and length, as far as known.
    pub(super) fn restart(&mut self, etag: Option<&str>, total: Option<u64>) -> Result<(), FetchError> {
        let failed = |error| FetchError::file(&self.path, error);
        self.file.set_len(0).map_err(failed)?;
        self.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        self.len = 0;
        self.hasher = Sha256::new();
        self.origin = etag.zip(total).map(|(etag, total)| Origin {
            uri: self.uri.clone(),
            etag: etag.to_owned(),
            total,
        });
        let origin_path = origin_path(&self.path);
        let written = match &self.origin {
            Some(origin) => serde_json::to_vec(origin)
                .map_err(Into::into)
                .and_then(|json| std::fs::write(&origin_path, json)),
            None => remove_if_there(&origin_path),
        };
        written.map_err(|error| FetchError::file(&origin_path, error))
    }

    /// Adds bytes at the end.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), FetchError> {
        self.file.write_all(bytes).map_err(|error| FetchError::file(&self.path, error))?;
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Holds the complete content to its checksum.
    pub(super) fn check(&self, expected: Option<&Sha256Hex>) -> Result<(), FetchError> {
        let found = Sha256Hex::of(&self.hasher);
        let Some(expected) = expected.filter(|&expected| *expected != found) else { return Ok(()) };
        let (expected, found) = (expected.to_string(), found.to_string());
        Err(FetchError::Checksum { subject: self.uri.clone(), expected, found })
    }

    /// Deletes all that is there.
    pub(super) fn discard(self) -> Result<(), FetchError> {
        for path in [&self.path, &origin_path(&self.path)] {
            remove_if_there(path).map_err(|error| FetchError::file(path, error))?;
        }
        Ok(())
    }

    /// Makes the content durable and gives it its name.
    pub(super) fn finish(self, to: &Path) -> Result<(), FetchError> {
        self.file.sync_all().map_err(|error| FetchError::file(&self.path, error))?;
        std::fs::rename(&self.path, to).map_err(|error| FetchError::file(to, error))?;
        let origin_path = origin_path(&self.path);
        remove_if_there(&origin_path).map_err(|error| FetchError::file(&origin_path, error))
    }
}

fn origin_path(part: &Path) -> PathBuf {
    with_suffix(part, ".json")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// What the sidecar says; a missing or damaged one says nothing.
fn read_origin(path: &Path) -> Option<Origin> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
