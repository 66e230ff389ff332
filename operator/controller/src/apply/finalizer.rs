//! The finalizer lets replicas drain before a deleted service goes. It never waits for more than their drain
//! timeout, and not for pods that the kubelet is already ending.

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use regatta_crds::LLMService;
use regatta_planner::contract::{FIELD_MANAGER, FINALIZER};
use serde_json::json;

use super::found;
use crate::{context::Context, dereference::Observed};

/// Adds the finalizer where it is missing. True when the reconcile ends here: the change starts the next one, or
/// the service is on its way out without us.
pub(crate) async fn awaits_finalizer(ctx: &Context, service: &LLMService) -> Result<bool, kube::Error> {
    let has = service.finalizers().iter().any(|f| f == FINALIZER);
    if service.metadata.deletion_timestamp.is_some() {
        return Ok(!has);
    }
    if has {
        return Ok(false);
    }
    let mut finalizers = service.finalizers().to_vec();
    finalizers.push(FINALIZER.to_owned());
    if let Some(written) = write(ctx, service, &finalizers).await? {
        ctx.written.service(written);
    }
    Ok(true)
}

/// Whether no pod of the service is left that nobody has asked to end.
pub(crate) fn finished(service: &LLMService, observed: &Observed) -> bool {
    observed.pods.iter().filter(|p| p.owner_uid == service.metadata.uid).all(|p| p.terminating)
}

/// Lets the service go.
pub(crate) async fn drop_finalizer(ctx: &Context, service: &LLMService) -> Result<(), kube::Error> {
    let left: Vec<_> = service.finalizers().iter().filter(|f| *f != FINALIZER).cloned().collect();
    write(ctx, service, &left).await?;
    ctx.written.forget(service);
    Ok(())
}

/// The list is replaced whole, so the resource version guards what others wrote to it. None for a service that is
/// gone.
async fn write(
    ctx: &Context,
    service: &LLMService,
    finalizers: &[String],
) -> Result<Option<LLMService>, kube::Error> {
    let api: Api<LLMService> = Api::namespaced(ctx.client.clone(), &service.namespace().unwrap_or_default());
    let version = service.resource_version();
    let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    found(api.patch(&service.name_any(), &params, &Patch::Merge(patch)).await)
}
