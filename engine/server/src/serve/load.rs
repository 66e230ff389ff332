//! From a path to a running engine.

use std::path::PathBuf;

use regatta_core::{runner::ModelRunner, scheduler::SchedulerConfig};
use regatta_runner::backend::cpu::CpuError;
use regatta_runner::facts::ModelFacts;
use regatta_runner::formats::FormatError;
use regatta_runner::load::{KvMemory, LoadError, LoadOptions, LoadedModel};

use super::capacity::Capacity;
use crate::{
    args::{MaxModelLen, ServeSettings, settings::KvCacheSize},
    engine::{Engine, EngineConfig, EngineThread},
    fetch::{FetchError, verify_sha256},
    kv_events::KvEventSender,
    load_error::ModelLoadError,
    model::ServedModel,
    openai::{DefaultsError, GenerationDefaults},
    text::{self, TextError},
};

/// A shorter context than this is of no use to anyone who did not ask for it.
const MIN_AUTO_MODEL_LEN: u64 = 256;

/// Why the model cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file is not the expected one.
    #[error(transparent)]
    Checksum(#[from] FetchError),
    /// A checksum was given for a folder.
    #[error("--model-sha256 is for a single file, and {} is a folder; remove the flag", .0.display())]
    Folder(PathBuf),
    /// Weights or settings.
    #[error(transparent)]
    Load(#[from] ModelLoadError),
    /// Tokenizer or chat template.
    #[error(transparent)]
    Text(#[from] TextError),
    /// `generation_config.json`.
    #[error(transparent)]
    Defaults(#[from] DefaultsError),
    /// No thread for the engine, or no file for its record.
    #[error("cannot start the engine: {0}")]
    Thread(std::io::Error),
    /// A defect.
    #[error("loading the model failed unexpectedly: {0}")]
    Panicked(String),
}

impl StartError {
    /// Whether another start with the same settings would end the same way.
    pub(super) fn is_permanent(&self) -> bool {
        match self {
            Self::Checksum(error) => matches!(error, FetchError::Checksum { .. }),
            Self::Load(ModelLoadError(
                LoadError::Backend(_)
                | LoadError::KvTooLarge { .. }
                | LoadError::Cpu(CpuError::Threads { .. }),
            )) => false,
            Self::Load(ModelLoadError(LoadError::Format(error))) | Self::Text(TextError::Format(error)) => {
                !may_pass(error)
            }
            Self::Folder(_) | Self::Load(_) | Self::Text(_) | Self::Defaults(_) => true,
            Self::Thread(_) | Self::Panicked(_) => false,
        }
    }
}

/// A file that is not there, or not ours to read, stays so until somebody acts.
fn may_pass(error: &FormatError) -> bool {
    use std::io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
    let FormatError::Io { cause, .. } = error else { return false };
    !matches!(cause.kind(), NotFound | PermissionDenied | IsADirectory | NotADirectory)
}

/// A running engine.
pub(super) struct Started {
    pub(super) model: ServedModel,
    pub(super) thread: EngineThread,
    /// The start-up line.
    pub(super) summary: String,
}

/// Verifies, loads and starts. Takes as long as reading the model does.
pub(super) fn load(
    settings: &ServeSettings,
    kv_events: Option<KvEventSender>,
) -> Result<Started, StartError> {
    if let Some(wanted) = &settings.model_sha256 {
        if settings.model.is_dir() {
            return Err(StartError::Folder(settings.model.clone()));
        }
        verify_sha256(&settings.model, wanted)?;
    }
    let defaults = GenerationDefaults::load(&settings.model)?;
    let loaded = load_weights(settings).map_err(ModelLoadError)?;
    let text = text::load(&loaded.tokenizer)?;
    let LoadedModel { facts, runner, max_model_len, backend, isa, .. } = loaded;
    let capacity = Capacity { limits: runner.limits(), max_model_len, kv_cache: settings.kv_cache };
    let summary = format!("serving {} on {backend}; {capacity}", settings.served_names.join(", "));
    let (engine, thread) =
        start(settings, runner, max_model_len, model_identity(settings, &facts), kv_events)
            .map_err(StartError::Thread)?;
    let model = ServedModel {
        engine,
        text,
        vocab_size: facts.config.vocab_size,
        root: settings.model.to_string_lossy().into_owned(),
        defaults,
        isa: isa.to_owned(),
    };
    Ok(Started { model, thread, summary })
}

fn load_weights(settings: &ServeSettings) -> Result<LoadedModel, LoadError> {
    let options = options(settings);
    match regatta_runner::load::load(&settings.model, &options) {
        // Left to the engine, a sequence is as long as the KV cache allows.
        Err(LoadError::KvTooSmall { held, max_model_len, .. })
            if settings.scheduler.max_model_len == MaxModelLen::Auto && held >= MIN_AUTO_MODEL_LEN =>
        {
            tracing::warn!(
                "the KV cache holds {held} tokens, fewer than the model's {max_model_len}: using {held}"
            );
            let max_model_len = u32::try_from(held).ok();
            regatta_runner::load::load(&settings.model, &LoadOptions { max_model_len, ..options })
        }
        loaded => loaded,
    }
}

fn start(
    settings: &ServeSettings,
    runner: Box<dyn ModelRunner>,
    max_model_len: u32,
    model_identity: String,
    kv_events: Option<KvEventSender>,
) -> std::io::Result<(crate::engine::EngineHandle, EngineThread)> {
    let scheduler = SchedulerConfig { model_identity, ..settings.scheduler.config(max_model_len) };
    let config = EngineConfig {
        scheduler,
        max_queued_requests: settings.max_num_choices(),
        max_queued_tokens: settings.max_num_queued_tokens as usize,
        record_schedule: settings.record_schedule.clone(),
        kv_events,
    };
    Engine::spawn(runner, config)
}

/// What names the model in hashes of blocks, the same on every pod: the published digest, or that of its headers.
fn model_identity(settings: &ServeSettings, facts: &ModelFacts) -> String {
    settings.model_sha256.clone().unwrap_or_else(|| facts.digest.clone())
}

fn options(settings: &ServeSettings) -> LoadOptions {
    let defaults = LoadOptions::default();
    LoadOptions {
        block_size: settings.scheduler.block_size,
        max_num_seqs: settings.scheduler.max_num_seqs,
        max_num_batched_tokens: settings.scheduler.max_num_batched_tokens,
        max_model_len: match settings.scheduler.max_model_len {
            MaxModelLen::Auto => None,
            MaxModelLen::Tokens(tokens) => Some(tokens),
        },
        kv_memory: match settings.kv_cache {
            KvCacheSize::Share(share) => KvMemory::Share(share),
            KvCacheSize::Bytes(bytes) => KvMemory::Bytes(bytes),
            KvCacheSize::Blocks(blocks) => KvMemory::Blocks(blocks),
        },
        swap_bytes: settings.swap_bytes,
        threads: settings.threads,
        ..defaults
    }
}
