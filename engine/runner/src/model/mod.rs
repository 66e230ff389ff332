//! Models, over the operations of a [`Backend`](crate::backend::Backend).

mod llama;
mod rope;
mod tensors;

pub use llama::{Activations, Llama};

use crate::backend::BackendError;
use crate::formats::FormatError;

/// A model that cannot be built from its checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A weight is missing or has another shape.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The backend cannot take a weight.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A weight that the architecture does not have; without it the model would answer something else.
    #[error(
        "tensor `{name}` and {others} others have no place in this architecture; \
         use a model of the plain llama architecture (no biases, no adapters merged beside the weights)"
    )]
    UnusedTensor {
        /// The first such tensor.
        name: String,
        /// How many more there are.
        others: usize,
    },
}
