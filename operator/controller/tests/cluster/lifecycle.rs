use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    core::v1::{Pod, Service},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use regatta_e2e::wait_for;

use crate::operator::{Operator, PATIENCE, World, is_draining, small, with};

#[tokio::test]
async fn a_service_gets_pods_and_is_ready_once_they_take_requests() {
    let mut world = World::new("create").await;
    world.apply("llm", with(2)).await;
    let pods = world.wait_for_pods("two pods", |pods| pods.len() == 2).await;
    world.wait_for_condition("llm", "Reconciling", "True/ReplicasStarting").await;
    for pod in &pods {
        world.bring_up(&pod.name_any()).await;
    }
    world.wait_for_condition("llm", "Ready", "True/ReplicasRoutable").await;
    let status = world.services().get("llm").await.expect("there").status.expect("a status");
    assert_eq!(
        (status.replicas, status.ready_replicas, status.routable_replicas),
        (Some(2), Some(2), Some(2))
    );
    let service: Api<Service> = world.ns.api();
    assert!(service.get("llm").await.is_ok());
    let revisions: Api<ControllerRevision> = world.ns.api();
    assert_eq!(revisions.list(&ListParams::default()).await.expect("listed").items.len(), 1);
    world.operator.stop().await.expect("ends well");
}

#[tokio::test]
async fn each_pod_has_events_of_its_own() {
    let mut world = World::new("events").await;
    world.apply("llm", with(2)).await;
    let pods = world.wait_for_pods("two pods", |pods| pods.len() == 2).await;
    for pod in &pods {
        world.bring_up(&pod.name_any()).await;
    }
    let events: Api<Event> = world.ns.api();
    for reason in ["ReplicaCreated", "ReplicaRoutable"] {
        wait_for(&format!("{reason} of each pod"), PATIENCE, async || {
            let all = events.list(&ListParams::default()).await.map_err(|e| e.to_string())?.items;
            let found: Vec<_> = all.iter().filter(|e| e.reason.as_deref() == Some(reason)).collect();
            let told = |pod: &Pod| {
                let name = pod.name_any();
                found.iter().any(|e| {
                    let related = e.related.as_ref().map(|r| (r.name.clone(), r.uid.clone()));
                    let note = e.note.as_deref().unwrap_or_default();
                    related == Some((pod.metadata.name.clone(), pod.uid()))
                        && note.starts_with(&format!("{name}: "))
                })
            };
            if pods.iter().all(told) { Ok(()) } else { Err(format!("{found:#?}")) }
        })
        .await;
    }
}

#[tokio::test]
async fn scaling_down_drains_the_idle_replica_and_waits_for_a_busy_one() {
    let mut world = World::new("scale").await;
    world.apply("llm", with(2)).await;
    let pods = world.wait_for_pods("two pods", |pods| pods.len() == 2).await;
    let names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
    for name in &names {
        world.bring_up(name).await;
    }
    world.engine_of(&names[0]).set_in_flight(2);
    world.engine_of(&names[1]).set_in_flight(1);
    world.apply("llm", with(1)).await;
    let draining = world.wait_for_pods("one to drain", |pods| pods.iter().any(is_draining)).await;
    let victims: Vec<_> = draining.iter().filter(|p| is_draining(p)).map(ResourceExt::name_any).collect();
    assert_eq!(victims, [names[1].clone()], "the least loaded goes");
    world.wait_for_condition("llm", "Ready", "False/Draining").await;
    assert_eq!(world.pods().await.len(), 2, "a busy replica is not deleted");
    world.engine_of(&names[1]).set_in_flight(0);
    world.wait_for_pods("the idle one to go", |pods| pods.len() == 1).await;
    world.wait_for_condition("llm", "Ready", "True/ReplicasRoutable").await;
}

#[tokio::test]
async fn a_deleted_service_goes_even_if_its_engines_do_not_answer() {
    let mut world = World::new("delete").await;
    world.apply("llm", small()).await;
    let pods = world.wait_for_pods("a pod", |pods| pods.len() == 1).await;
    world.bring_up(&pods[0].name_any()).await;
    world.engines.clear();
    world.services().delete("llm", &DeleteParams::default()).await.expect("taken");
    wait_for("the service to go", PATIENCE, async || {
        let left = world.services().get_opt("llm").await.map_err(|e| e.to_string())?;
        left.map_or(Ok(()), |s| Err(format!("{s:?}")))
    })
    .await;
    world.wait_for_pods("no pods", <[_]>::is_empty).await;
}

#[tokio::test]
async fn a_pod_that_others_delete_is_replaced() {
    let world = World::new("healed").await;
    world.apply("llm", small()).await;
    let first = world.wait_for_pods("a pod", |pods| pods.len() == 1).await.remove(0);
    let api: Api<Pod> = world.ns.api();
    api.delete(&first.name_any(), &DeleteParams::default().grace_period(0)).await.expect("taken");
    world.wait_for_pods("another pod", |pods| pods.len() == 1 && pods[0].uid() != first.uid()).await;
}

#[tokio::test]
async fn a_newer_operator_with_another_image_changes_no_pod() {
    let mut world = World::new("upgrade").await;
    world.apply("llm", small()).await;
    let before = world.wait_for_pods("a pod", |pods| pods.len() == 1).await.remove(0);
    world.bring_up(&before.name_any()).await;
    world.wait_for_condition("llm", "Ready", "True/ReplicasRoutable").await;
    let World { ns, operator, engines, .. } = world;
    operator.stop().await.expect("ends well");
    let operator = Operator::start_with(ns.client.clone(), &ns.name, "newer", "engine:2");
    let world = World { ns, operator, engines };
    world.apply("llm", with(2)).await;
    let pods = world.wait_for_pods("the second replica", |pods| pods.len() == 2).await;
    assert!(pods.iter().any(|p| p.uid() == before.uid() && !is_draining(p)));
    let images: Vec<_> =
        pods.iter().map(|p| p.spec.as_ref().map(|s| s.containers[0].image.clone())).collect();
    assert_eq!(images[0], images[1], "the stored template is used on");
}
