use kube::ResourceExt;
use serde_json::json;

use crate::operator::{World, is_draining, small, with};

#[tokio::test]
async fn a_changed_spec_brings_up_the_new_replica_before_the_old_one_goes() {
    let mut world = World::new("rollout").await;
    world.apply("llm", small()).await;
    let old = world.wait_for_pods("a pod", |pods| pods.len() == 1).await.remove(0);
    world.bring_up(&old.name_any()).await;
    world.wait_for_condition("llm", "Ready", "True/ReplicasRoutable").await;
    let mut spec = small();
    spec["engine"] = json!({"args": [{"name": "max-num-seqs", "values": ["8"]}]});
    world.apply("llm", spec).await;
    let both = world.wait_for_pods("the new pod", |pods| pods.len() == 2).await;
    world.wait_for_condition("llm", "Ready", "False/RollingOut").await;
    world.wait_for_condition("llm", "Available", "True/ReplicasRoutable").await;
    assert!(both.iter().all(|p| !is_draining(p)), "the old one serves until the new one does");
    let new = both.iter().find(|p| p.uid() != old.uid()).expect("two pods").name_any();
    world.bring_up(&new).await;
    world.wait_for_pods("only the new pod", |pods| pods.len() == 1 && pods[0].name_any() == new).await;
    world.wait_for_condition("llm", "Ready", "True/ReplicasRoutable").await;
}

#[tokio::test]
async fn a_new_replica_without_room_gets_the_place_of_the_old_one() {
    let mut world = World::new("inplace").await;
    world.apply("llm", small()).await;
    let old = world.wait_for_pods("a pod", |pods| pods.len() == 1).await.remove(0);
    world.bring_up(&old.name_any()).await;
    let mut spec = small();
    spec["engine"] = json!({"image": "engine:other"});
    world.apply("llm", spec).await;
    let both = world.wait_for_pods("the new pod", |pods| pods.len() == 2).await;
    let new = both.iter().find(|p| p.uid() != old.uid()).expect("two pods").name_any();
    let no_room = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient cpu."}]});
    world.patch_status(&new, no_room).await;
    world.wait_for_pods("the old pod to go", |pods| pods.len() == 1 && pods[0].name_any() == new).await;
    world.wait_for_condition("llm", "Stalled", "True/Unschedulable").await;
}

#[tokio::test]
async fn stopped_removes_the_pods_and_paused_changes_nothing() {
    let world = World::new("policy").await;
    let policy = |name: &str, replicas| {
        let mut spec = with(replicas);
        spec["runPolicy"] = name.into();
        spec
    };
    world.apply("llm", with(1)).await;
    world.wait_for_pods("a pod", |pods| pods.len() == 1).await;
    world.apply("llm", policy("Paused", 3)).await;
    world.wait_for_condition("llm", "Ready", "False/Paused").await;
    assert_eq!(world.pods().await.len(), 1);
    world.apply("llm", policy("Stopped", 3)).await;
    world.wait_for_condition("llm", "Ready", "True/Stopped").await;
    assert!(world.pods().await.is_empty());
}
