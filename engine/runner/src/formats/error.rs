//! What can be wrong with model files.

use std::path::PathBuf;

/// A model that cannot be opened. Texts name the file, the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The operating system refused.
    #[error("cannot read {path}: {cause}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        cause: std::io::Error,
    },
    /// The bytes break the format's own rules.
    #[error("{path} is damaged or not what it says: {reason}; get the file again and compare its checksum", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        reason: String,
    },
    /// Well-formed, but outside what this engine runs.
    #[error("{path}: {what} is not supported; {supported}", path = path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The thing and the value found.
        what: String,
        /// What would work.
        supported: String,
    },
}

/// A rule of a format that some bytes break; becomes [`FormatError::Malformed`] once the file is known.
pub(crate) type Reason = String;
