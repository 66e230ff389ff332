//! The way in for everyone else.

use std::sync::Arc;

use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{NewSequence, SequenceLimits};
use regatta_core::sequence::SequenceId;

use super::inbox::{Asked, Inbox, Submission};
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

    /// Starts one prompt: a stream for each of its `n` choices, in order. As [`Self::submit_all`].
    pub fn submit(&self, request: GenerateRequest) -> Result<Vec<ChoiceStream>, SubmitError> {
        self.submit_all(&[request])
    }

    /// Starts all prompts of a request, or none: a stream for each choice, by prompt and then by choice.
    ///
    /// `max_tokens` is cut to what the model's length leaves after the prompt.
    pub fn submit_all(&self, requests: &[GenerateRequest]) -> Result<Vec<ChoiceStream>, SubmitError> {
        let max_tokens = requests
            .iter()
            .map(|request| self.limits.check(request.prompt.len(), request.sampling.max_tokens))
            .collect::<Result<Vec<u32>, _>>()?;
        for request in requests {
            tracing::debug!(
                request_id = request.request_id,
                num_prompt_tokens = request.prompt.len(),
                n = request.n,
                "request submitted"
            );
        }
        let asked: Vec<Asked> = requests
            .iter()
            .map(|request| Asked { n: request.n.max(1), num_prompt_tokens: request.prompt.len() })
            .collect();
        self.inbox.submit(&asked, |id, place, choice| {
            let (request, max_tokens) = (&requests[place], max_tokens[place]);
            let (sender, stream) = ChoiceStream::new(id, max_tokens, Arc::clone(&self.inbox));
            let first = request.sampling.choice;
            let sampling = SamplingParams { choice: first + choice, max_tokens, ..request.sampling.clone() };
            let mut sequence = NewSequence::new(id, Arc::clone(&request.prompt), sampling.into());
            // The prompt is computed for the first choice alone.
            sequence.forks = (choice > 0).then(|| SequenceId(id.0 - u64::from(choice)));
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
