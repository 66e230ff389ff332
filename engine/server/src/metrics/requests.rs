//! What requests report as they go.

use std::{sync::Arc, time::Instant};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

const TTFT_BUCKETS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
const ITL_BUCKETS: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
const LATENCY_BUCKETS: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];

/// How a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types)] // the label's values on the wire
pub(crate) enum Ended {
    stop,
    length,
    abort,
    error,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FinishedLabels {
    finished_reason: Ended,
}

/// Labels of an answered HTTP request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct HttpLabels {
    /// The route's path; `none` for unknown ones, so that clients cannot make up label values.
    pub(crate) handler: String,
    /// `GET` and so on; `OTHER` for made-up ones.
    pub(crate) method: &'static str,
    /// Class of the status, as in `2xx`.
    pub(crate) status: &'static str,
}

/// Counters and histograms that requests feed.
#[derive(Debug)]
pub(crate) struct RequestMetrics {
    success: Family<FinishedLabels, Counter>,
    time_to_first_token: Histogram,
    inter_token_latency: Histogram,
    e2e_latency: Histogram,
    pub(crate) http: Family<HttpLabels, Counter>,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        let success = Family::<FinishedLabels, Counter>::default();
        for finished_reason in [Ended::stop, Ended::length, Ended::abort, Ended::error] {
            // A series that exists from the start lets `rate()` see the first event.
            drop(success.get_or_create(&FinishedLabels { finished_reason }));
        }
        Self {
            success,
            time_to_first_token: Histogram::new(TTFT_BUCKETS),
            inter_token_latency: Histogram::new(ITL_BUCKETS),
            e2e_latency: Histogram::new(LATENCY_BUCKETS),
            http: Family::default(),
        }
    }
}

impl RequestMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("vllm:request_success", "Choices ended, by reason", self.success.clone());
        registry.register(
            "vllm:time_to_first_token_seconds",
            "Time from a request's arrival to a choice's first token in seconds",
            self.time_to_first_token.clone(),
        );
        registry.register(
            "vllm:inter_token_latency_seconds",
            "Time between consecutive tokens of a choice in seconds",
            self.inter_token_latency.clone(),
        );
        registry.register(
            "vllm:time_per_output_token_seconds",
            "Former name of vllm:inter_token_latency_seconds",
            self.inter_token_latency.clone(),
        );
        registry.register(
            "vllm:e2e_request_latency_seconds",
            "Time from a request's arrival to a choice's end in seconds",
            self.e2e_latency.clone(),
        );
    }

    pub(super) fn register_http(&self, registry: &mut Registry) {
        registry.register(
            "http_requests",
            "Requests answered, by route, method and status",
            self.http.clone(),
        );
    }
}

/// Times one choice. Dropped before its end, it counts as aborted.
#[derive(Debug)]
pub(crate) struct ChoiceClock {
    metrics: Arc<RequestMetrics>,
    arrival: Instant,
    last_token: Option<Instant>,
    ended: bool,
}

impl ChoiceClock {
    pub(crate) fn new(metrics: Arc<RequestMetrics>, arrival: Instant) -> Self {
        Self { metrics, arrival, last_token: None, ended: false }
    }

    /// A token came.
    pub(crate) fn token(&mut self) {
        let now = Instant::now();
        match self.last_token.replace(now) {
            None => self.metrics.time_to_first_token.observe((now - self.arrival).as_secs_f64()),
            Some(before) => self.metrics.inter_token_latency.observe((now - before).as_secs_f64()),
        }
    }

    /// The choice ended; only the first call counts.
    pub(crate) fn end(&mut self, finished_reason: Ended) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.metrics.success.get_or_create(&FinishedLabels { finished_reason }).inc();
        self.metrics.e2e_latency.observe(self.arrival.elapsed().as_secs_f64());
    }
}

impl Drop for ChoiceClock {
    fn drop(&mut self) {
        self.end(Ended::abort);
    }
}
