//! What was fetched: `PATH.fetched.json` beside a file that is whole.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::FetchError;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// Where the file came from, without secrets.
    uri: String,
    num_bytes: u64,
}

/// Notes that `file` is the whole content of `uri`.
pub(super) fn write(file: &Path, uri: &str, num_bytes: u64) -> Result<(), FetchError> {
    let path = path_of(file);
    let record = Record { uri: uri.to_owned(), num_bytes };
    let json = serde_json::to_vec(&record).map_err(Into::into);
    json.and_then(|json| std::fs::write(&path, json)).map_err(|error| FetchError::file(&path, error))
}

/// Whether `file`, which has `num_bytes` bytes, is known to be the whole content of `uri`. A missing or damaged note
/// proves nothing.
pub(super) fn proves(file: &Path, uri: &str, num_bytes: u64) -> bool {
    let read =
        std::fs::read(path_of(file)).ok().and_then(|json| serde_json::from_slice::<Record>(&json).ok());
    read.is_some_and(|record| record.uri == uri && record.num_bytes == num_bytes)
}

fn path_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".fetched.json");
    name.into()
}
