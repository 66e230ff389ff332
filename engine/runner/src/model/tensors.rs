//! The weights of a checkpoint, handed out once each.

use std::collections::BTreeSet;

use crate::backend::{Backend, BackendError};
use crate::formats::{Checkpoint, FormatError};
use crate::weights::WeightView;

use super::ModelError;

/// Packs weights for a backend and remembers which are still unused.
pub(super) struct Tensors<'a, B> {
    checkpoint: &'a Checkpoint,
    backend: &'a B,
    unused: BTreeSet<&'a str>,
}

impl<'a, B: Backend> Tensors<'a, B> {
    pub(super) fn new(checkpoint: &'a Checkpoint, backend: &'a B) -> Self {
        // Rotary tables are part of the configuration.
        let tables = |name: &str| name == "rope_freqs.weight" || name.ends_with("rotary_emb.inv_freq");
        let unused = checkpoint.tensors().keys().map(String::as_str).filter(|name| !tables(name)).collect();
        Self { checkpoint, backend, unused }
    }

    fn take(&mut self, name: &str, rows: usize, columns: usize) -> Result<WeightView<'a>, FormatError> {
        self.unused.remove(name);
        self.checkpoint.weight(name, rows, columns)
    }

    fn packed<T>(&self, result: Result<T, BackendError>) -> Result<T, ModelError> {
        result.map_err(|cause| ModelError::Backend { path: self.checkpoint.path().to_owned(), cause })
    }

    /// A vector of `columns`.
    pub(super) fn vector(&mut self, name: &str, columns: usize) -> Result<B::Buffer, ModelError> {
        let view = self.take(name, 1, columns)?;
        self.packed(self.backend.vector(&view))
    }

    /// A matrix `[rows, columns]`.
    pub(super) fn matrix(
        &mut self,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<B::Matrix, ModelError> {
        let view = self.take(name, rows, columns)?;
        self.packed(self.backend.pack(&view))
    }

    /// Several matrices `[rows, columns]`, stacked in this order.
    pub(super) fn stacked<const N: usize>(
        &mut self,
        parts: [(String, usize); N],
        columns: usize,
    ) -> Result<B::Matrix, ModelError> {
        let mut views = Vec::with_capacity(N);
        for (name, rows) in &parts {
            views.push(self.take(name, *rows, columns)?);
        }
        self.packed(self.backend.pack_stacked(&views))
    }

    /// Leaves a tensor out on purpose.
    pub(super) fn ignore(&mut self, name: &str) {
        self.unused.remove(name);
    }

    /// Refuses a checkpoint with tensors that the model would silently leave out.
    pub(super) fn finish(self) -> Result<(), ModelError> {
        match self.unused.first() {
            None => Ok(()),
            Some(name) => Err(ModelError::Format(FormatError::Unsupported {
                path: self.checkpoint.path().to_owned(),
                what: format!(
                    "tensor `{name}`, one of {} without a place in this architecture,",
                    self.unused.len()
                ),
                supported: "use a plain model of the llama family, without biases".into(),
            })),
        }
    }
}
