//! Metrics under vLLM's names, with its labels and buckets.

mod engine_stats;
mod requests;

use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    encoding::{prometheus_text, text},
    metrics::gauge::ConstGauge,
    registry::Registry,
};

pub(crate) use engine_stats::EngineStats;
pub(crate) use requests::{ChoiceClock, Ended, HttpLabels, RequestMetrics};

/// Every metric of the process.
pub struct Metrics {
    registry: Registry,
    /// What requests report.
    pub(crate) requests: Arc<RequestMetrics>,
    /// What the engine thread reports, once there is one.
    pub(crate) engine: Arc<EngineStats>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Metrics labelled with the model's first served name.
    pub fn new(model_name: &str) -> Self {
        let mut registry = Registry::default();
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        registry.register(
            "process_start_time_seconds",
            "Start time of the process since the Unix epoch in seconds",
            ConstGauge::new(started),
        );
        let requests = Arc::new(RequestMetrics::default());
        requests.register_http(&mut registry);
        let engine = Arc::new(EngineStats::default());
        let labels = [("model_name", model_name), ("engine", "0")];
        let labels = labels.map(|(name, value)| (name.into(), value.to_owned().into()));
        let by_model = registry.sub_registry_with_labels(labels.into_iter());
        requests.register(by_model);
        by_model.register_collector(Box::new(Arc::clone(&engine)));
        Self { registry, requests, engine }
    }

    /// The exposition and its content type: OpenMetrics when `accept` asks for it, else the Prometheus text format.
    pub fn encode(&self, accept: Option<&str>) -> (&'static str, String) {
        let mut page = String::new();
        let open = accept.is_some_and(|accept| accept.contains("application/openmetrics-text"));
        let (content_type, written) = if open {
            (
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                text::encode(&mut page, &self.registry),
            )
        } else {
            (prometheus_text::CONTENT_TYPE, prometheus_text::encode(&mut page, &self.registry))
        };
        written.expect("writing to a string cannot fail");
        (content_type, page)
    }
}
