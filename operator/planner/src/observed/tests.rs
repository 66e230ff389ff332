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
    let list = if container == "fetch" { "initContainerStatuses" } else { "containerStatuses" };
    let status = json!({list: [{
        "name": container, "image": "i", "imageID": "", "ready": false, "restartCount": 3, "state": state,
        "lastState": last, "started": container == "fetch",
    }]});
    read(status).trouble.map(|t| (t.cause, t.message))
}

/// The engine of a pod that took requests, after `restarts` restarts; its last run took `seconds`.
fn restarted(restarts: u32, seconds: i64, state: Value) -> Option<Trouble> {
    let start = Timestamp::UNIX_EPOCH;
    let end = start.checked_add(jiff::SignedDuration::from_secs(seconds)).expect("in range");
    let last = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled",
        "startedAt": start.to_string(), "finishedAt": end.to_string()}});
    read(json!({
        "conditions": [{"type": "regatta.dev/routable", "status": "True"}],
        "containerStatuses": [{"name": "engine", "image": "i", "imageID": "", "ready": false,
            "restartCount": restarts, "started": false, "state": state, "lastState": last}],
    }))
    .trouble
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

fn waiting(reason: &str, message: &str) -> Value {
    json!({"waiting": {"reason": reason, "message": message}})
}

fn ended(reason: &str, message: &str) -> Value {
    json!({"terminated": {"exitCode": 1, "reason": reason, "message": message}})
}

#[test]
fn what_keeps_a_container_from_being_made_is_named() {
    let invalid = |found: &str, told: &str| {
        let state = waiting("CreateContainerConfigError", found);
        assert_eq!(
            trouble("engine", state, json!({})),
            Some((Cause::ContainerConfigInvalid, told.to_owned()))
        );
    };
    let remedy = "create it in this namespace, or correct spec.engine.env or spec.podTemplate";
    for found in ["secret \"llmkey\" not found", "couldn't find key k in ConfigMap default/c"] {
        invalid(found, &format!("{found}; {remedy}"));
    }
    invalid("image will run as root", "image will run as root");
    let no_image = waiting("ImagePullBackOff", "no such image");
    let expected = Some((Cause::ImagePullFailed, "no such image".to_owned()));
    assert_eq!(trouble("engine", no_image, json!({})), expected);
}

#[test]
fn each_cause_of_an_end_is_named() {
    let cases = [
        ("engine", "Error", "unknown architecture\n", Cause::CrashLoop, "unknown architecture"),
        ("engine", "Error", "SHA256 differs", Cause::ChecksumMismatch, "SHA256 differs"),
        ("fetch", "Error", "checksum differs", Cause::ChecksumMismatch, "checksum differs"),
        ("fetch", "Error", "404", Cause::ModelFetchFailed, "404"),
        (
            "engine",
            "OOMKilled",
            "",
            Cause::OutOfMemory,
            "container engine was killed for its memory; raise spec.resources.memory (with sharedMemory in it), or make the engine take less with kv-cache-memory-bytes, max-model-len or max-num-seqs in spec.engine.args",
        ),
        (
            "engine",
            "Error",
            "2026-01-01T00:00:00Z ERROR regatta_engine: cannot read /models/m: No such file or directory",
            Cause::ModelNotFound,
            "cannot read /models/m: No such file or directory; correct spec.model.uri, or put the model on the volume",
        ),
        (
            "engine",
            "StartError",
            "exec: no such file: /bin/engine",
            Cause::ContainerConfigInvalid,
            "exec: no such file: /bin/engine",
        ),
    ];
    for (container, reason, last_words, cause, message) in cases {
        let found =
            trouble(container, waiting("CrashLoopBackOff", "back-off 10s"), ended(reason, last_words));
        assert_eq!(found, Some((cause, message.to_owned())));
    }
    let silent = "container engine ended with exit code 1 and no message".to_owned();
    assert_eq!(trouble("engine", ended("Error", ""), json!({})), Some((Cause::CrashLoop, silent)));
}

#[test]
fn a_download_that_failed_stays_in_trouble_until_it_is_done() {
    let failed = json!({"terminated": {"exitCode": 1, "message": "404"}});
    let running = json!({"running": {}});
    let waiting = json!({"waiting": {"reason": "PodInitializing"}});
    let expected = Some((Cause::ModelFetchFailed, "404".to_owned()));
    assert_eq!(trouble("fetch", failed.clone(), json!({})), expected);
    assert_eq!(trouble("fetch", running.clone(), failed.clone()), expected);
    assert_eq!(trouble("fetch", waiting, failed.clone()), expected);
    assert_eq!(trouble("fetch", json!({"terminated": {"exitCode": 0}}), failed), None);
    let rerun = json!({"terminated": {"exitCode": 0}});
    assert_eq!(trouble("fetch", running, rerun), None, "a node that starts again runs it again");
}

#[test]
fn an_engine_that_failed_to_start_stays_in_trouble_until_it_has_started() {
    let status = |started: bool| {
        json!({"containerStatuses": [{"name": "engine", "image": "i", "imageID": "", "ready": false,
            "restartCount": 1, "started": started, "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "message": "unknown architecture"}}}]})
    };
    let trouble = read(status(false)).trouble.expect("it is loading again");
    assert!(trouble.cause == Cause::CrashLoop && !trouble.passing);
    assert_eq!(read(status(true)).trouble, None);
}

#[test]
fn a_replica_that_served_and_ended_once_starts_again_by_itself() {
    let (running, backoff) = (json!({"running": {}}), json!({"waiting": {"reason": "CrashLoopBackOff"}}));
    let passing = |trouble: Option<Trouble>| trouble.expect("it ended").passing;
    assert!(passing(restarted(1, 60, running.clone())), "once");
    assert!(!passing(restarted(2, 60, running.clone())), "twice within minutes");
    assert!(!passing(restarted(1, 60, backoff)), "twice, and not up again");
    assert!(passing(restarted(7, 3600, running)), "now and then");
}

#[test]
fn a_pod_tells_what_it_is_at() {
    let stage = |conditions: &[&str], containers: Value| {
        let conditions: Vec<_> = conditions.iter().map(|c| json!({"type": c, "status": "True"})).collect();
        read(json!({"conditions": conditions, "containerStatuses": containers})).stage()
    };
    let running = || {
        json!([{"name": "engine", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"running": {}}}])
    };
    assert_eq!(stage(&[], json!([])), "waits for a node");
    assert_eq!(stage(&["PodScheduled"], json!([])), "fetches the model");
    assert_eq!(stage(&["PodScheduled", "Initialized"], json!([])), "its container is being made");
    assert_eq!(stage(&["PodScheduled", "Initialized"], running()), "loads the model");
    let served = ["PodScheduled", "Initialized", "regatta.dev/routable"];
    assert_eq!(stage(&served, running()), "its readiness probe fails");
    let ready = ["PodScheduled", "Initialized", "ContainersReady"];
    assert_eq!(stage(&ready, running()), "waits for an answer to the operator");
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
