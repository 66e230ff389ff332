use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    core::v1::{Pod, Service},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use regatta_planner::{contract::FIELD_MANAGER, status::Problem};

use super::{Outcome, found};
use crate::context::Context;

/// Keeps the record of a new template, once the API server has taken a pod of it in a dry run. False when there is
/// no such record, so that no pod may be made.
pub(super) async fn revision(
    ctx: &Context,
    namespace: &str,
    new: Option<&(ControllerRevision, Pod)>,
    outcome: &mut Outcome,
) -> bool {
    let Some((record, pod)) = new else { return true };
    let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), namespace);
    match pods.create(&PostParams { dry_run: true, ..create_params() }, pod).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => {
            outcome.problems.push(Problem::PodTemplateRefused(status.message));
            return false;
        }
        Err(kube::Error::Api(status)) if status.code == 403 => {
            outcome.problems.push(Problem::PodRefused(status.message));
            return false;
        }
        Err(error) => {
            outcome.failed("the dry run of a pod", error);
            return false;
        }
    }
    let revisions: Api<ControllerRevision> = Api::namespaced(ctx.client.clone(), namespace);
    match revisions.create(&create_params(), record).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            is_ours(&revisions, record, "ControllerRevision", outcome).await
        }
        Err(error) => {
            outcome.failed("creating the ControllerRevision", error);
            false
        }
    }
}

/// Applies the Service, unless someone else has one of that name.
pub(super) async fn service(ctx: &Context, wanted: &Service, outcome: &mut Outcome) {
    let services: Api<Service> = Api::namespaced(ctx.client.clone(), &wanted.namespace().unwrap_or_default());
    if !is_ours(&services, wanted, "Service", outcome).await {
        return;
    }
    let params = PatchParams::apply(FIELD_MANAGER).force();
    if let Err(error) = services.patch(&wanted.name_any(), &params, &Patch::Apply(wanted)).await {
        outcome.failed("applying the Service", error);
    }
}

/// Deletes revisions that nothing needs.
pub(super) async fn prune(ctx: &Context, namespace: &str, names: &[String], outcome: &mut Outcome) {
    let revisions: Api<ControllerRevision> = Api::namespaced(ctx.client.clone(), namespace);
    for name in names {
        if let Err(error) = found(revisions.delete(name, &DeleteParams::default()).await) {
            outcome.failed("deleting an old ControllerRevision", error);
        }
    }
}

/// Whether the object of that name is absent or has the same controller as `wanted`.
pub(super) async fn is_ours<K>(api: &Api<K>, wanted: &K, kind: &'static str, outcome: &mut Outcome) -> bool
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let found = match api.get_metadata_opt(&wanted.name_any()).await {
        Ok(found) => found,
        Err(error) => {
            outcome.failed(&format!("reading the {kind}"), error);
            return false;
        }
    };
    let owner = |owners: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference]| {
        owners.iter().find(|o| o.controller == Some(true)).map(|o| o.uid.clone())
    };
    if found.is_some_and(|f| owner(f.owner_references()) != owner(wanted.owner_references())) {
        outcome.problems.push(Problem::NameTaken { kind, name: wanted.name_any() });
        return false;
    }
    true
}

pub(super) fn create_params() -> PostParams {
    PostParams { dry_run: false, field_manager: Some(FIELD_MANAGER.into()) }
}
