//! The watches and what they set off.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt, TryStreamExt, channel::mpsc};
use kube::runtime::{
    Config, Controller, Predicate, WatchStreamExt, controller::Error as ControllerError, predicates,
    reflector::ObjectRef, utils::Backoff, watcher,
};
use regatta_crds::LLMService;
use tokio_util::sync::CancellationToken;

use crate::{
    cache::{self, trim_pod, trim_revision, trim_service},
    context::Context,
    dereference::rivals,
    reconcile::{error_policy, reconcile},
};

/// Services reconciled at once.
const CONCURRENCY: u16 = 16;
/// Services that wait to be told that one of their names was taken.
const MAX_RIVALS: usize = 1024;
const COUNT_PERIOD: Duration = Duration::from_secs(5);

/// Each watch pauses by itself after it broke; what the others tell is acted on meanwhile.
struct NoPause;

impl Iterator for NoPause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

impl Backoff for NoPause {
    fn reset(&mut self) {}
}

/// Runs until `stop`; reconciles in progress are ended first.
pub(crate) async fn run(ctx: Arc<Context>, stop: CancellationToken) {
    let (client, namespace) = (&ctx.client, ctx.watch_namespace.as_deref());
    // Status is ours: only what others change sets off a reconcile.
    let changed = predicates::generation.combine(predicates::finalizers);
    let services = ctx
        .caches
        .services
        .watch(client, namespace, regatta_watch::config(), trim_service)
        .predicate_filter(changed, kube::runtime::PredicateConfig::default());
    // A name that one service takes is lost to others, who must say so.
    let (mut rivalry, rivals_of_changed) = mpsc::channel(MAX_RIVALS);
    let store = ctx.services().clone();
    let services = services.inspect_ok(move |service| {
        for rival in rivals(&store, service) {
            // What does not fit is caught up with by the next resync.
            _ = rivalry.try_send(ObjectRef::from_obj(&*rival));
        }
    });
    let pods = counted(ctx.caches.pods.watch(client, namespace, cache::ours(), trim_pod), &ctx, "Pod");
    let revisions = ctx.caches.revisions.watch(client, namespace, cache::ours(), trim_revision);
    let revisions = counted(revisions, &ctx, "ControllerRevision");
    let own_services = counted(cache::watch_services(client, namespace), &ctx, "Service");

    let controller = Controller::for_stream(counted(services, &ctx, "LLMService"), ctx.services().clone())
        .owns_stream(pods)
        .owns_stream(revisions)
        .owns_stream(own_services)
        .reconcile_on(rivals_of_changed)
        .trigger_backoff(NoPause)
        .with_config(Config::default().concurrency(CONCURRENCY))
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(caught_up, error_policy, ctx.clone())
        .for_each(async |result| report(result));
    tokio::select! {
        () = controller => {}
        () = count_objects(&ctx) => {}
    }
}

/// Plans nothing before every cache holds a first list: a missing pod would be made twice.
async fn caught_up(
    service: Arc<LLMService>,
    ctx: Arc<Context>,
) -> Result<kube::runtime::controller::Action, kube::Error> {
    let ready = async { tokio::try_join!(ctx.pods().wait_until_ready(), ctx.revisions().wait_until_ready()) };
    if ready.await.is_err() {
        return Ok(kube::runtime::controller::Action::requeue(COUNT_PERIOD));
    }
    reconcile(service, ctx).await
}

fn counted<K>(
    stream: impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
    ctx: &Arc<Context>,
    kind: &'static str,
) -> impl Stream<Item = Result<K, watcher::Error>> + Send + 'static {
    let ctx = ctx.clone();
    stream.inspect(move |item| {
        if let Err(error) = item {
            tracing::warn!(kind, %error, "a watch broke; opening it again");
            ctx.metrics.watch_failed(kind);
        }
    })
}

async fn count_objects(ctx: &Context) {
    let mut ticks = tokio::time::interval(COUNT_PERIOD);
    loop {
        ticks.tick().await;
        ctx.metrics.count_objects("LLMService", ctx.services().len());
        ctx.metrics.count_objects("Pod", ctx.pods().len());
        ctx.metrics.count_objects("ControllerRevision", ctx.revisions().len());
    }
}

type Reconciled = Result<
    (ObjectRef<LLMService>, kube::runtime::controller::Action),
    ControllerError<kube::Error, watcher::Error>,
>;

/// Failed reconciles are logged where they are tried again; the rest is the runtime's own trouble.
fn report(result: Reconciled) {
    match result {
        Ok((service, action)) => tracing::debug!(%service, ?action, "reconciled"),
        Err(ControllerError::ReconcilerFailed(..) | ControllerError::ObjectNotFound(_)) => {}
        Err(error) => tracing::warn!(%error, "the controller runtime reports"),
    }
}
