use serde_json::{Value, json};

use super::*;

fn read(status: Value) -> ObservedPod {
    let pod = json!({
        "metadata": {
            "name": "p", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"regatta.dev/revision": "r"},
            "ownerReferences": [{"apiVersion": "v", "kind": "k", "name": "n", "uid": "o", "controller": true}],
        },
        "status": status,
    });
    ObservedPod::read(&serde_json::from_value(pod).expect("a pod")).expect("named")
}

fn trouble(container: &str, state: Value, last: Value) -> Option<(Cause, String)> {
    let status = json!({"containerStatuses": [{
        "name": container, "image": "i", "imageID": "", "ready": false, "restartCount": 3, "state": state,
        "lastState": last,
    }]});
    read(status).trouble.map(|t| (t.cause, t.message))
}

#[test]
fn a_new_pod_is_alive_and_takes_no_requests() {
    let pod = read(json!({"phase": "Pending"}));
    assert!(pod.is_alive() && !pod.takes_requests() && !pod.engine_running);
    assert_eq!((pod.revision.as_str(), pod.owner_uid.as_deref()), ("r", Some("o")));
}

#[test]
fn conditions_and_gate_are_read() {
    let pod = read(json!({"phase": "Running", "podIP": "10.0.0.1", "conditions": [
        {"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "True"},
        {"type": "regatta.dev/routable", "status": "True"},
    ]}));
    assert!(pod.containers_ready && pod.ready && pod.takes_requests());
    assert_eq!(pod.address.as_deref(), Some("10.0.0.1"));
}

#[test]
fn a_draining_mark_without_a_time_still_means_draining() {
    let mut pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u",
        "annotations": {"regatta.dev/draining": "yes"}}}))
    .expect("a pod");
    assert_eq!(ObservedPod::read(&pod).expect("named").drain, Some(Drain { since: None }));
    let at = "2026-01-01T00:00:00Z";
    pod.metadata.annotations = Some([(DRAINING_ANNOTATION.to_owned(), at.to_owned())].into());
    let since = ObservedPod::read(&pod).expect("named").drain.and_then(|d| d.since);
    assert_eq!(since, at.parse().ok());
}

#[test]
fn the_time_of_a_delete_request_is_before_its_grace_period() {
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u",
        "deletionTimestamp": "2026-01-01T00:05:00Z", "deletionGracePeriodSeconds": 300}}))
    .expect("a pod");
    let pod = ObservedPod::read(&pod).expect("named");
    assert_eq!(pod.ended, "2026-01-01T00:00:00Z".parse().ok());
    assert!(pod.terminating && !pod.is_alive());
}

#[test]
fn each_cause_of_trouble_is_named() {
    let waiting = |reason: &str, message: &str| json!({"waiting": {"reason": reason, "message": message}});
    let ended = |reason: &str, message: &str| json!({"terminated": {"exitCode": 1, "reason": reason, "message": message}});
    let backoff = waiting("CrashLoopBackOff", "back-off 10s");
    let cases = [
        (
            "engine",
            waiting("ImagePullBackOff", "no such image"),
            json!({}),
            Cause::ImagePullFailed,
            "no such image",
        ),
        (
            "engine",
            waiting("CreateContainerConfigError", "secret x"),
            json!({}),
            Cause::ContainerConfigInvalid,
            "secret x",
        ),
        (
            "engine",
            backoff.clone(),
            ended("Error", "unknown architecture\n"),
            Cause::CrashLoop,
            "unknown architecture",
        ),
        (
            "engine",
            backoff.clone(),
            ended("Error", "SHA256 differs"),
            Cause::ChecksumMismatch,
            "SHA256 differs",
        ),
        (
            "fetch",
            backoff.clone(),
            ended("Error", "checksum differs"),
            Cause::ChecksumMismatch,
            "checksum differs",
        ),
        ("fetch", backoff.clone(), ended("Error", "404"), Cause::ModelFetchFailed, "404"),
        (
            "engine",
            ended("Error", ""),
            json!({}),
            Cause::CrashLoop,
            "container engine ended with exit code 1 and no message",
        ),
        (
            "engine",
            backoff,
            ended("OOMKilled", ""),
            Cause::OutOfMemory,
            "container engine was killed for its memory; raise resources.memory",
        ),
    ];
    for (container, state, last, cause, message) in cases {
        assert_eq!(trouble(container, state, last), Some((cause, message.to_owned())));
    }
}

#[test]
fn starting_containers_are_no_trouble() {
    assert_eq!(trouble("engine", json!({"waiting": {"reason": "ContainerCreating"}}), json!({})), None);
    assert_eq!(trouble("engine", json!({"running": {}}), json!({})), None);
}

#[test]
fn an_evicted_pod_tells_why() {
    let pod = read(json!({"phase": "Failed", "reason": "Evicted", "message": "disk pressure"}));
    assert!(pod.finished && pod.ended == Some(pod.created));
    let trouble = pod.trouble.expect("failed");
    assert_eq!((trouble.cause, trouble.message.as_str()), (Cause::PodFailed, "Evicted: disk pressure"));
}

#[test]
fn an_unschedulable_pod_carries_the_schedulers_words() {
    let pod =
        read(json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient memory."}]}));
    assert_eq!(pod.unschedulable.as_deref(), Some("0/1 nodes are available: 1 Insufficient memory."));
}

#[test]
fn the_end_of_a_long_message_is_kept() {
    let long = format!("{}the cause", "x".repeat(5000));
    let (_, message) =
        trouble("engine", json!({"terminated": {"exitCode": 1, "message": long}}), json!({})).expect("ended");
    assert!(message.len() == 1024 && message.ends_with("the cause"));
}
