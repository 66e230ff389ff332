//! What the gateway counts. Labels come from the table, never from clients, so that series stay few.

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByModelAndCode {
    pub model: String,
    pub code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByModel {
    pub model: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByCause {
    pub cause: Cause,
}

/// Why an attempt or a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Cause {
    /// No connection to the pod.
    Connect,
    /// The pod closed the connection before it answered.
    Reset,
    /// The pod drains and took no request.
    Draining,
    /// No answer in time.
    Timeout,
    /// The pod went away in the middle of its answer.
    Stream,
    /// The pod fell silent in the middle of its answer.
    Idle,
    /// No pod to go to.
    Unroutable,
    /// The gateway itself was full.
    Overload,
    /// The gateway ended before the answer did.
    Shutdown,
}

pub(crate) struct Metrics {
    registry: Registry,
    pub requests: Family<ByModelAndCode, Counter>,
    pub in_flight: Family<ByModel, Gauge>,
    pub retries: Family<ByCause, Counter>,
    pub lost: Family<ByCause, Counter>,
    pub first_byte: Family<ByModel, Histogram>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("regatta_gateway");
        let metrics = Self {
            requests: Family::default(),
            in_flight: Family::default(),
            retries: Family::default(),
            lost: Family::default(),
            first_byte: Family::new_with_constructor(|| Histogram::new(FIRST_BYTE_SECONDS)),
            registry: Registry::default(),
        };
        registry.register(
            "requests",
            "Requests answered, 499 when the client left first",
            metrics.requests.clone(),
        );
        registry.register(
            "requests_in_flight",
            "Requests not yet answered in full",
            metrics.in_flight.clone(),
        );
        registry.register("retries", "Attempts on a further pod", metrics.retries.clone());
        registry.register(
            "lost_requests",
            "Requests that failed through no fault of the client",
            metrics.lost.clone(),
        );
        registry.register(
            "time_to_first_byte_seconds",
            "From the request to the first byte of its response body",
            metrics.first_byte.clone(),
        );
        Self { registry, ..metrics }
    }

    pub(crate) fn lost(&self, cause: Cause) {
        self.lost.get_or_create(&ByCause { cause }).inc();
    }

    /// OpenMetrics text.
    pub(crate) fn encode(&self) -> String {
        let mut out = String::new();
        text::encode(&mut out, &self.registry).expect("a string takes all that is written");
        out
    }
}

const FIRST_BYTE_SECONDS: [f64; 14] =
    [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0];
