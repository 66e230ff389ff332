//! Engines that end and are started again in their pods. All is well again soon, so no condition tells of it.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, PodStatus};

use super::{ObservedPod, trouble};
use crate::{contract::ENGINE_CONTAINER, words::count};

/// An end this long ago that an operator finds when it starts was told by the one before, or is no news.
const NEWS: SignedDuration = SignedDuration::from_mins(10);

/// How often the engine of each pod was started again, by the pod's UID.
pub type RestartCounts = HashMap<String, i32>;

/// What the kubelet counts of the engine's container, and how it ended last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restarts {
    /// How often it was started again.
    pub count: i32,
    /// When it ended last.
    pub ended: Option<Timestamp>,
    /// How and why it ended last, and what helps.
    pub why: String,
}

impl Restarts {
    /// What to tell of the engine of `pod`.
    pub fn note(&self, pod: &str) -> String {
        let times = count(usize::try_from(self.count).unwrap_or(0), "time");
        format!("engine of pod {pod} ended and was started again, {times} so far: {}", self.why)
    }
}

pub(super) fn of(status: &PodStatus) -> Restarts {
    let mut containers = status.container_statuses.iter().flatten();
    let Some(engine) = containers.find(|c| c.name == ENGINE_CONTAINER) else { return Restarts::default() };
    let end = engine.last_state.as_ref().and_then(|s| s.terminated.as_ref());
    Restarts {
        count: engine.restart_count,
        ended: end.and_then(|end| end.finished_at.as_ref()).map(|time| time.0),
        why: end.map_or_else(|| "its node does not tell why".to_owned(), |end| why(engine, end)),
    }
}

fn why(engine: &ContainerStatus, end: &ContainerStateTerminated) -> String {
    let (_, message) = trouble::explain(engine, end);
    let reason = end.reason.as_deref().unwrap_or("Error");
    format!("{reason}, exit code {}; {message}", end.exit_code)
}

/// The counts of `pods`, and those of them whose engine was started again since `before`. A pod that is not in
/// `before` is told of if its engine ended lately. A pod on its way out is left alone.
pub fn news<'a>(
    before: &RestartCounts,
    pods: impl Iterator<Item = &'a ObservedPod>,
    now: Timestamp,
) -> (RestartCounts, Vec<&'a ObservedPod>) {
    let staying: Vec<_> = pods.filter(|p| !p.terminating).collect();
    let counts = staying.iter().map(|p| (p.uid.clone(), p.restarts.count)).collect();
    let is_news = |pod: &&ObservedPod| match before.get(&pod.uid) {
        Some(seen) => pod.restarts.count > *seen,
        None => pod.restarts.count > 0 && pod.restarts.ended.is_some_and(|at| now.duration_since(at) < NEWS),
    };
    (counts, staying.into_iter().filter(is_news).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-01T01:00:00Z";

    fn pod(restarts: i32, last: &Value) -> ObservedPod {
        let pod = json!({
            "metadata": {"name": "llm-a-0", "uid": "u"},
            "status": {"containerStatuses": [
                {"name": "sidecar", "image": "i", "imageID": "", "ready": true, "restartCount": 9},
                {"name": "engine", "image": "i", "imageID": "", "ready": true, "restartCount": restarts,
                    "started": true, "state": {"running": {}}, "lastState": last},
            ]},
        });
        ObservedPod::read(&serde_json::from_value(pod).expect("a pod")).expect("named")
    }

    fn killed(finished: &str) -> Value {
        json!({"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": finished}})
    }

    /// Restart counts that are told of when a pod is seen with each of `counts`, one after the other.
    fn told(counts: &[i32], finished: &str) -> Vec<i32> {
        let mut before = RestartCounts::new();
        let mut told = Vec::new();
        for count in counts {
            let pod = pod(*count, &killed(finished));
            let (after, news) = news(&before, [&pod].into_iter(), NOW.parse().expect("a time"));
            told.extend(news.iter().map(|p| p.restarts.count));
            before = after;
        }
        told
    }

    #[test]
    fn each_restart_is_told_once_however_long_ago_the_clock_of_its_node_puts_it() {
        assert_eq!(told(&[0, 0, 1, 1, 1, 2, 4, 4], "2025-01-01T00:00:00Z"), [1, 2, 4]);
    }

    #[test]
    fn an_operator_that_starts_tells_only_of_what_happened_lately() {
        assert_eq!(told(&[3, 3], "2026-01-01T00:50:00Z"), [0; 0]);
        assert_eq!(told(&[3, 3], "2026-01-01T00:50:01Z"), [3]);
        assert_eq!(told(&[3, 4], "2026-01-01T00:00:00Z"), [4]);
    }

    #[test]
    fn a_pod_that_goes_is_forgotten_and_not_told_of() {
        let mut pod = pod(2, &killed(NOW));
        pod.terminating = true;
        let before = RestartCounts::from([("u".to_owned(), 1)]);
        let (after, news) = news(&before, [&pod].into_iter(), NOW.parse().expect("a time"));
        assert!(after.is_empty() && news.is_empty());
    }

    #[test]
    fn a_kill_for_memory_is_told_with_its_remedy() {
        let pod = pod(2, &killed(NOW));
        assert_eq!(pod.trouble, None, "all is well again");
        let note = pod.restarts.note(&pod.name);
        let start =
            "engine of pod llm-a-0 ended and was started again, 2 times so far: OOMKilled, exit code 137; ";
        assert!(note.starts_with(start) && note.contains("; raise spec.resources.memory (with"), "{note}");
    }

    #[test]
    fn another_end_is_told_with_the_last_error_of_the_log() {
        let log = "2026-01-01T00:00:00Z ERROR regatta_engine: cannot bind\n2026-01-01T00:00:01Z INFO regatta_engine: bye\n";
        let last = json!({"terminated": {"exitCode": 1, "reason": "Error", "message": log}});
        let note = pod(1, &last).restarts.note("p");
        assert!(note.ends_with("1 time so far: Error, exit code 1; cannot bind"), "{note}");
        let unknown = pod(1, &json!({})).restarts.note("p");
        assert!(unknown.ends_with("its node does not tell why"), "{unknown}");
    }
}
