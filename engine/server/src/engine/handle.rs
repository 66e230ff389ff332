//! The way in for everyone else.

use std::sync::Arc;

use prometheus_client::metrics::histogram::Histogram;
use regatta_core::beam::BeamParams;
use regatta_core::sampling::SamplingParams;
use regatta_core::scheduler::{NewSequence, SequenceLimits};
use regatta_core::sequence::SequenceId;

use super::inbox::{Asked, Backlog, Inbox, Role, Submission};
use super::request::{GenerateRequest, SubmitError};
use super::search::NewSearch;
use super::snapshot::EngineSnapshot;
use super::stream::ChoiceStream;

/// A door to the engine thread. Cheap to clone; no call waits for a step.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    inbox: Arc<Inbox>,
    limits: SequenceLimits,
    has_priorities: bool,
}

impl EngineHandle {
    pub(super) fn new(inbox: Arc<Inbox>, limits: SequenceLimits, has_priorities: bool) -> Self {
        Self { inbox, limits, has_priorities }
    }

    /// Starts one prompt: a stream for each of its `n` choices, in order. As [`Self::submit_all`].
    pub fn submit(&self, request: GenerateRequest) -> Result<Vec<ChoiceStream>, SubmitError> {
        self.submit_all(&[request])
    }

    /// [`Self::check`] and [`Self::start`].
    pub fn submit_all(&self, requests: &[GenerateRequest]) -> Result<Vec<ChoiceStream>, SubmitError> {
        self.start(self.check(requests)?)
    }

    /// Checks a request's prompts; `max_tokens` is cut to what the model's length leaves after the prompt.
    ///
    /// # Errors
    /// Why the requests could not be started even by an engine without work.
    pub fn check<'a>(&self, requests: &'a [GenerateRequest]) -> Result<Checked<'a>, SubmitError> {
        let check = |request: &'a GenerateRequest| {
            let max_tokens = self.limits.check(request.prompt.len(), request.sampling.max_tokens)?;
            if request.priority != 0 && !self.has_priorities {
                return Err(SubmitError::NoPriorities { priority: request.priority });
            }
            Ok(Prepared::new(request, max_tokens))
        };
        let prepared = requests.iter().map(check).collect::<Result<Vec<_>, _>>()?;
        let asked: Vec<Asked> = prepared.iter().map(Prepared::asked).collect();
        self.inbox.check(Backlog::of(&asked))?;
        Ok(Checked { prepared, asked })
    }

    /// Starts all prompts of a request, or none: a stream for each choice, by prompt and then by choice.
    ///
    /// # Errors
    /// Why they cannot be started now.
    pub fn start(&self, Checked { prepared, asked }: Checked<'_>) -> Result<Vec<ChoiceStream>, SubmitError> {
        for Prepared { request, .. } in &prepared {
            tracing::debug!(
                request_id = request.request_id,
                num_prompt_tokens = request.prompt.len(),
                n = request.n,
                "request submitted"
            );
        }
        self.inbox.submit(&asked, |id, place, choice| {
            let prepared = &prepared[place];
            let max_tokens = prepared.sampling.max_tokens;
            let (sender, stream) = ChoiceStream::new(id, max_tokens, Arc::clone(&self.inbox));
            let (sequence, role) = prepared.sequence(id, choice);
            (Submission { sequence, sender, role }, stream)
        })
    }

    /// Empties the prefix cache: no request that is submitted after this finds what was computed before it.
    pub fn reset_prefix_cache(&self) {
        self.inbox.reset_prefix_cache();
    }

    /// The engine's figures at the end of its latest step.
    pub fn snapshot(&self) -> EngineSnapshot {
        self.inbox.snapshot()
    }

    /// How many tokens each step computed.
    pub fn step_tokens(&self) -> &Histogram {
        &self.inbox.step_tokens
    }

    /// Length limits that every request is checked against.
    pub fn limits(&self) -> SequenceLimits {
        self.limits
    }
}

/// The prompts of a request that the engine could run.
pub struct Checked<'a> {
    prepared: Vec<Prepared<'a>>,
    asked: Vec<Asked>,
}

/// One of them.
struct Prepared<'a> {
    request: &'a GenerateRequest,
    /// What its first sequence gets.
    sampling: SamplingParams,
    search: Option<NewSearch>,
}

impl<'a> Prepared<'a> {
    fn new(request: &'a GenerateRequest, max_tokens: u32) -> Self {
        let search = request.beams.map(|options| NewSearch {
            params: BeamParams {
                width: request.n.max(1),
                max_tokens,
                length_penalty: options.length_penalty,
                early_stopping: options.early_stopping,
                stop_token_ids: request.sampling.stop_token_ids.clone(),
                num_prompt_tokens: request.prompt.len() as u32,
                num_top: request.sampling.logprobs.unwrap_or(0),
            },
            reports_logprobs: request.sampling.logprobs.is_some(),
        });
        let sampling = match &search {
            Some(search) => search.sampling(&request.sampling),
            None => SamplingParams { max_tokens, ..request.sampling.clone() },
        };
        Self { request, sampling, search }
    }

    fn asked(&self) -> Asked {
        let num_reserved_ids = self.search.as_ref().map_or(0, NewSearch::num_reserved_ids);
        Asked { n: self.request.n.max(1), num_prompt_tokens: self.request.prompt.len(), num_reserved_ids }
    }

    fn sequence(&self, id: SequenceId, choice: u32) -> (NewSequence, Role) {
        let sampling = SamplingParams { choice: self.sampling.choice + choice, ..self.sampling.clone() };
        let new = NewSequence {
            priority: self.request.priority,
            cache_salt: self.request.cache_salt.clone(),
            ..NewSequence::new(id, Arc::clone(&self.request.prompt), sampling.into())
        };
        match &self.search {
            // The prompt is computed for the first choice alone.
            None => {
                let forks = (choice > 0).then(|| SequenceId(id.0 - u64::from(choice)));
                (NewSequence { forks, ..new }, Role::Generates)
            }
            Some(search) if choice == 0 => {
                (NewSequence { holds: true, ..new }, Role::Searches(search.clone()))
            }
            Some(_) => (new, Role::Listens),
        }
    }
}
