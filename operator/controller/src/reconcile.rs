//! One reconcile, as six calls.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use kube::{
    ResourceExt,
    runtime::{controller::Action, reflector::ObjectRef},
};
use regatta_crds::{LLMService, LLMServiceStatus, RunPolicy};
use regatta_planner::{
    Place, Plan, SpecError, ValidatedService,
    plan::{self, Desired, Mode},
    revision::{self, Chosen},
    status::{self, Problem, Situation},
    validate,
};

use crate::{
    apply::{self, Objects, Outcome},
    context::Context,
    dereference::{Observed, dereference},
    events, restarts,
};

/// Everything is looked at again after this time, whatever was or was not heard.
const RESYNC: Duration = Duration::from_secs(300);
/// What others must mend is looked at more often.
const RETRY: Duration = Duration::from_secs(10);
/// How soon a cache is looked at again that does not show our own writes yet.
const CATCH_UP: Duration = Duration::from_millis(50);

/// What is to be done for a valid service.
struct Decision {
    service: ValidatedService,
    chosen: Chosen,
    plan: Plan,
}

/// Brings the cluster one step nearer to what `service` asks for.
pub(crate) async fn reconcile(service: Arc<LLMService>, ctx: Arc<Context>) -> Result<Action, kube::Error> {
    let started = Instant::now();
    ctx.metrics.in_progress.inc();
    let service = ctx.written.newest(service);
    let result = six_calls(&service, &ctx).await;
    ctx.metrics.in_progress.dec();
    ctx.metrics.reconciled(result.is_ok(), started.elapsed());
    if result.is_ok() {
        ctx.backoff.succeeded(&ObjectRef::from_obj(&*service));
    }
    result
}

async fn six_calls(service: &LLMService, ctx: &Context) -> Result<Action, kube::Error> {
    if apply::awaits_finalizer(ctx, service).await? {
        return Ok(Action::await_change());
    }
    // Reads the API server's objects and the engines' state.
    let Some(observed) = dereference(ctx, service).await? else { return Ok(Action::requeue(CATCH_UP)) };
    // Pure.
    let validated = validate(service, Place::Cluster);
    // Pure.
    let decision = decide(service, validated, &observed, &ctx.engine_image);
    // Pure.
    let objects = decision.as_ref().ok().map(|d| Objects::build(&d.service, &d.chosen, &d.plan, &observed));
    // Writes children and pods.
    let outcome = apply::apply(ctx, service, objects.as_ref()).await;
    restarts::tell(ctx, service, &observed).await;
    if service.metadata.deletion_timestamp.is_some() && apply::finished(service, &observed) {
        apply::drop_finalizer(ctx, service).await?;
        return Ok(Action::await_change());
    }
    // Pure, then one write if it changed.
    let problems = problems(&decision, &observed, &outcome);
    let status = status_of(ctx, service, &decision, &observed, &problems);
    apply::status(ctx, service, &status).await?;

    events::stalled(ctx, service, &status).await;
    match outcome.error {
        Some(error) => Err(error),
        None => Ok(Action::requeue(pause(&decision, &problems, &observed))),
    }
}

/// What went wrong with a call is tried again after a growing pause.
pub(crate) fn error_policy(service: Arc<LLMService>, error: &kube::Error, ctx: Arc<Context>) -> Action {
    let asked = match error {
        kube::Error::Api(status) => status.details.as_ref().map_or(0, |d| d.retry_after_seconds),
        _ => 0,
    };
    let key = ObjectRef::from_obj(&*service);
    let pause = ctx.backoff.failed(key, service.metadata.generation, Duration::from_secs(asked.into()));
    let (namespace, name) = (service.namespace(), service.name_any());
    let why = apply::words(error);
    // Someone else wrote the object first: that is how the API is meant to be used.
    if matches!(error, kube::Error::Api(status) if status.is_conflict()) {
        tracing::debug!(namespace, service = name, why, ?pause, "reconcile met a conflict; trying again");
    } else {
        tracing::warn!(namespace, service = name, why, ?pause, "reconcile failed; trying again");
    }
    Action::requeue(pause)
}

fn decide(
    service: &LLMService,
    validated: Result<ValidatedService, SpecError>,
    observed: &Observed,
    default_image: &str,
) -> Result<Decision, SpecError> {
    // A service that is deleted needs no valid spec to go.
    let deleting = service.metadata.deletion_timestamp.is_some();
    let validated = match validated {
        Err(_) if deleting => ValidatedService::removable(service),
        other => other?,
    };
    let chosen = revision::choose(&validated, &observed.revisions, default_image);
    let desired = Desired {
        service: &validated.name,
        uid: &validated.uid,
        revision: &chosen.revision.hash,
        replicas: validated.replicas,
        mode: mode(service),
        drain_timeout: validated.drain_timeout,
    };
    let plan = plan::plan(&desired, &observed.pods, observed.now);
    Ok(Decision { service: validated, chosen, plan })
}

fn mode(service: &LLMService) -> Mode {
    match service.spec.run_policy.unwrap_or_default() {
        _ if service.metadata.deletion_timestamp.is_some() => Mode::Deleting,
        RunPolicy::Run => Mode::Run,
        RunPolicy::Paused => Mode::Paused,
        RunPolicy::Stopped => Mode::Stopped,
    }
}

fn problems(decision: &Result<Decision, SpecError>, observed: &Observed, outcome: &Outcome) -> Vec<Problem> {
    let invalid = decision.as_ref().err().map(|why| Problem::SpecInvalid(why.to_string()));
    let missing = observed.missing_claim.clone().map(Problem::ClaimMissing);
    invalid.into_iter().chain(outcome.problems.iter().cloned()).chain(missing).collect()
}

fn status_of(
    ctx: &Context,
    service: &LLMService,
    decision: &Result<Decision, SpecError>,
    observed: &Observed,
    problems: &[Problem],
) -> LLMServiceStatus {
    let owned: Vec<_> =
        observed.pods.iter().filter(|p| p.owner_uid == service.metadata.uid).cloned().collect();
    status::status(&Situation {
        service,
        mode: mode(service),
        revision: decision.as_ref().ok().map(|d| d.chosen.revision.hash.as_str()),
        pods: &owned,
        problems,
        conflicts: &observed.conflicts,
        gateway: ctx.gateway_url.as_deref(),
        now: observed.now,
    })
}

fn pause(decision: &Result<Decision, SpecError>, problems: &[Problem], observed: &Observed) -> Duration {
    let wake = decision.as_ref().ok().and_then(|d| d.plan.wake());
    let until =
        wake.map(|at| Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or(Duration::ZERO));
    // The node tells in events only what goes wrong before a pod's containers are made.
    let held_up = observed.pods.iter().any(|p| p.unschedulable.is_some() || p.setup_since.is_some());
    let retry = (!problems.is_empty() || !observed.conflicts.is_empty() || held_up).then_some(RETRY);
    [until, retry].into_iter().flatten().min().unwrap_or(RESYNC).max(CATCH_UP)
}
