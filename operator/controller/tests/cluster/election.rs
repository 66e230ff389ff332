use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use regatta_controller::Error;
use regatta_e2e::wait_for;
use serde_json::json;

use crate::operator::{Operator, PATIENCE, World, small};

async fn wait_for_holder(world: &World, holder: &str) {
    let leases: Api<Lease> = world.ns.api();
    wait_for(&format!("{holder} to lead"), PATIENCE, async || {
        let lease = leases.get("regatta-operator").await.map_err(|e| e.to_string())?;
        let found = lease.spec.and_then(|s| s.holder_identity).unwrap_or_default();
        if found == holder { Ok(()) } else { Err(found) }
    })
    .await;
}

#[tokio::test]
async fn a_second_operator_waits_and_takes_over_when_the_first_ends() {
    let world = World::new("two").await;
    wait_for_holder(&world, "first").await;
    let second = Operator::start(&world.ns, "second");
    world.apply("llm", small()).await;
    world.wait_for_pods("a pod", |pods| pods.len() == 1).await;
    wait_for_holder(&world, "first").await;
    let World { ns, operator, engines } = world;
    operator.stop().await.expect("ends well");
    let world = World { ns, operator: second, engines };
    wait_for_holder(&world, "second").await;
    world.apply("other", small()).await;
    world.wait_for_condition("other", "Reconciling", "True/ReplicasStarting").await;
}

#[tokio::test]
async fn an_operator_that_loses_its_lease_ends() {
    let world = World::new("lost").await;
    wait_for_holder(&world, "first").await;
    let leases: Api<Lease> = world.ns.api();
    let stolen = Patch::Merge(json!({"spec": {"holderIdentity": "thief"}}));
    leases.patch("regatta-operator", &PatchParams::default(), &stolen).await.expect("taken");
    let end = tokio::time::timeout(PATIENCE, world.operator.task).await.expect("it ends").expect("no panic");
    assert!(matches!(end, Err(Error::LeaseLost { .. })), "{end:?}");
}
