//! Doing what was decided. Talks to the API server only.
//!
//! The revision goes first, so that no pod exists whose template is not kept; then the Service, so that pods are
//! reachable as soon as they are ready; then the steps on pods in the order of the plan; then what is no longer
//! wanted is pruned.

mod children;
mod finalizer;
mod pods;

use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    core::v1::{Pod, Service},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use regatta_crds::{LLMService, LLMServiceStatus};
use regatta_planner::{
    Plan, ValidatedService, build,
    contract::FIELD_MANAGER,
    names,
    plan::{Action, Step},
    revision::{self, Chosen},
    status::Problem,
};
use serde_json::json;

use crate::{context::Context, dereference::Observed};

pub(crate) use finalizer::{awaits_finalizer, drop_finalizer, finished};

/// Objects that a service is to have, and steps on its pods.
pub(crate) struct Objects {
    service: Service,
    /// Set while no ControllerRevision holds the wanted template: the record, and a pod made from it.
    new_revision: Option<(ControllerRevision, Pod)>,
    steps: Vec<(Step, Option<Pod>)>,
    unneeded_revisions: Vec<String>,
}

/// What went wrong.
#[derive(Default)]
pub(crate) struct Outcome {
    /// In words for status.
    pub(crate) problems: Vec<Problem>,
    /// The first call that is worth another try.
    pub(crate) error: Option<kube::Error>,
}

impl Objects {
    /// Pure: renders everything that `plan` needs.
    pub(crate) fn build(
        service: &ValidatedService,
        chosen: &Chosen,
        plan: &Plan,
        observed: &Observed,
    ) -> Self {
        let revision = &chosen.revision;
        let pod = |name: &str, attempt| build::pod(service, revision, name, attempt);
        let render = |step: &Step| match &step.action {
            Action::Create { name, attempt } => (step.clone(), Some(pod(name, *attempt))),
            _ => (step.clone(), None),
        };
        let in_use: Vec<_> = observed.pods.iter().map(|p| p.revision.as_str()).collect();
        let unneeded = revision::unneeded(&observed.revisions, &revision.hash, &in_use);
        let probe = || pod(&names::pod_name(&service.name, &revision.hash, 0), 0);
        Self {
            service: build::service(service),
            new_revision: chosen.is_new.then(|| (build::controller_revision(service, revision), probe())),
            steps: plan.steps.iter().map(render).collect(),
            unneeded_revisions: unneeded
                .iter()
                .map(|hash| names::revision_name(&service.name, hash))
                .collect(),
        }
    }
}

/// Applies all of `objects`; goes on after a failure where the rest does not depend on it.
pub(crate) async fn apply(ctx: &Context, service: &LLMService, objects: Option<&Objects>) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(objects) = objects else { return outcome };
    let namespace = service.namespace().unwrap_or_default();
    if service.metadata.deletion_timestamp.is_none() {
        if !children::revision(ctx, &namespace, objects.new_revision.as_ref(), &mut outcome).await {
            return outcome;
        }
        children::service(ctx, &objects.service, &mut outcome).await;
    }
    for (step, pod) in &objects.steps {
        pods::take(ctx, service, step, pod.as_ref(), &mut outcome).await;
    }
    children::prune(ctx, &namespace, &objects.unneeded_revisions, &mut outcome).await;
    outcome
}

/// Writes the status if it differs from the one that was read.
pub(crate) async fn status(
    ctx: &Context,
    service: &LLMService,
    status: &LLMServiceStatus,
) -> Result<(), kube::Error> {
    if service.status.as_ref() == Some(status) {
        return Ok(());
    }
    let api: Api<LLMService> = Api::namespaced(ctx.client.clone(), &service.namespace().unwrap_or_default());
    let patch = Patch::Merge(json!({"status": status}));
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    if let Some(written) = found(api.patch_status(&service.name_any(), &params, &patch).await)? {
        ctx.written.service(written);
    }
    Ok(())
}

impl Outcome {
    fn failed(&mut self, what: &str, error: kube::Error) {
        self.problems.push(Problem::ApplyFailed(format!("{what} failed: {}", words(&error))));
        self.error.get_or_insert(error);
    }
}

/// The server's own message, without the wrapping.
pub(crate) fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// None for an object that is gone and so needs no change: the cache hears of it.
fn found<T>(result: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        other => other.map(Some),
    }
}
