//! The operator with no more rights than its own rules give.

use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use regatta_controller::{cluster_rules, lease_rules};
use serde_json::json;

use crate::operator::{Operator, World, small};

#[tokio::test]
async fn the_listed_rights_are_enough_to_run_a_service_and_give_no_secrets() {
    let world = World::new("rights").await;
    let World { ns, operator, engines } = world;
    operator.stop().await.expect("ends well");
    let rules: Vec<_> = cluster_rules().into_iter().chain(lease_rules()).collect();
    let named = json!({"name": "operator"});
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": named})).expect("an account");
    ns.api::<ServiceAccount>().create(&PostParams::default(), &account).await.expect("taken");
    let role =
        Role { rules: Some(rules), metadata: serde_json::from_value(named.clone()).expect("metadata") };
    ns.api::<Role>().create(&PostParams::default(), &role).await.expect("taken");
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": named,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"},
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": ns.name}],
    }))
    .expect("a binding");
    ns.api::<RoleBinding>().create(&PostParams::default(), &binding).await.expect("taken");

    let client = impersonate(&format!("system:serviceaccount:{}:operator", ns.name)).await;
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client.clone(), &ns.name);
    assert!(secrets.list(&kube::api::ListParams::default()).await.is_err(), "no right on Secrets");
    let operator = Operator::start_with(client, &ns.name, "bounded", "engine:1");
    let mut world = World { ns, operator, engines };
    world.apply("llm", small()).await;
    let pod = world.wait_for_pods("a pod", |pods| pods.len() == 1).await.remove(0);
    world.fail_mount(&pod, "secret not found").await;
    world.wait_for_condition("llm", "Stalled", "True/VolumeMountFailed").await;
    world.bring_up(&kube::ResourceExt::name_any(&pod)).await;
    world.wait_for_condition("llm", "Ready", "True/ReplicasRoutable").await;
    world.services().delete("llm", &kube::api::DeleteParams::default()).await.expect("taken");
    world.wait_for_pods("no pods", <[_]>::is_empty).await;
}

async fn impersonate(user: &str) -> Client {
    let path = std::env::var("REGATTA_TEST_KUBECONFIG").expect("a cluster is around");
    let kubeconfig = Kubeconfig::read_from(path).expect("readable");
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("usable");
    config.auth_info.impersonate = Some(user.to_owned());
    Client::try_from(config).expect("a client")
}
