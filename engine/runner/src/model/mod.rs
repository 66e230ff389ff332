//! Models, over the operations of a [`Backend`](crate::backend::Backend).

mod llama;
mod rope;
mod tensors;

pub use llama::{Activations, Llama};

use std::path::PathBuf;

use crate::backend::BackendError;
use crate::formats::FormatError;

/// A model that cannot be built from its checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A weight is missing, has another shape, or has no place in the architecture.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The backend cannot take a weight.
    #[error("{path}: {cause}", path = path.display())]
    Backend {
        /// The model's file or folder.
        path: PathBuf,
        /// The backend's reason.
        cause: BackendError,
    },
}
