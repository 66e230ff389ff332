//! What the operator counts. Names and meanings are in the reference page "Operator metrics".

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ActionLabel {
    action: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct KindLabel {
    kind: &'static str,
}

pub(crate) struct Metrics {
    registry: Registry,
    reconciles: Family<ResultLabel, Counter>,
    duration: Histogram,
    steps: Family<ActionLabel, Counter>,
    objects: Family<KindLabel, Gauge>,
    watch_errors: Family<KindLabel, Counter>,
    reached: AtomicBool,
    /// 1 while this process leads.
    pub(crate) leader: Gauge,
    /// Reconciles in progress.
    pub(crate) in_progress: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("regatta_operator"),
            reconciles: Family::default(),
            duration: Histogram::new(exponential_buckets(0.005, 2.0, 12)),
            steps: Family::default(),
            objects: Family::default(),
            watch_errors: Family::default(),
            reached: AtomicBool::new(false),
            leader: Gauge::default(),
            in_progress: Gauge::default(),
        };
        let r = &mut metrics.registry;
        r.register("reconciles", "Reconciles by result", metrics.reconciles.clone());
        let help = "Time of one reconcile";
        r.register_with_unit("reconcile_duration", help, Unit::Seconds, metrics.duration.clone());
        r.register("reconciles_in_progress", "Reconciles in progress", metrics.in_progress.clone());
        r.register("steps", "Steps taken on pods by action", metrics.steps.clone());
        r.register("objects", "Objects in the caches by kind", metrics.objects.clone());
        r.register(
            "watch_errors",
            "Watches that broke and are opened again, by kind",
            metrics.watch_errors.clone(),
        );
        r.register("leader", "Whether this process leads", metrics.leader.clone());
        metrics
    }
}

impl Metrics {
    pub(crate) fn reconciled(&self, succeeded: bool, took: Duration) {
        let result = if succeeded { "success" } else { "error" };
        self.reconciles.get_or_create(&ResultLabel { result }).inc();
        self.duration.observe(took.as_secs_f64());
    }

    pub(crate) fn stepped(&self, action: &'static str) {
        self.steps.get_or_create(&ActionLabel { action }).inc();
    }

    pub(crate) fn count_objects(&self, kind: &'static str, count: usize) {
        self.objects.get_or_create(&KindLabel { kind }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn watch_failed(&self, kind: &'static str) {
        self.watch_errors.get_or_create(&KindLabel { kind }).inc();
    }

    /// Notes that the API server answered.
    pub(crate) fn set_reached(&self) {
        self.reached.store(true, Ordering::Relaxed);
    }

    /// Whether the API server ever answered.
    pub(crate) fn reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// All of it as OpenMetrics text.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_exposed_under_its_documented_name() {
        let metrics = Metrics::default();
        metrics.reconciled(true, Duration::from_millis(3));
        metrics.reconciled(false, Duration::from_millis(3));
        metrics.stepped("create");
        metrics.count_objects("Pod", 2);
        metrics.watch_failed("Pod");
        metrics.leader.set(1);
        let text = metrics.text().expect("encodes");
        for line in [
            "regatta_operator_reconciles_total{result=\"success\"} 1",
            "regatta_operator_reconciles_total{result=\"error\"} 1",
            "regatta_operator_reconcile_duration_seconds_count 2",
            "regatta_operator_reconciles_in_progress 0",
            "regatta_operator_steps_total{action=\"create\"} 1",
            "regatta_operator_objects{kind=\"Pod\"} 2",
            "regatta_operator_watch_errors_total{kind=\"Pod\"} 1",
            "regatta_operator_leader 1",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
    }
}
