//! What clients get: models, errors, and their own bytes and headers passed on.

use crate::support::{Behaviour, MODEL, ask, engine, front, whole};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use regatta_gateway::Limits;
use serde_json::Value;

async fn error(response: http::Response<hyper::body::Incoming>) -> (StatusCode, String) {
    let (status, _, body) = whole(response).await;
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(body["error"]["code"], status.as_u16());
    (status, body["error"]["message"].as_str().expect("a message").to_owned())
}

#[tokio::test]
async fn models_of_all_services_are_listed() {
    let front = front(&[], Limits::default()).await;
    let (status, list) = front.get("/v1/models").await;
    assert_eq!((status, &list["data"][0]["id"]), (StatusCode::OK, &Value::from(MODEL)));
    let (status, card) = front.get("/v1/models/m").await;
    assert_eq!((status, &card["id"]), (StatusCode::OK, &Value::from(MODEL)));
    assert_eq!(front.get("/v1/models/x").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_body_passes_byte_for_byte_and_hop_by_hop_headers_stay() {
    let engine = engine(Behaviour::Echo).await;
    let front = front(&[engine.address], Limits::default()).await;
    let body = "{ \"model\" : \"m\",\t\"x\": 1.0e0, \"x\": \"\\u00e9\" }";
    let mut request = front.request(body);
    for (name, value) in [("authorization", "Bearer k"), ("te", "trailers"), ("x-request-id", "id-1")] {
        request.headers_mut().insert(name, value.parse().expect("a value"));
    }
    let (status, headers, echoed) = whole(front.send(request).await).await;
    assert_eq!((status, echoed), (StatusCode::OK, Bytes::from(body)));
    assert_eq!(headers["authorization"], "Bearer k");
    assert_eq!(headers["x-request-id"], "id-1");
    assert!(!headers.contains_key("te"));
    assert_eq!(headers["host"], engine.address.to_string());
}

#[tokio::test]
async fn an_unknown_model_is_a_404_that_names_the_known() {
    let front = front(&[], Limits::default()).await;
    let (status, message) = error(front.post(r#"{"model":"gpt"}"#).await).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(message.contains("'gpt'") && message.contains(MODEL), "{message}");
}

#[tokio::test]
async fn a_model_without_a_routable_pod_is_a_503_with_a_reason_and_a_time() {
    let front = front(&[], Limits::default()).await;
    let response = front.post(&ask()).await;
    assert_eq!(response.headers()["retry-after"], "5");
    let (status, message) = error(response).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(message.contains("is starting"), "{message}");
    assert_eq!(
        front.metric(r#"regatta_gateway_lost_requests_total{cause="Unroutable"}"#).as_deref(),
        Some("1")
    );
}

#[tokio::test]
async fn what_is_no_request_is_refused_with_a_reason() {
    let front = front(&[], Limits { max_body: 64, ..Limits::default() }).await;
    assert_eq!(error(front.post("no json").await).await.0, StatusCode::BAD_REQUEST);
    let large = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(64));
    assert_eq!(error(front.post(&large).await).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let other =
        Request::get(format!("http://{}/v2/x", front.address)).body(Full::default()).expect("a request");
    let (status, message) = error(front.send(other).await).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(message.contains("GET /v2/x"), "{message}");
    let other = Request::delete(format!("http://{}/v1/models/m", front.address)).body(Full::default());
    let (status, message) = error(front.send(other.expect("a request")).await).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(message.contains("DELETE") && message.contains("/v1/models/m"), "{message}");
}

#[tokio::test]
async fn requests_over_the_limit_are_refused_at_once() {
    let (sender, behaviour) = crate::support::held();
    let engine = engine(behaviour).await;
    let front = front(&[engine.address], Limits { max_requests: 1, ..Limits::default() }).await;
    let first = front.post(&ask()).await;
    assert_eq!(error(front.post(&ask()).await).await.0, StatusCode::SERVICE_UNAVAILABLE);
    drop(sender);
    assert_eq!(whole(first).await.0, StatusCode::OK);
}
