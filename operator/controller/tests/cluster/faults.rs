//! The operator behind a connection that breaks: watches end every second, and of the writes to each path every third
//! is refused.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use http::{Method, Request, Response};
use kube::{Client, ResourceExt, api::DeleteParams, client::Body};
use serde_json::json;

use crate::operator::{Operator, World, small, with};

fn faulty(client: Client) -> Client {
    // Counted by path: one count over all could fall into step with the retries and refuse the same write for ever.
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
    let mut world = World { ns, operator, engines };
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
