//! The operator behind connections that break.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Method, Request, Response};
use kube::{Client, ResourceExt, api::DeleteParams, client::Body};
use regatta_e2e::{Fault, FaultyProxy, wait_for};
use serde_json::json;
use tokio::time::sleep;

use crate::operator::{Operator, PATIENCE, World, small, with};

/// Watches end every second, and of the writes to each path every third is refused.
fn faulty(client: Client) -> Client {
    // Counted by path: a try makes three writes, so that one count over all would refuse the same write each time.
    let writes = Arc::new(Mutex::new(HashMap::<String, usize>::new()));
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, writes) = (client.clone(), writes.clone());
        async move {
            if request.method() == Method::GET {
                return client.send(shorten(request)).await;
            }
            let count = {
                let mut writes = writes.lock().expect("never poisoned");
                let count = writes.entry(request.uri().path().to_owned()).or_default();
                *count += 1;
                *count
            };
            match count % 9 {
                2 => Ok(refusal(409, "Conflict")),
                5 => Ok(refusal(429, "TooManyRequests")),
                8 => Ok(refusal(500, "InternalError")),
                _ => client.send(request).await,
            }
        }
    });
    Client::new(service, namespace)
}

/// Watches of LLMServices never answer, and the first write to a Service is refused. Counts the writes of status.
fn deaf(client: Client, num_status_writes: Arc<AtomicUsize>) -> Client {
    let num_service_writes = Arc::new(AtomicUsize::new(0));
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, num_service_writes) = (client.clone(), num_service_writes.clone());
        let num_status_writes = num_status_writes.clone();
        async move {
            let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
            let write = request.method() == Method::PATCH;
            if path.ends_with("/llmservices") && query.contains("watch=true") {
                return std::future::pending().await;
            }
            if write && path.contains("/services/") && num_service_writes.fetch_add(1, Ordering::SeqCst) == 0
            {
                return Ok(refusal(500, "InternalError"));
            }
            if write && path.ends_with("/status") {
                num_status_writes.fetch_add(1, Ordering::SeqCst);
            }
            client.send(request).await
        }
    });
    Client::new(service, namespace)
}

/// A watch lasts a second.
fn shorten(request: Request<Body>) -> Request<Body> {
    let (mut parts, body) = request.into_parts();
    let uri = parts.uri.to_string().replace("timeoutSeconds=200", "timeoutSeconds=1");
    parts.uri = uri.parse().expect("still an address");
    Request::from_parts(parts, body)
}

fn refusal(code: u16, reason: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": "made up by the test"});
    let body = Body::from(serde_json::to_vec(&status).expect("json"));
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(body)
        .expect("a response")
}

#[tokio::test]
async fn broken_watches_and_refused_writes_delay_a_service_and_no_more() {
    let World { ns, operator, engines } = World::new("faults").await;
    operator.stop().await.expect("ends well");
    let operator = Operator::start_with(faulty(ns.client.clone()), &ns.name, "unlucky", "engine:1");
    live(World { ns, operator, engines }).await;
}

#[tokio::test]
async fn connections_that_break_delay_a_service_and_no_more() {
    let World { ns, operator, engines } = World::new("cuts").await;
    operator.stop().await.expect("ends well");
    let (proxy, client) = FaultyProxy::before_api_server().await.expect("a cluster is around");
    let operator = Operator::start_with(client, &ns.name, "cut-off", "engine:1");
    tokio::select! {
        () = live(World { ns, operator, engines }) => {}
        never = trouble(&proxy) => match never {},
    }
}

#[tokio::test]
async fn connections_that_never_live_long_delay_a_service_and_no_more() {
    let World { ns, operator, engines } = World::new("endless").await;
    operator.stop().await.expect("ends well");
    let (proxy, client) = FaultyProxy::before_api_server().await.expect("a cluster is around");
    let operator = Operator::start_with(client, &ns.name, "short-lived", "engine:1");
    let cuts = async {
        loop {
            // A refusal is an error to a watch that opens again; a cut alone is an end.
            for (fault, milliseconds) in [(Fault::None, 300), (Fault::Refuse, 100)] {
                proxy.set(fault);
                proxy.cut();
                sleep(Duration::from_millis(milliseconds)).await;
            }
        }
    };
    tokio::select! {
        () = live(World { ns, operator, engines }) => {}
        () = cuts => {}
    }
}

/// A few times each fault, then peace.
async fn trouble(proxy: &FaultyProxy) -> Infallible {
    for _ in 0..4 {
        for (fault, milliseconds) in
            [(Fault::None, 1000), (Fault::Delay(Duration::from_millis(20)), 500), (Fault::Refuse, 300)]
        {
            proxy.set(fault);
            if fault == Fault::Refuse {
                proxy.cut();
            }
            sleep(Duration::from_millis(milliseconds)).await;
        }
    }
    proxy.set(Fault::None);
    std::future::pending().await
}

/// A service from its first pods over a smaller scale and a new image to its end.
async fn live(mut world: World) {
    world.apply("llm", with(2)).await;
    for pod in world.wait_for_pods("two pods", |pods| pods.len() == 2).await {
        world.bring_up(&pod.name_any()).await;
    }
    world.wait_for_condition("llm", "Ready", "True/ReplicasRoutable").await;
    world.apply("llm", with(1)).await;
    world.wait_for_pods("one pod", |pods| pods.len() == 1).await;
    world.wait_for_condition("llm", "Ready", "True/ReplicasRoutable").await;
    let mut spec = small();
    spec["engine"] = json!({"image": "engine:other"});
    world.apply("llm", spec).await;
    let both = world.wait_for_pods("the new pod", |pods| pods.len() == 2).await;
    let new =
        both.iter().map(ResourceExt::name_any).find(|n| !world.engines.contains_key(n)).expect("a new one");
    world.bring_up(&new).await;
    world.wait_for_pods("only the new pod", |pods| pods.len() == 1 && pods[0].name_any() == new).await;
    world.services().delete("llm", &DeleteParams::default()).await.expect("taken");
    world.wait_for_pods("no pods", <[_]>::is_empty).await;
}

#[tokio::test]
async fn a_status_that_changed_and_changed_back_while_the_watch_was_silent_is_written_both_times() {
    let world = World::new("deaf").await;
    world.apply("llm", small()).await;
    world.wait_for_condition("llm", "Reconciling", "True/ReplicasStarting").await;
    let World { ns, operator, engines } = world;
    operator.stop().await.expect("ends well");
    let writes = Arc::new(AtomicUsize::new(0));
    let operator =
        Operator::start_with(deaf(ns.client.clone(), writes.clone()), &ns.name, "deaf", "engine:1");
    let world = World { ns, operator, engines };
    wait_for("that the call failed, and that it did not", PATIENCE, async || {
        let seen = writes.load(Ordering::SeqCst);
        if seen >= 2 { Ok(()) } else { Err(seen) }
    })
    .await;
    world.wait_for_condition("llm", "Reconciling", "True/ReplicasStarting").await;
}
