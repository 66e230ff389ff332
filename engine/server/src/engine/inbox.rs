//! The bounded door between request tasks and the engine thread.
//!
//! One mutex, held only to move a few values: neither side ever waits for the other's work.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use prometheus_client::metrics::histogram::Histogram;
use regatta_core::event::Event;
use regatta_core::replay::CancelReason;
use regatta_core::scheduler::NewSequence;
use regatta_core::sequence::SequenceId;
use tokio::sync::mpsc;

use super::request::SubmitError;
use super::search::NewSearch;
use super::snapshot::{EngineSnapshot, EngineState};

/// A sequence on its way to the scheduler, with the sending end of its stream.
pub(super) struct Submission {
    pub(super) sequence: NewSequence,
    pub(super) sender: mpsc::Sender<Event>,
    pub(super) role: Role,
}

/// What a submission is for.
#[derive(Clone, Debug)]
pub(super) enum Role {
    /// A sequence whose tokens go to the stream as they come.
    Generates,
    /// The first beam of a search, with the stream of its best hypothesis.
    Searches(NewSearch),
    /// The stream of another hypothesis of the search before it; its sequence is none.
    Listens,
}

/// A prompt that is to be continued `n` times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) n: u32,
    pub(super) num_prompt_tokens: usize,
    /// Ids to keep for sequences that come later and belong to these.
    pub(super) num_reserved_ids: u64,
}

/// What has arrived since the last look, and what the engine is to do about its life.
#[derive(Default)]
pub(super) struct Arrivals {
    pub(super) submissions: Vec<Submission>,
    pub(super) cancelled: Vec<(SequenceId, CancelReason)>,
    pub(super) shutdown: Option<Instant>,
    /// Whether the prefix cache is to be emptied before anything else.
    pub(super) reset_prefix_cache: bool,
}

impl Arrivals {
    /// Cancellations wake nobody: with nothing in the scheduler there is nothing to cancel.
    fn is_worth_waking(&self) -> bool {
        !self.submissions.is_empty() || self.shutdown.is_some() || self.reset_prefix_cache
    }
}

/// Most sequences and prompt tokens that may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLimits {
    pub(super) max_requests: usize,
    pub(super) max_tokens: usize,
}

/// Sequences, and the prompt tokens that they bring.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    pub(super) sequences: usize,
    pub(super) tokens: usize,
}

impl Backlog {
    /// What is asked for: a prompt's tokens count for each of its choices.
    pub(super) fn of(asked: &[Asked]) -> Self {
        asked.iter().fold(Self::default(), |sum, asked| Self {
            sequences: sum.sequences.saturating_add(asked.n as usize),
            tokens: sum.tokens.saturating_add(asked.num_prompt_tokens.saturating_mul(asked.n as usize)),
        })
    }
}

struct Shared {
    arrivals: Arrivals,
    arriving_tokens: usize,
    next_id: u64,
    /// What waits in the scheduler, as last published.
    backlog: Backlog,
    snapshot: EngineSnapshot,
}

/// As vLLM's.
const STEP_TOKENS_BUCKETS: [f64; 13] =
    [1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];

/// See the module's page.
pub(super) struct Inbox {
    shared: Mutex<Shared>,
    wake: Condvar,
    stopped: Condvar,
    limits: QueueLimits,
    /// Tokens of each step.
    pub(super) step_tokens: Histogram,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Inbox {
    pub(super) fn new(limits: QueueLimits, snapshot: EngineSnapshot) -> Self {
        let shared = Shared {
            arrivals: Arrivals::default(),
            arriving_tokens: 0,
            next_id: 0,
            backlog: Backlog::default(),
            snapshot,
        };
        Self {
            shared: Mutex::new(shared),
            wake: Condvar::new(),
            stopped: Condvar::new(),
            limits,
            step_tokens: Histogram::new(STEP_TOKENS_BUCKETS),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Nothing under this lock can leave it half changed, so a panicked holder is no reason to stop.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// [`SubmitError::TooLarge`] when so much may never wait.
    pub(super) fn check(&self, asked_for: Backlog) -> Result<(), SubmitError> {
        let QueueLimits { max_requests, max_tokens } = self.limits;
        let Backlog { sequences: num_sequences, tokens: num_tokens } = asked_for;
        if num_sequences > max_requests || num_tokens > max_tokens {
            return Err(SubmitError::TooLarge { num_sequences, num_tokens, max_requests, max_tokens });
        }
        Ok(())
    }

    /// Takes all sequences that are asked for, or none. `make` builds one from its fresh id, the place of its prompt, and
    /// its choice; the ids of a prompt's choices follow each other.
    pub(super) fn submit<T>(
        &self,
        asked: &[Asked],
        mut make: impl FnMut(SequenceId, usize, u32) -> (Submission, T),
    ) -> Result<Vec<T>, SubmitError> {
        let asked_for = Backlog::of(asked);
        let mut guard = self.lock();
        let shared = &mut *guard;
        match shared.snapshot.state {
            EngineState::Running => {}
            EngineState::Draining => return Err(SubmitError::ShuttingDown),
            EngineState::Stopped if shared.arrivals.shutdown.is_some() => {
                return Err(SubmitError::ShuttingDown);
            }
            EngineState::Stopped => return Err(SubmitError::Dead),
        }
        let waiting_requests = shared.backlog.sequences + shared.arrivals.submissions.len();
        let waiting_tokens = shared.backlog.tokens + shared.arriving_tokens;
        if waiting_requests.saturating_add(asked_for.sequences) > self.limits.max_requests
            || waiting_tokens.saturating_add(asked_for.tokens) > self.limits.max_tokens
        {
            return Err(SubmitError::QueueFull { waiting_requests, waiting_tokens });
        }
        shared.arriving_tokens += asked_for.tokens;
        let mut streams = Vec::with_capacity(asked_for.sequences);
        for (place, asked) in asked.iter().enumerate() {
            for choice in 0..asked.n {
                let (submission, stream) = make(SequenceId(shared.next_id), place, choice);
                shared.next_id += 1;
                shared.arrivals.submissions.push(submission);
                streams.push(stream);
            }
            shared.next_id += asked.num_reserved_ids;
        }
        self.wake.notify_one();
        Ok(streams)
    }

    /// Notes that nobody wants more of this sequence. Unknown and ended sequences are ignored later.
    pub(super) fn cancel(&self, id: SequenceId, reason: CancelReason) {
        let mut shared = self.lock();
        if shared.snapshot.state != EngineState::Stopped {
            shared.arrivals.cancelled.push((id, reason));
        }
    }

    /// Has the prefix cache emptied before anything that is submitted later is looked up.
    pub(super) fn reset_prefix_cache(&self) {
        self.lock().arrivals.reset_prefix_cache = true;
        self.wake.notify_one();
    }

    /// Stops admission; what runs may go on until `deadline`.
    pub(super) fn shut_down(&self, deadline: Instant) {
        let mut shared = self.lock();
        shared.arrivals.shutdown = Some(deadline);
        if shared.snapshot.state == EngineState::Running {
            shared.snapshot.state = EngineState::Draining;
        }
        self.wake.notify_one();
    }

    /// Moves what has arrived into `arrivals` (empty, memory reused). With `idle`, sleeps until something has.
    pub(super) fn receive(&self, arrivals: &mut Arrivals, idle: bool) {
        let mut shared = self.lock();
        while idle && !shared.arrivals.is_worth_waking() {
            shared = self.wake.wait(shared).unwrap_or_else(PoisonError::into_inner);
        }
        shared.arriving_tokens = 0;
        shared.snapshot.last_progress = if idle { Instant::now() } else { shared.snapshot.last_progress };
        std::mem::swap(&mut shared.arrivals.submissions, &mut arrivals.submissions);
        std::mem::swap(&mut shared.arrivals.cancelled, &mut arrivals.cancelled);
        arrivals.shutdown = shared.arrivals.shutdown;
        arrivals.reset_prefix_cache = std::mem::take(&mut shared.arrivals.reset_prefix_cache);
        for submission in &arrivals.submissions {
            shared.backlog.sequences += 1;
            shared.backlog.tokens += submission.sequence.prompt.len();
        }
    }

    /// Replaces the figures that others see; `state` stays as it is.
    pub(super) fn publish(&self, figures: EngineSnapshot) {
        let mut shared = self.lock();
        shared.snapshot = EngineSnapshot { state: shared.snapshot.state, ..figures };
        shared.backlog = Backlog { sequences: figures.stats.waiting, tokens: figures.stats.waiting_tokens };
    }

    /// Marks the thread's end and hands back what nobody will run.
    pub(super) fn stop(&self) -> Vec<Submission> {
        let mut shared = self.lock();
        shared.snapshot.state = EngineState::Stopped;
        shared.arrivals.cancelled = Vec::new();
        self.stopped.notify_all();
        std::mem::take(&mut shared.arrivals.submissions)
    }

    /// Waits for [`Inbox::stop`]; `false` when it has not come by `deadline`.
    pub(super) fn wait_until_stopped(&self, deadline: Instant) -> bool {
        let timeout = deadline.saturating_duration_since(Instant::now());
        let is_running = |shared: &mut Shared| shared.snapshot.state != EngineState::Stopped;
        let result = self.stopped.wait_timeout_while(self.lock(), timeout, is_running);
        let (_shared, result) = result.unwrap_or_else(PoisonError::into_inner);
        !result.timed_out()
    }

    /// The latest figures, with what has arrived since counted as waiting.
    pub(super) fn snapshot(&self) -> EngineSnapshot {
        let shared = self.lock();
        let mut snapshot = shared.snapshot;
        snapshot.stats.waiting = shared.backlog.sequences + shared.arrivals.submissions.len();
        snapshot
    }
}
