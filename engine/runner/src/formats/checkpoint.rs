//! An opened model of any format: sizes, tensors by their published names, and where its tokenizer is.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::gguf::{Gguf, Metadata};
use super::hf::HfFolder;
use super::{FormatError, MappedFile, gguf, hf};
use crate::config::ModelConfig;
use crate::weights::{WeightType, WeightView};

/// A tensor in a file, checked to lie within it.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    /// Which of the checkpoint's files.
    pub(crate) file: usize,
    pub(crate) ty: WeightType,
    /// Sizes, the slowest dimension first.
    pub(crate) shape: Vec<usize>,
    pub(crate) range: Range<usize>,
}

/// Where tokenizer and chat template are found.
#[derive(Clone, Debug)]
pub enum TokenizerSource {
    /// In GGUF metadata, under `tokenizer.`.
    Gguf(Metadata),
    /// In files of the folder, as `tokenizer.json`.
    Folder(HfFolder),
}

/// A model whose headers are read. Weights are mapped, not loaded.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    format: &'static str,
    config: ModelConfig,
    tokenizer: TokenizerSource,
    files: Vec<Arc<MappedFile>>,
    tensors: BTreeMap<String, Tensor>,
    digest: Sha256,
}

impl Checkpoint {
    /// Opens a GGUF file or a Hugging Face folder.
    ///
    /// # Errors
    /// Nothing usable is there; the text says what and why.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let metadata =
            std::fs::metadata(path).map_err(|cause| FormatError::Io { path: path.to_owned(), cause })?;
        if metadata.is_dir() {
            return hf::open(HfFolder::new(path));
        }
        if !metadata.is_file() {
            // Opening a pipe would wait for someone to write into it.
            return Err(FormatError::Unsupported {
                path: path.to_owned(),
                what: "what is neither a file nor a folder".into(),
                supported: "give a GGUF file or a Hugging Face folder".into(),
            });
        }
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            return Err(FormatError::Unsupported {
                path: path.to_owned(),
                what: "a safetensors file without its folder".into(),
                supported: "give the folder that also holds config.json and tokenizer.json".into(),
            });
        }
        gguf::open(Gguf::open(path)?)
    }

    pub(super) fn new(
        path: &Path,
        format: &'static str,
        config: ModelConfig,
        tokenizer: TokenizerSource,
    ) -> Self {
        let (files, tensors) = (Vec::new(), BTreeMap::new());
        Self { path: path.to_owned(), format, config, tokenizer, files, tensors, digest: Sha256::new() }
    }

    pub(super) fn add_file(
        &mut self,
        file: Arc<MappedFile>,
        tensors: BTreeMap<String, Tensor>,
    ) -> Result<(), FormatError> {
        for (name, tensor) in tensors {
            if self.tensors.contains_key(&name) {
                return Err(
                    file.malformed(format!("the tensor `{name}` stands there, or in another file, too"))
                );
            }
            self.tensors.insert(name, tensor);
        }
        self.files.push(file);
        Ok(())
    }

    pub(super) fn digest_header(&mut self, header: &[u8]) {
        self.digest.update(header);
    }

    /// The file or folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `gguf` or `huggingface`.
    pub fn format(&self) -> &'static str {
        self.format
    }

    /// The model's sizes.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Where its tokenizer is.
    pub fn tokenizer(&self) -> &TokenizerSource {
        &self.tokenizer
    }

    /// Identity of the model: SHA-256, in hex, of what its headers say (sizes and tensor index), never of the data.
    pub fn digest(&self) -> String {
        self.digest.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Bytes of all files.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes().len() as u64).sum()
    }

    /// Tensors by their published names.
    pub(crate) fn tensors(&self) -> &BTreeMap<String, Tensor> {
        &self.tensors
    }

    /// A weight of the shape `[rows, columns]`, or `[columns]` where `rows` is 1.
    ///
    /// # Errors
    /// It is missing or has another shape.
    pub(crate) fn weight(
        &self,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<WeightView<'_>, FormatError> {
        let (name, tensor) = self.tensors.get_key_value(name).ok_or_else(|| {
            let reason = format!("it lacks the tensor `{name}`, which the architecture needs");
            FormatError::Malformed { path: self.path.clone(), reason }
        })?;
        let file = &self.files[tensor.file];
        let found: Vec<usize> = tensor.shape.iter().copied().skip_while(|&size| size == 1).collect();
        let needed: Vec<usize> = [rows, columns].into_iter().skip_while(|&size| size == 1).collect();
        if found != needed {
            return Err(file.malformed(format!(
                "tensor `{name}` has shape {:?}, the model's sizes ask for {needed:?}",
                tensor.shape
            )));
        }
        Ok(WeightView { name, ty: tensor.ty, rows, columns, data: &file.bytes()[tensor.range.clone()] })
    }
}
