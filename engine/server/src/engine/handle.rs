//! The way in for everyone else.

use std::sync::Arc;

use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{NewSequence, SequenceLimits};

use super::inbox::{Inbox, Submission};
use super::request::{GenerateRequest, SubmitError};
use super::snapshot::EngineSnapshot;
use super::stream::ChoiceStream;

/// A door to the engine thread. Cheap to clone; no call waits for a step.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    inbox: Arc<Inbox>,
    limits: SequenceLimits,
}

impl EngineHandle {
    pub(super) fn new(inbox: Arc<Inbox>, limits: SequenceLimits) -> Self {
        Self { inbox, limits }
    }

    /// Starts a request: one stream for each of its `n` choices, in order.
    ///
    /// `max_tokens` is cut to what the model's length leaves after the prompt.
    pub fn submit(&self, request: GenerateRequest) -> Result<Vec<ChoiceStream>, SubmitError> {
        let max_tokens = self.limits.check(request.prompt.len(), request.sampling.max_tokens)?;
        tracing::debug!(
            request_id = request.request_id,
            num_prompt_tokens = request.prompt.len(),
            n = request.n,
            max_tokens,
            "request submitted"
        );
        self.inbox.submit(request.n.max(1), request.prompt.len(), |id, choice| {
            let (sender, stream) = ChoiceStream::new(id, max_tokens, Arc::clone(&self.inbox));
            let sampling = Arc::new(SamplingParams { choice, max_tokens, ..request.sampling.clone() });
            let sequence = NewSequence::new(id, Arc::clone(&request.prompt), sampling);
            (Submission { sequence, sender }, stream)
        })
    }

    /// The engine's figures at the end of its latest step.
    pub fn snapshot(&self) -> EngineSnapshot {
        self.inbox.snapshot()
    }

    /// Length limits that every request is checked against.
    pub fn limits(&self) -> SequenceLimits {
        self.limits
    }
}
