//! Single steps on pods. Each names its pod by UID, so that a namesake made meanwhile is never touched.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use regatta_crds::LLMService;
use regatta_planner::{
    contract::{DRAINING_ANNOTATION, FIELD_MANAGER, ROUTABLE_GATE},
    plan::{Action, Step},
    status::Problem,
};
use serde_json::json;

use super::{Outcome, children, found};
use crate::{context::Context, events};

/// Takes one step; what went wrong is added to `outcome`.
pub(super) async fn take(
    ctx: &Context,
    service: &LLMService,
    step: &Step,
    pod: Option<&Pod>,
    outcome: &mut Outcome,
) {
    let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), &service.namespace().unwrap_or_default());
    let taken = match (&step.action, pod) {
        (Action::Wait { .. }, _) => return,
        (Action::Create { .. }, Some(pod)) => create(ctx, &pods, pod, outcome).await,
        (Action::Create { .. }, None) => unreachable!("every create is built"),
        (Action::MarkDraining { name, uid }, _) => mark_draining(ctx, &pods, name, uid).await,
        (Action::SetRoutable { name, uid }, _) => set_routable(ctx, &pods, name, uid).await,
        (Action::Delete { name, uid }, _) => delete(&pods, name, uid).await,
    };
    let (label, what) = match &step.action {
        Action::Create { name, .. } => ("create", format!("creating pod {name}")),
        Action::MarkDraining { name, .. } => ("mark_draining", format!("marking pod {name} as draining")),
        Action::SetRoutable { name, .. } => ("set_routable", format!("setting the gate of pod {name}")),
        Action::Delete { name, .. } => ("delete", format!("deleting pod {name}")),
        Action::Wait { .. } => return,
    };
    match taken {
        Ok(Some(uid)) => {
            tracing::info!(
                namespace = service.namespace(),
                service = service.name_any(),
                why = step.reason,
                "{what}"
            );
            ctx.metrics.stepped(label);
            events::step(ctx, service, &step.action, uid, &step.reason).await;
        }
        Ok(None) => {}
        Err(error) => outcome.failed(&what, error),
    }
}

/// UID of a pod that a step changed; none when there was nothing to do.
type Taken = Result<Option<String>, kube::Error>;

/// A pod of that name that is ours already was made by a reconcile that the cache does not show yet.
async fn create(ctx: &Context, pods: &Api<Pod>, pod: &Pod, outcome: &mut Outcome) -> Taken {
    match pods.create(&children::create_params(), pod).await {
        Ok(made) => {
            ctx.written.created(&made);
            Ok(made.uid())
        }
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            children::is_ours(pods, pod, "Pod", outcome).await;
            Ok(None)
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
            outcome.problems.push(Problem::PodRefused(status.message));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn mark_draining(ctx: &Context, pods: &Api<Pod>, name: &str, uid: &str) -> Taken {
    let patch =
        json!({"metadata": {"uid": uid, "annotations": {DRAINING_ANNOTATION: Timestamp::now().to_string()}}});
    patched(ctx, pods.patch(name, &params(), &Patch::Merge(patch)).await)
}

async fn set_routable(ctx: &Context, pods: &Api<Pod>, name: &str, uid: &str) -> Taken {
    let condition = json!({
        "type": ROUTABLE_GATE, "status": "True", "reason": "EngineAnswers",
        "message": "the engine answered a probe of its state", "lastTransitionTime": Timestamp::now().to_string(),
    });
    let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
    // Strategic: conditions are merged by type, beside those of the kubelet.
    patched(ctx, pods.patch_status(name, &params(), &Patch::Strategic(patch)).await)
}

async fn delete(pods: &Api<Pod>, name: &str, uid: &str) -> Taken {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let deleted = found(pods.delete(name, &DeleteParams::default().preconditions(preconditions)).await)?;
    Ok(deleted.map(|_| uid.to_owned()))
}

/// A conflict is an error, to be tried again: nothing else may happen that starts another reconcile.
fn patched(ctx: &Context, result: Result<Pod, kube::Error>) -> Taken {
    let pod = found(result)?;
    if let Some(pod) = &pod {
        ctx.written.patched(pod);
    }
    Ok(pod.and_then(|p| p.uid()))
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }
}
