//! What the engine is asked for, and why it may refuse.

use std::sync::Arc;

use regatta_core::beam::EarlyStopping;
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::AdmissionError;

/// A prompt to continue, `n` times.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// Name of the request in logs.
    pub request_id: String,
    /// Prompt tokens; at least one.
    pub prompt: Arc<[u32]>,
    /// How many choices to generate; each is a sequence of its own.
    pub n: u32,
    /// Lower goes first, where the engine goes by priorities; elsewhere only 0 is taken.
    pub priority: i32,
    /// How tokens are chosen; its `choice` is the first stream's, and the others' count up.
    pub sampling: SamplingParams,
    /// Search for the `n` likeliest continuations instead of sampling. Of `sampling` then only `max_tokens`, the stop
    /// tokens and `logprobs` count, and everything comes at the end.
    pub beams: Option<BeamOptions>,
    /// Requests share the prefix cache only with those of the same salt.
    pub cache_salt: Option<Arc<str>>,
}

/// How hypotheses of a beam search are scored, and when it stops; as in [`BeamParams`](regatta_core::beam::BeamParams).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BeamOptions {
    /// Exponent of the length by which a score is divided.
    pub length_penalty: f32,
    /// When the search stops before `max_tokens`.
    pub early_stopping: EarlyStopping,
}

/// Why a request was not taken. Nothing of it was started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Too much is waiting already.
    #[error(
        "the engine's queue is full ({waiting_requests} requests with {waiting_tokens} prompt tokens wait); \
         try again later, or add replicas"
    )]
    QueueFull {
        /// Sequences waiting.
        waiting_requests: usize,
        /// Their prompt tokens.
        waiting_tokens: usize,
    },
    /// It is more than may ever wait.
    #[error(
        "{num_sequences} choices with {num_tokens} prompt tokens (those of a prompt count for each of its choices) are \
         more than may wait here at once: {max_requests} choices, {max_tokens} tokens (--max-num-queued-tokens); send \
         several requests, or shorter prompts"
    )]
    TooLarge {
        /// Sequences asked for.
        num_sequences: usize,
        /// Their prompt tokens.
        num_tokens: usize,
        /// Most sequences that may wait.
        max_requests: usize,
        /// Most prompt tokens that may wait.
        max_tokens: usize,
    },
    /// The engine finishes what it has and takes nothing new.
    #[error("the engine is shutting down; send the request to another replica")]
    ShuttingDown,
    /// The engine thread has ended unexpectedly.
    #[error("the engine thread has ended; its process must be restarted (the log of the engine says why)")]
    Dead,
    /// It has a priority, and there are none.
    #[error(
        "priority {priority} is not honoured: requests are served in order of arrival; leave `priority` out, or start \
         the engine with --scheduling-policy priority"
    )]
    NoPriorities {
        /// What was asked for.
        priority: i32,
    },
    /// The request asks for something that can never run here.
    #[error(transparent)]
    Impossible(#[from] AdmissionError),
}
