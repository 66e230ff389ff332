//! What all handlers share.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::extract::Request;
use regatta_core::sampling::LogprobsMode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::{
    ApiError,
    body::{Body, BodyBudget},
};
use crate::{
    args::ServeSettings,
    metrics::Metrics,
    model::{ServedModel, dead},
};

/// A step that takes longer than this while work is in flight means that the engine hangs.
const STALL: Duration = Duration::from_secs(300);
/// Requests whose bodies are awaited at once. They take nothing from those that are whole.
const MAX_READ: usize = 4096;
/// Requests that are checked at once although there is no room for them.
const MAX_CHECKED: usize = 256;

/// State of the server, from the first accepted connection on.
#[derive(Debug)]
pub struct ServerState {
    pub(crate) served_names: Vec<String>,
    pub(crate) max_logprobs: u32,
    pub(crate) logprobs_mode: LogprobsMode,
    pub(crate) prompt_tokens_details: bool,
    pub(crate) dev_endpoints: bool,
    pub(crate) created: u64,
    /// Every metric.
    pub metrics: Metrics,
    bodies: BodyBudget,
    model: OnceLock<Arc<ServedModel>>,
    /// The pod is marked as draining: not ready, still serving.
    draining: AtomicBool,
    /// The process was told to end: nothing new is taken.
    terminating: CancellationToken,
    /// One for each choice that may be under way or wait.
    slots: Arc<Semaphore>,
    num_slots: usize,
    /// One for each request whose body is awaited.
    reads: Arc<Semaphore>,
    /// One for each request that is checked without a slot.
    checks: Arc<Semaphore>,
    num_in_flight: Arc<AtomicUsize>,
    preparing: Arc<Semaphore>,
    seeds: AtomicU64,
}

/// A request under way; dropped when its answer has been given out.
#[derive(Debug)]
pub(crate) struct InFlight {
    place: Place,
    num_in_flight: Arc<AtomicUsize>,
}

/// What a request holds while it is under way.
#[derive(Debug)]
enum Place {
    /// Its body is awaited.
    Reading { _read: OwnedSemaphorePermit },
    /// It is checked although there is no room for it.
    Checked { _check: OwnedSemaphorePermit },
    /// Room for one or more choices.
    Slots(OwnedSemaphorePermit),
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.num_in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ServerState {
    /// A server whose model is not loaded yet.
    pub fn new(settings: &ServeSettings) -> Self {
        let num_slots = settings.max_num_choices();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            served_names: settings.served_names.clone(),
            max_logprobs: settings.max_logprobs,
            logprobs_mode: settings.logprobs_mode,
            prompt_tokens_details: settings.prompt_tokens_details,
            dev_endpoints: settings.dev_endpoints,
            created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            metrics: Metrics::new(&settings.served_names[0]),
            bodies: BodyBudget::default(),
            model: OnceLock::new(),
            draining: AtomicBool::new(false),
            terminating: CancellationToken::new(),
            slots: Arc::new(Semaphore::new(num_slots)),
            num_slots,
            reads: Arc::new(Semaphore::new(MAX_READ)),
            checks: Arc::new(Semaphore::new(MAX_CHECKED)),
            num_in_flight: Arc::default(),
            preparing: Arc::new(Semaphore::new(threads)),
            seeds: AtomicU64::new(settings.seed),
        }
    }

    /// Serves `model` from now on.
    ///
    /// # Panics
    /// When there is one already.
    pub fn serve_model(&self, model: ServedModel) {
        self.metrics.engine.watch(model.engine.clone());
        assert!(self.model.set(Arc::new(model)).is_ok(), "a server has one model");
    }

    /// The model, once loaded.
    pub fn loaded(&self) -> Option<&Arc<ServedModel>> {
        self.model.get()
    }

    /// The pod's own mark. Draining, the server is not ready and serves on.
    pub fn set_draining(&self, draining: bool) {
        if self.draining.swap(draining, Ordering::Relaxed) != draining {
            tracing::info!(draining, "the pod's annotation changed");
        }
    }

    /// The end of the process is near: nothing new is taken.
    pub fn terminate(&self) {
        self.terminating.cancel();
    }

    pub(crate) fn is_terminating(&self) -> bool {
        self.terminating.is_cancelled()
    }

    /// Whether new traffic should go elsewhere.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed) || self.is_terminating()
    }

    /// Requests under way, from their admission to the end of their answer.
    pub fn num_in_flight(&self) -> usize {
        self.num_in_flight.load(Ordering::Relaxed)
    }

    /// # Errors
    /// Why new traffic should not come here, in a few words.
    pub(crate) fn ready(&self) -> Result<(), &'static str> {
        let Some(model) = self.model.get() else { return Err("loading") };
        let snapshot = model.engine.snapshot();
        if self.is_draining() {
            Err("draining")
        } else if model.is_dead() {
            Err("the engine thread has ended")
        } else if snapshot.in_flight() > 0 && snapshot.last_progress.elapsed() > STALL {
            Err("the engine makes no progress")
        } else {
            Ok(())
        }
    }

    /// The model, whose engine runs.
    ///
    /// # Errors
    /// 503 while it loads, 500 once the engine has ended.
    pub(crate) fn engine(&self) -> Result<&Arc<ServedModel>, ApiError> {
        match self.model.get() {
            None => Err(ApiError::unavailable("the model is still loading; try again later")),
            Some(model) if model.is_dead() => Err(dead()),
            Some(model) => Ok(model),
        }
    }

    /// Takes a request in whose body is still to be read, or says why not.
    ///
    /// # Errors
    /// 503 while loading, while the process ends, and when too many are being read; 500 once the engine has ended.
    pub(crate) fn admit(&self) -> Result<(InFlight, Arc<ServedModel>), ApiError> {
        if self.is_terminating() {
            return Err(ApiError::draining());
        }
        let model = self.engine()?;
        let too_many = |_| ApiError::unavailable("too many requests are being read; try again later");
        let read = Arc::clone(&self.reads).try_acquire_owned().map_err(too_many)?;
        self.num_in_flight.fetch_add(1, Ordering::Relaxed);
        let num_in_flight = Arc::clone(&self.num_in_flight);
        let place = Place::Reading { _read: read };
        Ok((InFlight { place, num_in_flight }, Arc::clone(model)))
    }

    /// Makes room for a request whose body is there. One that finds none may still be checked: what can never be served
    /// must not be told to come again.
    ///
    /// # Errors
    /// 503 when too many are checked already.
    pub(crate) fn admit_body(&self, in_flight: &mut InFlight) -> Result<(), ApiError> {
        in_flight.place = match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(slot) => Place::Slots(slot),
            Err(_) => {
                let check = Arc::clone(&self.checks).try_acquire_owned().map_err(|_| self.full())?;
                Place::Checked { _check: check }
            }
        };
        Ok(())
    }

    /// # Errors
    /// 400 when there can never be room for so many choices.
    pub(crate) fn check_choices(&self, num_choices: usize) -> Result<(), ApiError> {
        if num_choices <= self.num_slots {
            return Ok(());
        }
        let message = format!(
            "{num_choices} choices (prompts times n) are more than the {} that may run and wait here at once; send \
             several requests.",
            self.num_slots
        );
        Err(ApiError::invalid("n", message))
    }

    /// Makes room for all choices of a request that was taken in, or for none; there can be room for so many.
    ///
    /// # Errors
    /// 503 when there is none now.
    pub(crate) fn admit_choices(&self, in_flight: &mut InFlight, num_choices: usize) -> Result<(), ApiError> {
        let held = match &in_flight.place {
            Place::Slots(slots) => slots.num_permits(),
            Place::Reading { .. } | Place::Checked { .. } => 0,
        };
        let missing = u32::try_from(num_choices.saturating_sub(held)).map_err(|_| self.full())?;
        let more = Arc::clone(&self.slots).try_acquire_many_owned(missing).map_err(|_| self.full())?;
        match &mut in_flight.place {
            Place::Slots(slots) => slots.merge(more),
            place => *place = Place::Slots(more),
        }
        Ok(())
    }

    fn full(&self) -> ApiError {
        let message =
            format!("{} choices run or wait already; try again later, or add replicas", self.num_slots);
        ApiError::unavailable(message)
    }

    /// Reads the body of a request that was taken in. Once the process is to end, what has not come is not waited for.
    ///
    /// # Errors
    /// As [`BodyBudget::read`]; 503 when the process ends.
    pub(crate) async fn read_body(&self, request: Request) -> Result<Body, ApiError> {
        tokio::select! {
            biased;
            body = self.bodies.read(request) => body,
            () = self.terminating.cancelled() => Err(ApiError::draining()),
        }
    }

    /// Runs what may take long (parsing, templates, tokenising) on a thread for such work, a bounded number at once.
    ///
    /// # Errors
    /// What `work` returns, and 500 when it panics.
    pub(crate) async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = Arc::clone(&self.preparing).acquire_owned().await.map_err(|_| ApiError::draining())?;
        let work = move || {
            // Held by the work, which goes on even when nobody waits for it any more.
            let _turn = turn;
            work()
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|panic| {
            tracing::error!(%panic, "a request could not be prepared");
            Err(ApiError::internal("the request could not be processed; the engine's log says why"))
        })
    }

    /// A seed for a request that brings none: different each time, the same in each run of the server.
    pub(crate) fn next_seed(&self) -> u64 {
        splitmix64(self.seeds.fetch_add(1, Ordering::Relaxed))
    }
}

/// Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014.
fn splitmix64(state: u64) -> u64 {
    let z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{self, Command};

    fn server() -> ServerState {
        match args::parse([
            "regatta-engine",
            "serve",
            "m.gguf",
            "--max-num-seqs",
            "1",
            "--max-num-queued-reqs",
            "0",
        ]) {
            Ok(Command::Serve(settings)) => ServerState::new(&settings),
            other => panic!("not serve: {other:?}"),
        }
    }

    #[tokio::test]
    async fn a_panic_is_that_requests_500_and_nobody_elses() {
        let server = server();
        for _ in 0..64 {
            let failed = server.off_thread::<()>(|| panic!("of a template")).await.unwrap_err();
            assert_eq!(failed.status(), 500);
        }
        assert_eq!(server.off_thread(|| Ok(7)).await.unwrap(), 7);
    }

    #[test]
    fn seeds_differ_from_request_to_request_and_not_from_run_to_run() {
        let (one, other) = (server(), server());
        let seeds = [one.next_seed(), one.next_seed()];
        assert_ne!(seeds[0], seeds[1]);
        assert_eq!(seeds, [other.next_seed(), other.next_seed()]);
    }
}
