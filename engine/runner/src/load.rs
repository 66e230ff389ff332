//! From a path to a runner.

use std::path::Path;

use regatta_core::runner::{ModelRunner, RunnerLimits};

use crate::backend::cpu::{CpuBackend, CpuError, Isa};
use crate::backend::{Backend, BackendError, KvType};
use crate::config::ModelConfig;
use crate::facts::ModelFacts;
use crate::formats::{Checkpoint, FormatError, TokenizerSource};
use crate::kv_layout::KvLayout;
use crate::memory;
use crate::model::{Llama, ModelError};
use crate::runner::LocalRunner;

/// Memory that is taken to be there where the system does not say.
const UNKNOWN_MEMORY: u64 = 4 << 30;

/// How much a runner shall hold.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Tokens in a KV block.
    pub block_size: u32,
    /// Sequences at once.
    pub max_num_seqs: u32,
    /// Tokens in a step.
    pub max_num_batched_tokens: u32,
    /// Longest sequence; absent: the model's context length.
    pub max_model_len: Option<u32>,
    /// Size of the KV pool.
    pub kv_memory: KvMemory,
    /// Bytes of host memory for the KV of preempted sequences; 0: none.
    pub swap_bytes: u64,
    /// Element type of the KV cache.
    pub kv_type: KvType,
    /// Compute threads; absent: as many as the process may use.
    pub threads: Option<usize>,
}

/// How the KV pool is sized.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KvMemory {
    /// So many blocks.
    Blocks(u32),
    /// So many bytes.
    Bytes(u64),
    /// This share, in (0, 1], of the memory that is left when the weights are loaded; never more than
    /// `max_num_seqs` sequences of `max_model_len` can use.
    Share(f32),
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            block_size: 16,
            max_num_seqs: 256,
            max_num_batched_tokens: 2048,
            max_model_len: None,
            // The other half is for the engine that replaces this one on the same node.
            kv_memory: KvMemory::Share(0.5),
            swap_bytes: 0,
            kv_type: KvType::F16,
            threads: None,
        }
    }
}

/// A model ready to run.
pub struct LoadedModel {
    /// What its headers say.
    pub facts: ModelFacts,
    /// Runs its steps.
    pub runner: Box<dyn ModelRunner>,
    /// Longest sequence, in tokens.
    pub max_model_len: u32,
    /// Where its tokenizer is.
    pub tokenizer: TokenizerSource,
    /// One line for the log: instruction set and threads.
    pub backend: String,
    /// The instruction set in use.
    pub isa: &'static str,
}

/// A model that cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Its files are at fault.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Its weights are.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The CPU backend cannot be set up.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// Memory for KV cache or buffers could not be had.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// An option is out of bounds.
    #[error("{option} is {value}; {remedy}")]
    Option {
        /// Its name, as in [`LoadOptions`].
        option: &'static str,
        /// What was asked for.
        value: String,
        /// What would work.
        remedy: String,
    },
    /// The KV pool is too small for one sequence.
    #[error(
        "the KV cache holds {held} tokens, fewer than one sequence of {max_model_len}: \
         lower the maximum model length to at most {held}, or give the KV cache {needed_bytes} bytes \
         ({needed_blocks} blocks)"
    )]
    KvTooSmall {
        /// Tokens that fit.
        held: u64,
        /// Tokens of the longest sequence.
        max_model_len: u32,
        /// Bytes for one such sequence.
        needed_bytes: u64,
        /// The same in blocks.
        needed_blocks: u64,
    },
    /// The KV pool is larger than the memory that is left.
    #[error(
        "the KV cache of {num_blocks} blocks takes {bytes} bytes and {available} bytes of memory are left; give it less"
    )]
    KvTooLarge {
        /// Blocks asked for.
        num_blocks: u64,
        /// What they take.
        bytes: u64,
        /// What there is.
        available: u64,
    },
}

/// Opens a GGUF file or a Hugging Face folder and loads it on this machine's CPUs.
///
/// # Errors
/// See [`LoadError`]; the texts name the file or option, the cause and the remedy.
pub fn load(path: &Path, options: &LoadOptions) -> Result<LoadedModel, LoadError> {
    let checkpoint = Checkpoint::open(path)?;
    let max_model_len = max_model_len(options, checkpoint.config())?;
    check_counts(options)?;
    let backend = match options.threads {
        None => CpuBackend::new()?,
        Some(threads) => CpuBackend::with(Isa::from_env().map_err(CpuError::from)?, threads)?,
    };
    let isa = backend.isa().name();
    let description = backend.describe();
    let model = Llama::load(&checkpoint, &backend)?;
    let kv = model.kv_layout();
    let limits = RunnerLimits {
        block_size: options.block_size,
        num_blocks: num_blocks(options, checkpoint.config(), kv, max_model_len)?,
        kv_groups: kv.groups,
        num_host_blocks: num_host_blocks(options, checkpoint.config(), kv)?,
        max_num_seqs: options.max_num_seqs,
        max_num_batched_tokens: options.max_num_batched_tokens,
        max_in_flight: 1,
        feeds_sampled_tokens: false,
    };
    let runner = LocalRunner::new(backend, model, options.kv_type, max_model_len, limits)?;
    Ok(LoadedModel {
        facts: ModelFacts::of(&checkpoint),
        runner: Box::new(runner),
        max_model_len,
        tokenizer: checkpoint.tokenizer().clone(),
        backend: description,
        isa,
    })
}

fn max_model_len(options: &LoadOptions, config: &ModelConfig) -> Result<u32, LoadError> {
    let context_length = config.context_length as u32;
    match options.max_model_len {
        None => Ok(context_length),
        Some(len) if (1..=context_length).contains(&len) => Ok(len),
        Some(len) => Err(LoadError::Option {
            option: "max_model_len",
            value: len.to_string(),
            remedy: format!("this model takes 1 to {context_length} tokens"),
        }),
    }
}

fn check_counts(options: &LoadOptions) -> Result<(), LoadError> {
    let within = |option, value: u32, max: u32| match value {
        1.. if value <= max => Ok(()),
        _ => Err(LoadError::Option { option, value: value.to_string(), remedy: format!("give 1 to {max}") }),
    };
    within("threads", options.threads.map_or(1, |threads| threads.try_into().unwrap_or(u32::MAX)), 1024)?;
    within("block_size", options.block_size, 1024)?;
    within("max_num_seqs", options.max_num_seqs, 65_536)?;
    within("max_num_batched_tokens", options.max_num_batched_tokens, 1 << 20)
}

/// Bytes of a KV block: its tokens in the layers of a group.
fn block_bytes(options: &LoadOptions, model: &ModelConfig, kv: &KvLayout) -> u64 {
    let element_bytes = match options.kv_type {
        KvType::F16 => 2,
        KvType::F32 => 4,
    };
    let layer_bytes = model.kv_bytes_per_token(element_bytes) / model.num_layers as u64;
    layer_bytes * kv.layers_per_group as u64 * u64::from(options.block_size)
}

fn num_host_blocks(options: &LoadOptions, model: &ModelConfig, kv: &KvLayout) -> Result<u32, LoadError> {
    let available = memory::available_bytes().unwrap_or(UNKNOWN_MEMORY);
    if options.swap_bytes > available {
        return Err(LoadError::Option {
            option: "swap_bytes",
            value: format!("{} bytes", options.swap_bytes),
            remedy: format!("{available} bytes of memory are left; give less, or none"),
        });
    }
    let num_blocks = options.swap_bytes / block_bytes(options, model, kv);
    Ok(u32::try_from(num_blocks).unwrap_or(u32::MAX))
}

/// How many blocks of which groups the KV pool gets.
fn num_blocks(
    options: &LoadOptions,
    model: &ModelConfig,
    kv: &KvLayout,
    max_model_len: u32,
) -> Result<u32, LoadError> {
    let block_bytes = block_bytes(options, model, kv);
    let blocks_of = |num_tokens| {
        u64::from(kv.groups.max_blocks(num_tokens, options.max_num_batched_tokens, options.block_size))
    };
    let available = memory::available_bytes().unwrap_or(UNKNOWN_MEMORY);
    let num_blocks = match options.kv_memory {
        KvMemory::Blocks(num_blocks) => num_blocks.into(),
        KvMemory::Bytes(bytes) => bytes / block_bytes,
        KvMemory::Share(share) => {
            if !(share > 0.0 && share <= 1.0) {
                let remedy = "give a number above 0 and at most 1".into();
                return Err(LoadError::Option { option: "kv_memory", value: share.to_string(), remedy });
            }
            let available = available.saturating_sub(options.swap_bytes) as f64;
            let bytes = (available * f64::from(share)) as u64;
            (bytes / block_bytes).min(blocks_of(max_model_len) * u64::from(options.max_num_seqs))
        }
    };
    if num_blocks < blocks_of(max_model_len) {
        let held = longest(max_model_len / options.block_size, |len| {
            blocks_of(len * options.block_size) <= num_blocks
        });
        let held = u64::from(held) * u64::from(options.block_size);
        let needed_blocks = blocks_of(max_model_len);
        let needed_bytes = needed_blocks * block_bytes;
        return Err(LoadError::KvTooSmall { held, max_model_len, needed_bytes, needed_blocks });
    }
    let bytes = num_blocks.saturating_mul(block_bytes);
    if bytes > available {
        return Err(LoadError::KvTooLarge { num_blocks, bytes, available });
    }
    // Block ids are 32 bits wide, and the last of them names none; a larger pool than that has no use.
    Ok(num_blocks.min(u64::from(u32::MAX)) as u32)
}

/// The greatest length up to `max` that fits; what is shorter than a length that fits does, too.
fn longest(max: u32, fits: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, max);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}
