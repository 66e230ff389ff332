use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use arc_swap::ArcSwap;
use axum::{Router, routing::get};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{Limits, Table, body, forward, metrics::Metrics, models, retry::RetryBudget, upstream::Upstream};

/// The data path: a table, and the requests that follow it. Clones share both.
#[derive(Clone)]
pub struct Gateway(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub table: ArcSwap<Table>,
    pub limits: Limits,
    pub metrics: Metrics,
    pub upstream: Upstream,
    pub retries: RetryBudget,
    /// Room for requests in work.
    pub slots: Arc<Semaphore>,
    /// Room for request bodies.
    pub bodies: Arc<Semaphore>,
    /// Moves the start of each pick, so that ties go round.
    pub turn: AtomicUsize,
    pub synced: AtomicBool,
    pub stopping: AtomicBool,
    /// Cancelled when what is still under way must end: answers from then on are lost.
    pub cutting: CancellationToken,
}

impl Gateway {
    /// A gateway that knows no model yet.
    pub fn new(limits: Limits) -> Self {
        Self(Arc::new(Shared {
            table: ArcSwap::default(),
            metrics: Metrics::new(),
            upstream: Upstream::new(&limits),
            retries: RetryBudget::default(),
            slots: Arc::new(Semaphore::new(limits.max_requests)),
            bodies: body::shared_memory(&limits),
            turn: AtomicUsize::new(0),
            synced: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            cutting: CancellationToken::new(),
            limits,
        }))
    }

    /// Replaces the routes; requests under way go on. The first table makes the gateway ready. There is one
    /// publisher: two would undo each other's routes.
    pub fn publish(&self, table: Table) {
        let previous = self.0.table.load_full();
        self.0.table.store(Arc::new(table.adopt(&previous)));
        self.0.synced.store(true, Ordering::Release);
    }

    /// Whether it has routes and is not about to end.
    pub fn is_ready(&self) -> bool {
        self.0.synced.load(Ordering::Acquire) && !self.0.stopping.load(Ordering::Acquire)
    }

    /// Its metrics as OpenMetrics text.
    pub fn metrics(&self) -> String {
        self.0.metrics.encode()
    }

    pub(crate) fn router(&self) -> Router {
        Router::new()
            .route("/v1/models", get(models::list))
            .route("/v1/models/{*id}", get(models::one))
            .method_not_allowed_fallback(models::wrong_method)
            .fallback(forward::handle)
            .with_state(self.clone())
    }
}
