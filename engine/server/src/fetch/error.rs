//! Why a file could not be brought.

use std::path::{Path, PathBuf};

/// An error of a fetch. URIs in its texts have neither credentials nor query.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Not a URI.
    #[error("the uri is not valid: {0}; expected http://HOST/FILE or https://HOST/FILE")]
    InvalidUri(String),
    /// A URI that this command does not fetch.
    #[error(
        "cannot fetch a `{scheme}://` uri; supported are http:// and https://, and a local file needs no fetch"
    )]
    UnsupportedScheme {
        /// The URI's scheme.
        scheme: String,
    },
    /// The wanted checksum is none.
    #[error("`{0}` is not a sha-256 checksum; expected 64 hexadecimal digits")]
    InvalidChecksum(String),
    /// The server refused for good.
    #[error("{uri} answered {status}; {remedy}")]
    Refused {
        /// What was asked for.
        uri: String,
        /// The answer's status line.
        status: String,
        /// What to check.
        remedy: &'static str,
    },
    /// Where the content ends cannot be known.
    #[error(
        "{uri} comes without a length, so that a broken connection would look like its end; give its sha-256, or serve it \
         with a Content-Length"
    )]
    NoLength {
        /// What was asked for.
        uri: String,
    },
    /// The exchange failed in a way that repetition does not mend.
    #[error("cannot fetch {uri}: {cause}")]
    Failed {
        /// What was asked for.
        uri: String,
        /// What happened.
        cause: String,
    },
    /// Every attempt failed.
    #[error(
        "gave up on {uri} after {attempts} attempts that brought nothing new: {cause}; run it again to resume"
    )]
    GaveUp {
        /// What was asked for.
        uri: String,
        /// Attempts in a row without progress.
        attempts: u32,
        /// What the last one met.
        cause: String,
    },
    /// The content is not the one asked for.
    #[error(
        "{subject} has sha-256 {found}, expected {expected}; check the checksum and where the file comes from"
    )]
    Checksum {
        /// The URI or the file.
        subject: String,
        /// The checksum asked for.
        expected: String,
        /// The content's.
        found: String,
    },
    /// No room.
    #[error("the disk is full while writing {}; make room and run it again to resume", path.display())]
    DiskFull {
        /// The file that grows.
        path: PathBuf,
    },
    /// Another process writes the same file.
    #[error("another fetch is writing {}; wait for it or end it", path.display())]
    Busy {
        /// The file that grows.
        path: PathBuf,
    },
    /// The local file system refused.
    #[error("{}: {cause}; check the path and its permissions", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
}

impl FetchError {
    /// What a failed operation on the file at `path` means.
    pub(super) fn file(path: &Path, cause: std::io::Error) -> Self {
        let path = path.to_owned();
        match cause.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            _ => Self::File { path, cause },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_space_is_a_full_disk() {
        let no_space = std::io::Error::from_raw_os_error(28);
        let error = FetchError::file(Path::new("/models/a.gguf.part"), no_space).to_string();
        assert!(error.contains("disk is full") && error.contains("/models/a.gguf.part"), "{error}");
    }
}
