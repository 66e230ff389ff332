use k8s_openapi::api::{
    core::v1::{Pod, Service},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use regatta_e2e::wait_for;
use serde_json::{Value, json};

use crate::operator::{Operator, PATIENCE, World, small};

#[tokio::test]
async fn a_missing_claim_is_named_and_other_services_go_on() {
    let world = World::new("claim").await;
    world.apply("waits", json!({"model": {"uri": "pvc://no-such-claim/m.gguf"}})).await;
    let message = world.wait_for_condition("waits", "Stalled", "True/VolumeClaimMissing").await;
    assert!(message.contains("'no-such-claim'"), "{message}");
    world.apply("runs", small()).await;
    world.wait_for_condition("runs", "Reconciling", "True/ReplicasStarting").await;
}

#[tokio::test]
async fn a_file_and_a_bad_overlay_are_refused_in_words() {
    let world = World::new("invalid").await;
    world.apply("file", json!({"model": {"uri": "file:///m.gguf"}})).await;
    let message = world.wait_for_condition("file", "SpecValid", "False/SpecInvalid").await;
    assert!(message.contains("pvc://"), "{message}");
    let mut spec = small();
    spec["podTemplate"] =
        json!({"spec": {"containers": [{"name": "engine", "imagePullPolicy": "Sometimes"}]}});
    world.apply("overlay", spec).await;
    let message = world.wait_for_condition("overlay", "SpecValid", "False/PodTemplateRefused").await;
    assert!(message.contains("imagePullPolicy"), "{message}");
    assert!(world.pods().await.is_empty());
}

#[tokio::test]
async fn a_crash_loop_shows_the_last_words_of_the_engine_and_an_event() {
    let world = World::new("crash").await;
    world.apply("llm", small()).await;
    let pod = world.wait_for_pods("a pod", |pods| pods.len() == 1).await.remove(0);
    let status = json!({"containerStatuses": [{
        "name": "engine", "image": "engine:1", "imageID": "", "ready": false, "restartCount": 2,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": {"exitCode": 1, "message": "unknown architecture 'x'"}},
    }]});
    world.patch_status(&pod.name_any(), status).await;
    let message = world.wait_for_condition("llm", "Stalled", "True/CrashLoop").await;
    assert!(message.ends_with("unknown architecture 'x'"), "{message}");
    wait_for("a warning", PATIENCE, async || {
        let events: Api<Event> = world.ns.api();
        let all = events.list(&ListParams::default()).await.map_err(|e| e.to_string())?.items;
        let found = all.iter().any(|e| e.reason.as_deref() == Some("CrashLoop"));
        if found { Ok(()) } else { Err(format!("{:?}", all.iter().map(|e| &e.reason).collect::<Vec<_>>())) }
    })
    .await;
}

#[tokio::test]
async fn an_engine_that_was_started_again_is_told_of_once_even_by_the_next_operator() {
    let mut world = World::new("restart").await;
    world.apply("llm", small()).await;
    let pod = world.wait_for_pods("a pod", |pods| pods.len() == 1).await.remove(0);
    world.bring_up(&pod.name_any()).await;
    world.wait_for_condition("llm", "Ready", "True/ReplicasRoutable").await;
    world.patch_status(&pod.name_any(), restarted(1)).await;
    let notes = wait_for_restarts(&world, &pod, 1).await;
    assert!(notes[0].contains("1 time so far: OOMKilled, exit code 137; "), "{notes:?}");
    assert!(
        notes[0].contains("raise spec.resources.memory") && notes[0].ends_with("spec.engine.args"),
        "{notes:?}"
    );

    let World { ns, operator, engines } = world;
    operator.stop().await.expect("ends well");
    let operator = Operator::start(&ns, "second");
    let world = World { ns, operator, engines };
    // A new generation that is observed was reconciled by the second operator.
    let mut spec = small();
    spec["runPolicy"] = json!("Paused");
    world.apply("llm", spec).await;
    world.wait_for_condition("llm", "Ready", "True/ReplicasRoutable").await;
    world.patch_status(&pod.name_any(), restarted(2)).await;
    let notes = wait_for_restarts(&world, &pod, 2).await;
    assert!(notes.iter().any(|note| note.contains("2 times so far")), "{notes:?}");
}

/// An engine that was killed for its memory just now and runs again.
fn restarted(count: u32) -> Value {
    let now = jiff::Timestamp::now().to_string();
    json!({"containerStatuses": [{
        "name": "engine", "image": "engine:1", "imageID": "", "ready": true, "started": true, "restartCount": count,
        "state": {"running": {}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": now}},
    }]})
}

/// Notes of exactly so many events about restarts of `pod`.
async fn wait_for_restarts(world: &World, pod: &Pod, expected: usize) -> Vec<String> {
    wait_for("events of restarts", PATIENCE, async || {
        let events: Api<Event> = world.ns.api();
        let all = events.list(&ListParams::default()).await.map_err(|e| e.to_string())?.items;
        let about_pod = |e: &Event| e.related.as_ref().is_some_and(|r| r.uid == pod.uid());
        let told = all.into_iter().filter(|e| e.reason.as_deref() == Some("EngineRestarted") && about_pod(e));
        let notes: Vec<_> = told.filter_map(|e| e.note).collect();
        if notes.len() == expected { Ok(notes) } else { Err(format!("{notes:?}")) }
    })
    .await
}

#[tokio::test]
async fn a_volume_that_does_not_come_is_named_until_it_is_there() {
    let mut world = World::new("mount").await;
    world.apply("llm", small()).await;
    let pod = world.wait_for_pods("a pod", |pods| pods.len() == 1).await.remove(0);
    let note = "MountVolume.SetUp failed for volume \"ca\" : configmap \"nope\" not found";
    world.fail_mount(&pod, note).await;
    let message = world.wait_for_condition("llm", "Stalled", "True/VolumeMountFailed").await;
    assert!(message.contains(note) && message.contains("create it in this namespace"), "{message}");
    world.bring_up(&pod.name_any()).await;
    world.wait_for_condition("llm", "Ready", "True/ReplicasRoutable").await;
}

#[tokio::test]
async fn a_service_of_someone_else_is_left_alone() {
    let world = World::new("taken").await;
    let services: Api<Service> = world.ns.api();
    let other = json!({"metadata": {"name": "llm"}, "spec": {"ports": [{"port": 1}]}});
    services
        .create(&PostParams::default(), &serde_json::from_value(other).expect("a Service"))
        .await
        .expect("taken");
    world.apply("llm", small()).await;
    world.wait_for_condition("llm", "Stalled", "True/NameTaken").await;
    let ports = services.get("llm").await.expect("there").spec.and_then(|s| s.ports).expect("ports");
    assert_eq!(ports[0].port, 1);
}

#[tokio::test]
async fn a_name_that_an_older_service_takes_is_lost_to_the_younger_one() {
    // Creation times count whole seconds; within one second the first namespace by name is the older one.
    let older = World::new("a-older").await;
    let World { ns, operator, engines } = World::new("b-younger").await;
    operator.stop().await.expect("ends well");
    let operator = Operator::start_everywhere(&ns, "everywhere");
    let younger = World { ns, operator, engines };
    // Unique to this test: the operator sees every namespace.
    let name = format!("model-{}", older.ns.name);
    let mut spec = small();
    spec["model"]["servedNames"] = json!([name]);
    older.apply("llm", small()).await;
    older.wait_for_pods("a pod", |pods| pods.len() == 1).await;
    younger.apply("llm", spec.clone()).await;
    younger.wait_for_condition("llm", "Reconciling", "True/ReplicasStarting").await;
    older.apply("llm", spec).await;
    let message = younger.wait_for_condition("llm", "Stalled", "True/ServedNameTaken").await;
    assert!(message.contains(&format!("{}/llm", older.ns.name)), "{message}");
}
